package extproc

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
)

const (
	none     = filterv3.ProcessingMode_NONE
	streamed = filterv3.ProcessingMode_STREAMED
	whole    = filterv3.ProcessingMode_BUFFERED
	partial  = filterv3.ProcessingMode_BUFFERED_PARTIAL
	framed   = filterv3.ProcessingMode_GRPC
)

var bodyModes = map[string]modes{
	"NONE": none, "STREAMED": streamed, "BUFFERED": whole, "BUFFERED_PARTIAL": partial, "FULL_DUPLEX_STREAMED": fds,
	"GRPC": framed,
}

const (
	onePick    = "qH 10.0.0.1:8000"
	loggedPick = onePick + " logged"
)

// message is a request body in mode GRPC.
func message(body string, eos, without, compressed bool) *ask {
	return &ask{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{
		Body: []byte(body), EndOfStream: eos, EndOfStreamWithoutMessage: without, GrpcMessageCompressed: compressed,
	}}}
}

// asResponse turns a request body into the same of the response.
func asResponse(m *ask) *ask {
	return &ask{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: m.GetRequestBody()}}
}

func modeRows() map[string]row {
	big := strings.Repeat("x", 200_000)
	start := func(request modes) *ask { return withModes(qH(more), request, fds) }
	rows := map[string]row{
		"NONE: headers of a body that is not shown": {with(start(none)), []string{onePick}, []string{gone(false, 1)}},
		"NONE: trailers are shown": {with(start(none), qT(), qT()), []string{onePick, "qT"},
			[]string{gone(false, 3)}},
		"STREAMED: each chunk is answered": {
			with(start(streamed), qB("{", more), qB("", more), qB(big, last)),
			[]string{onePick, "qB -", "qB -", "qB -"}, []string{gone(false, 4)},
		},
		"STREAMED: trailers": {
			with(start(streamed), qB("{", more), qT()), []string{onePick, "qB -", "qT"}, []string{gone(false, 3)},
		},
		"STREAMED: bytes after the end": {with(start(streamed), qB("{", last), qB("{", last)),
			[]string{onePick, "qB -"}, []string{gone(false, 3)}},
		"GRPC: messages keep their boundaries": {
			with(start(framed), message("a", false, false, false), message("", false, false, true),
				message("bc", true, false, false)),
			[]string{onePick, `qB "a"`, `qB "" compressed`, `qB "bc" eos`}, []string{gone(false, 4)},
		},
		"GRPC: an end without a message": {
			with(start(framed), message("a", false, false, false), message("", false, true, false),
				message("late", false, false, false)),
			[]string{onePick, `qB "a"`, `qB "" none`}, []string{gone(false, 4)},
		},
		"GRPC: trailers": {with(start(framed), message("a", false, false, false), qT()),
			[]string{onePick, `qB "a"`, "qT"}, []string{gone(false, 3)}},
	}
	for name, mode := range map[string]modes{"BUFFERED": whole, "BUFFERED_PARTIAL": partial} {
		for more, r := range map[string]row{
			"no body": {with(withModes(qH(last), mode, fds)), []string{onePick},
				[]string{gone(false, 1)}},
			"the body carries the pick": {with(start(mode), qB(chat, last)), []string{"qH -", "qB pick 10.0.0.1:8000"},
				[]string{gone(false, 2)}},
			"an empty body": {with(start(mode), qB("", last)), []string{"qH -", "qB pick 10.0.0.1:8000"},
				[]string{gone(false, 2)}},
			"body and trailers": {with(start(mode), qB(chat, false), qT(), qT()),
				[]string{"qH -", "qB pick 10.0.0.1:8000", "qT"}, []string{gone(false, 4)}},
			"trailers without a body": {with(start(mode), qT()), []string{"qH -", "500 unsupported-mode"}, nil},
			"a body twice": {with(start(mode), qB(chat, last), qB(chat, last)),
				[]string{"qH -", "qB pick 10.0.0.1:8000"}, []string{gone(false, 3)}},
			"a body twice, trailers": {with(start(mode), qB(chat, more), qB(chat, more), qB(chat, last), qT()),
				[]string{"qH -", "qB pick 10.0.0.1:8000", "qT"}, []string{gone(false, 5)}},
			"half-closed after headers": {with(start(mode)), []string{"qH -"}, nil},
			"headers and trailers twice": {with(start(mode), start(mode), qB("{}", last), qT()),
				[]string{"qH -", "qB pick 10.0.0.1:8000"}, []string{gone(false, 4)}},
		} {
			rows[name+": "+more] = r
		}
	}
	for name, mode := range bodyModes {
		rows[name+": headers skipped"] = row{with(withModes(qB("{", last), mode, fds)),
			[]string{"500 unsupported-mode"}, nil}
	}
	return rows
}

func TestRequestModes(t *testing.T) {
	for name, row := range modeRows() {
		t.Run(name, func(t *testing.T) { row.check(t, newRig(setup{})) })
	}
}

func (w row) check(t *testing.T, r *rig) {
	t.Helper()
	got := transcript(t, converse(t, r.serve(t), w.sent...))
	if diff := cmp.Diff(w.answer, got); diff != "" {
		t.Errorf("answers, want -, got +:\n%s", diff)
	}
	if w.told == nil {
		if n := len(r.started()); n > 0 {
			t.Errorf("%d cycles were started, want none", n)
		}
		return
	}
	if diff := cmp.Diff(w.told, r.only(t).lines()); diff != "" {
		t.Errorf("told, want -, got +:\n%s", diff)
	}
}

func TestResponseModes(t *testing.T) {
	start := func(response modes) *ask { return withModes(qH(last), fds, response) }
	rows := map[string]row{
		"NONE: the access log tells the end": {with(start(none), rH(more)), []string{loggedPick, "rH"},
			[]string{"started 200 passes", gone(true, 2) + " logged"}},
		"NONE: headers skipped": {with(start(none)), []string{loggedPick}, []string{gone(false, 1) + " logged"}},
		"NONE: no body": {
			with(start(none), rH(last)), []string{loggedPick, "rH"},
			[]string{"started 200", "ended 0 0/0/0", gone(true, 2)},
		},
		"NONE: the request goes on, trailers": {
			with(withModes(qH(more), streamed, none), rH(more), rT(), qB("a", last)),
			[]string{loggedPick, "rH", "rT", "qB -"},
			[]string{"started 200 passes", "ended 0 0/0/0", gone(true, 4)},
		},
		"STREAMED": {
			with(start(streamed), rH(more), rB("a", more), rB("b", last)), []string{onePick, "rH", "rB -", "rB -"},
			[]string{"started 200", "first", "ended 2 0/0/0", gone(true, 4)},
		},
		"STREAMED: headers skipped, trailers": {
			with(start(streamed), rB("a", more), rT()), []string{onePick, "rB -", "rT"},
			[]string{"started 0", "first", "ended 1 0/0/0", gone(true, 3)},
		},
		"STREAMED: cut": {with(start(streamed), rH(more), rB("a", more)), []string{onePick, "rH", "rB -"},
			[]string{"started 200", "first", gone(false, 3)}},
		"BUFFERED": {
			with(start(whole), rH(more), rB("ab", last)), []string{onePick, "rH", "rB -"},
			[]string{"started 200", "first", "ended 2 0/0/0", gone(true, 3)},
		},
		"BUFFERED: trailers": {
			with(start(whole), rH(more), rB("ab", more), rT()), []string{onePick, "rH", "rB -", "rT"},
			[]string{"started 200", "first", "ended 2 0/0/0", gone(true, 4)},
		},
		"BUFFERED: trailers that are not shown": {
			with(start(whole), rH(more), rB("ab", more)), []string{onePick, "rH", "rB -"},
			[]string{"started 200", "first", gone(true, 3)},
		},
		"BUFFERED_PARTIAL: a part": {
			with(start(partial), rH(more), rB("ab", more)), []string{onePick, "rH", "rB -"},
			[]string{"started 200", "first", gone(true, 3)},
		},
		"GRPC": {
			with(start(framed), rH(more), asResponse(message("a", false, false, true)),
				asResponse(message("", false, true, false)), rT()),
			[]string{onePick, "rH", `rB "a" compressed`, `rB "" none`},
			[]string{"started 200", "first", "ended 1 0/0/0", gone(true, 5)},
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) { row.check(t, newRig(setup{})) })
	}
}

// TestStreamEndsWhenTheResponseBypasses: a proxy that is owed nothing more is left by us, for some would keep the
// stream until the response ends, and end the response with it.
func TestStreamEndsWhenTheResponseBypasses(t *testing.T) {
	// The last message is the one after which nothing waits for an answer.
	for name, sent := range map[string][]*ask{
		"a request without a body":         with(withModes(qH(last), fds, none), rH(more)),
		"a request with a body":            with(withModes(qH(more), fds, none), qB("{}", last), rH(more)),
		"a request with trailers":          with(withModes(qH(more), fds, none), qB("{}", more), qT(), rH(more)),
		"a request whose body bypasses us": with(withModes(qH(more), none, none), rH(more)),
		"a request whose body was cut":     with(withModes(qH(more), partial, none), qB("{", more), rH(more)),
		"a request that ends later": with(withModes(qH(more), streamed, none), qB("{", more), rH(more),
			qB("}", last)),
		"a request that ends later, picked": with(withModes(qH(more), framed, none), rH(more),
			message("a", false, true, true)),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			c := open(t, r.serve(t))
			c.send(sent...)
			for {
				_, err := c.stream.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("after the last message comes %v, want the end of the stream", err)
				}
			}
			lines := r.only(t).lines()
			if got, want := lines[len(lines)-1], gone(true, len(sent))+" logged"; got != want {
				t.Errorf("told %q, want %q", got, want)
			}
		})
	}
}

// A body that is cut cannot be held against the client; a whole one can.
func TestCutBodyIsRoutedUnread(t *testing.T) {
	broken := setup{parser: func(string, []byte) error { return errors.New("no") }}
	for name, tc := range map[string]struct {
		mode   modes
		eos    bool
		answer string
	}{
		"partial, cut":       {partial, false, "qB pick 10.0.0.1:8000"},
		"partial, whole":     {partial, true, "400 invalid-request"},
		"buffered":           {whole, true, "400 invalid-request"},
		"buffered, trailers": {whole, false, "400 invalid-request"},
	} {
		t.Run(name, func(t *testing.T) {
			got := transcript(t, converse(t, newRig(broken).serve(t), withModes(qH(more), tc.mode, fds),
				qB(`{"a`, tc.eos)))
			if diff := cmp.Diff([]string{"qH -", tc.answer}, got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

// In mode BUFFERED the proxy sends the body once the headers are answered, so they are answered at once.
func TestBufferedHeadersAreAnsweredBeforeTheBody(t *testing.T) {
	c := open(t, newRig(setup{}).serve(t))
	c.send(withModes(qH(more), whole, none))
	if got := line(t, c.receive()); got != "qH -" {
		t.Fatalf("headers are answered with %q", got)
	}
	c.send(qB(chat, last))
	if got := line(t, c.receive()); got != "qB pick 10.0.0.1:8000 logged" {
		t.Fatalf("the body is answered with %q", got)
	}
	c.finish()
}

// A body mode from the future is refused at once, whatever the stream's first message is.
func TestUnknownModes(t *testing.T) {
	r := newRig(setup{})
	client := r.serve(t)
	for _, mode := range []modes{6, 99, -1} {
		for direction, m := range map[string]*ask{
			"request": withModes(qH(more), mode, fds), "response": withModes(qH(more), fds, mode),
			"response body": withModes(rB("x", more), fds, mode),
		} {
			t.Run(fmt.Sprintf("%s %d", direction, mode), func(t *testing.T) {
				c := open(t, client)
				c.send(m)
				got := onlyRefusal(t, []*answer{c.receive()}) // before anything else is sent
				direction, _, _ := strings.Cut(direction, " ")
				want := fmt.Sprintf("%s body mode BodySendMode(%d) is not supported", direction, mode)
				if got.Status != 500 || got.Reason != "unsupported-mode" ||
					!strings.Contains(got.Body.Error.Message, want) {
					t.Errorf("got %+v, want 500 with %q", got, want)
				}
				if rest := c.finish(); len(rest) > 0 {
					t.Errorf("then comes %v", rest)
				}
			})
		}
	}
	if n := len(r.started()); n > 0 {
		t.Errorf("%d cycles were started, want none", n)
	}
}
