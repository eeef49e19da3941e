package extproc

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
)

const chat = `{"model":"m","messages":[{"role":"user","content":"h\u00e9llo 🙂"}]}`

// A row is what the proxy sends before it half-closes, all that it is answered, and what the cycle is told. A nil told
// means that no cycle may start.
type row struct {
	sent   []*ask
	answer []string
	told   []string
}

func gone(completed bool, frames int) string {
	return fmt.Sprintf("gone completed=%v frames=%d", completed, frames)
}

// split cuts a text into single bytes: inside characters and escapes, too. The last one ends the stream.
func split(text string, piece func(string, bool) *ask) []*ask {
	var out []*ask
	for i := range len(text) {
		out = append(out, piece(text[i:i+1], i == len(text)-1))
	}
	return out
}

func with(first *ask, more ...*ask) []*ask { return append([]*ask{first}, more...) }

var requestRows = map[string]row{
	"1 a body in one chunk": {
		with(qH(more), qB(chat, last)), []string{"qH 10.0.0.1:8000", fmt.Sprintf("qB %q eos", chat)},
		[]string{gone(false, 2)},
	},
	"2 a body byte by byte": {
		with(qH(more), split(chat, qB)...), []string{"qH 10.0.0.1:8000", fmt.Sprintf("qB %q eos", chat)},
		[]string{gone(false, 1+len(chat))},
	},
	"3 an empty last chunk": {
		with(qH(more), qB("{}", more), qB("", last)), []string{"qH 10.0.0.1:8000", `qB "{}" eos`},
		[]string{gone(false, 3)},
	},
	"4 GET without body": {
		with(qH(last, ":method: GET", ":path: /v1/models")), []string{"qH 10.0.0.1:8000"}, []string{gone(false, 1)},
	},
	"5 POST without body": {with(qH(last)), []string{"qH 10.0.0.1:8000"}, []string{gone(false, 1)}},
	"6 an empty body": {with(qH(more), qB("", last)), []string{"qH 10.0.0.1:8000", `qB "" eos`},
		[]string{gone(false, 2)}},
	"7 trailers end the body": {
		with(qH(more), qB("{}", more), qT()), []string{"qH 10.0.0.1:8000", `qB "{}"`, "qT"}, []string{gone(false, 3)},
	},
	"8 trailers without body": {with(qH(more), qT()), []string{"qH 10.0.0.1:8000", "qT"}, []string{gone(false, 2)}},
	"10 half-closed in the body": {
		with(qH(more), qB("{", more)), nil, nil,
	},
	"10 half-closed after the headers": {with(qH(more)), nil, nil},
	"22 body first, headers skipped": {
		with(withModes(qB("{}", last), fds, fds)), []string{"500 unsupported-mode"}, nil,
	},
	"22 trailers first": {with(withModes(qT(), fds, fds)), []string{"500 unsupported-mode"}, nil},
	"23 a second end": {with(qH(more), qB("{}", last), qB("x", last)),
		[]string{"qH 10.0.0.1:8000", `qB "{}" eos`}, []string{gone(false, 3)}},
	"23 trailers after end": {with(qH(more), qB("{}", last), qT()), []string{"qH 10.0.0.1:8000", `qB "{}" eos`},
		[]string{gone(false, 3)}},
	"24 headers twice": {with(qH(more), qH(last), qB("{}", last)), []string{"qH 10.0.0.1:8000", `qB "{}" eos`},
		[]string{gone(false, 3)}},
	"24 whole headers twice": {with(qH(last), qH(last)), []string{"qH 10.0.0.1:8000"}, []string{gone(false, 2)}},
	"25 trailers twice": {with(qH(more), qB("{}", more), qT(), qT()),
		[]string{"qH 10.0.0.1:8000", `qB "{}"`, "qT"}, []string{gone(false, 4)}},
	"26 messages of no kind": {
		with(&ask{}, qH(more), &ask{}, withMeta(&ask{}, "x", map[string]any{"y": "z"}), qB("{}", last), &ask{}),
		[]string{"qH 10.0.0.1:8000", `qB "{}" eos`}, []string{gone(false, 6)},
	},
	"67 HEAD": {with(qH(last, ":method: HEAD", ":path: /")), []string{"qH 10.0.0.1:8000"},
		[]string{gone(false, 1)}},
	"67 OPTIONS": {with(qH(last, ":method: OPTIONS", ":path: *")), []string{"qH 10.0.0.1:8000"},
		[]string{gone(false, 1)}},
	"67 DELETE, a body": {with(qH(more, ":method: DELETE", ":path: /x"), qB("b", last)),
		[]string{"qH 10.0.0.1:8000", `qB "b" eos`}, []string{gone(false, 2)}},
	"no protocol config": {with(withoutModes(qH(last))), []string{"qH 10.0.0.1:8000"}, []string{gone(false, 1)}},
}

func withoutModes(m *ask) *ask {
	m.ProtocolConfig = nil
	return m
}

// served are the lines of a request that was answered before its response came.
func served(answers ...string) []string {
	return append([]string{"qH 10.0.0.1:8000", `qB "{}" eos`}, answers...)
}

func asked(response ...*ask) []*ask { return append([]*ask{qH(more), qB("{}", last)}, response...) }

var responseRows = map[string]row{
	"14 a full cycle": {
		asked(rH(more), rB("ab", more), rB("c", last)), served("rH", `rB "ab"`, `rB "c" eos`),
		[]string{"started 200", "first", "ended 3 0/0/0", gone(true, 5)},
	},
	"16 an empty last chunk": {
		asked(rH(more), rB("ab", more), rB("", last)), served("rH", `rB "ab"`, `rB "" eos`),
		[]string{"started 200", "first", "ended 2 0/0/0", gone(true, 5)},
	},
	"16 an empty chunk before the last needs no answer": {
		asked(rH(more), rB("", more), rB("c", last)), served("rH", `rB "c" eos`),
		[]string{"started 200", "first", "ended 1 0/0/0", gone(true, 5)},
	},
	"17 headers only": {
		asked(rH(last, ":status: 204")), served("rH"), []string{"started 204", "ended 0 0/0/0", gone(true, 3)},
	},
	"18 trailers": {
		asked(rH(more), rB("ab", more), rT()), served("rH", `rB "ab"`, "rT"),
		[]string{"started 200", "first", "ended 2 0/0/0", gone(true, 5)},
	},
	"18 trailers without body": {
		asked(rH(more), rT()), served("rH", "rT"), []string{"started 200", "ended 0 0/0/0", gone(true, 4)},
	},
	"19 an error": {
		asked(rH(more, ":status: 503"), rB("no", last)), served("rH", `rB "no" eos`),
		[]string{"started 503", "first", "ended 2 0/0/0", gone(true, 4)},
	},
	"20 the response before the request's end": {
		with(qH(more), qB("{", more), rH(more), rB("ab", more), qB("}", last), rB("", last)),
		[]string{"rH", `rB "ab"`, "qH 10.0.0.1:8000", `qB "{}" eos`, `rB "" eos`},
		[]string{"ended 2 0/0/0", gone(true, 6)},
	},
	"21 the response alone": {with(withModes(rH(last), fds, fds)), []string{"rH"}, nil},
	"25 trailers twice": {
		asked(rH(more), rT(), rT()), served("rH", "rT"), []string{"started 200", "ended 0 0/0/0", gone(true, 5)},
	},
	"headers twice": {
		asked(rH(more), rH(last), rB("c", last)), served("rH", `rB "c" eos`),
		[]string{"started 200", "first", "ended 1 0/0/0", gone(true, 5)},
	},
	"bytes after the end": {
		asked(rH(more), rB("c", last), rB("d", last), rT()), served("rH", `rB "c" eos`),
		[]string{"started 200", "first", "ended 1 0/0/0", gone(true, 6)},
	},
	"15 a response that breaks off": {
		asked(rH(more), rB("ab", more)), served("rH", `rB "ab"`), []string{"started 200", "first", gone(false, 4)},
	},
	"59 cookies stay as they are": {
		asked(rH(last, ":status: 200", "set-cookie: a=1", "set-cookie: b=2")), served("rH"),
		[]string{"started 200", "ended 0 0/0/0", gone(true, 3)},
	},
}

func TestRequestDirection(t *testing.T)  { testRows(t, requestRows) }
func TestResponseDirection(t *testing.T) { testRows(t, responseRows) }

func testRows(t *testing.T, rows map[string]row) {
	for name, tc := range rows {
		for where, script := range map[string]func(*cycle){
			"picked in Start": pick("10.0.0.1:8000"), "picked elsewhere": elsewhere(pick("10.0.0.1:8000")),
		} {
			t.Run(name+", "+where, func(t *testing.T) {
				r := newRig(setup{script: script})
				got := transcript(t, converse(t, r.serve(t), tc.sent...))
				if diff := cmp.Diff(tc.answer, got, equateEmpty); diff != "" {
					t.Errorf("answers, want -, got +:\n%s", diff)
				}
				var told []string
				for _, c := range r.started() {
					told = append(told, c.lines()...)
				}
				if diff := cmp.Diff(tc.told, told, equateEmpty); diff != "" {
					t.Errorf("told, want -, got +:\n%s", diff)
				}
			})
		}
	}
}

var equateEmpty = cmp.Transformer("lines", func(l []string) string { return strings.Join(l, "\n") })

// Sizes around a chunk, a window and the limit: the bytes come back in chunks that every proxy takes.
func TestSizes(t *testing.T) {
	for _, size := range []int{1, 61999, 62000, 62001, 65535, 65536, 65537, 1 << 20, 20 << 20} {
		for direction, start := range map[string][]*ask{"q": {qH(more)}, "r": {qH(last), rH(more)}} {
			t.Run(fmt.Sprintf("%s direction, %d bytes", direction, size), func(t *testing.T) {
				r := newRig(setup{config: func(c *Config) { c.MaxBodyBytes = 20 << 20 }})
				c, text := open(t, r.serve(t)), strings.Repeat("0123456789abcdef", size/16+1)[:size]
				var sender sync.WaitGroup
				sender.Go(func() {
					c.send(start...)
					c.send(pieces(text, direction == "r")...)
				})
				var got strings.Builder
				for end := false; !end; {
					m := c.receive()
					line(t, m)
					s := body(m).GetResponse().GetBodyMutation().GetStreamedResponse()
					got.Write(s.GetBody())
					end = s.GetEndOfStream()
				}
				sender.Wait()
				if got.String() != text {
					t.Errorf("%d bytes came back changed, as %d", size, got.Len())
				}
				if rest := c.finish(); len(rest) > 0 {
					t.Errorf("after the end comes %v", rest)
				}
			})
		}
	}
}

// pieces are chunks larger than those that we send, up to the largest that proxies were seen to send.
func pieces(text string, response bool) []*ask {
	var out []*ask
	for text != "" {
		n := min(len(text), 200_000)
		if response {
			out = append(out, rB(text[:n], n == len(text)))
		} else {
			out = append(out, qB(text[:n], n == len(text)))
		}
		text = text[n:]
	}
	return out
}

func body(m *answer) *extprocv3.BodyResponse {
	if b := m.GetRequestBody(); b != nil {
		return b
	}
	return m.GetResponseBody()
}
