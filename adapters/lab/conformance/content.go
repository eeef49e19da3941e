package conformance

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// contentChecks are about what a request body holds.
var contentChecks = []Check{
	{
		Number: 34, Name: "body sizes", in: bodied, alone: true,
		Sends: "1 byte, 64 KiB and one less and one more, 1 MiB, 20 MiB, more than the limit",
		Wants: "as 1, chunks of 64 KiB at most; 413 above the limit; no more held than twice the body, and nothing " +
			"afterwards",
		run: sizes,
	},
	{
		Number: 35, Name: "content-length that lies", in: headed, alone: true,
		Sends: "content-length 10^12, a short part of the body, reset",
		Wants: "no memory for the claim, or 413; the next request is served",
		run:   falseLength,
	},
	{
		Number: 36, Name: "end never comes", in: request(exchange.FullDuplex(), exchange.Mode{Body: exchange.GRPC}),
		Sends: "headers, as many bytes as content-length says, no end",
		Wants: "a pick after a grace time, or 408; no endless wait",
		run:   endless,
	},
	{
		Number: 37, Name: "invalid JSON", in: awaited,
		Sends: "text that is no JSON; JSON cut short",
		Wants: "400 with an error object as application/json; a pick where the body may be a part",
		run: func(t *checkRun) error {
			for _, body := range []string{"Say hello.", t.prompt("Say hello.")[:30]} {
				if err := t.invalid(body); err != nil {
					return fmt.Errorf("%.20q: %w", body, err)
				}
			}
			return nil
		},
	},
	{
		Number: 38, Name: "odd JSON", in: bodied, alone: true,
		Sends: "an array, null, a string, a number, depth 10000, a key twice, NUL, half a surrogate, bytes that are " +
			"not UTF-8",
		Wants: "a pick, or 400; depth 100000 takes no more than 10 times as long as a flat body of that size",
		run: func(t *checkRun) error {
			for _, body := range t.oddities() {
				if err := t.pickOr(post(chatPath, body), 400); err != nil {
					return fmt.Errorf("%.20q: %w", body, err)
				}
			}
			return t.deepAsFlat()
		},
	},
	{
		Number: 39, Name: "model missing or unknown", in: headed,
		Sends: "no model, a number as model, a model that nobody has",
		Wants: "routed by load, or 400, 404 where the EPP documents it",
		run: func(t *checkRun) error {
			for _, body := range []string{`{"messages":[]}`, `{"model":7,"messages":[]}`,
				`{"model":"nobody-has-it","messages":[]}`} {
				if t.RoutesAll {
					if err := t.pick(post(chatPath, body)); err != nil {
						return fmt.Errorf("%s: %w", body, err)
					}
				} else if err := t.pickOr(post(chatPath, body), 400, 404); err != nil {
					return fmt.Errorf("%s: %w", body, err)
				}
			}
			return nil
		},
	},
	{
		Number: 40, Name: "compressed bodies", in: bodied,
		Sends: "gzip, br, zstd; gzip that is none; 30 KB of gzip that is 30 MB",
		Wants: "the bytes untouched; a refusal only of what cannot be read",
		run:   compressed,
	},
	{
		Number: 41, Name: "multipart form", in: bodied,
		Sends: "an audio upload as multipart/form-data", Wants: "a pick, the bytes untouched",
		run: func(t *checkRun) error {
			body := "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\n" + t.Model +
				"\r\n--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n" +
				"RIFF\x00\xff\xfe\r\n--b--\r\n"
			m := post("/v1/audio/transcriptions", body).without("content-type").with("content-type",
				"multipart/form-data; boundary=b")
			return t.pick(m)
		},
	},
	{
		Number: 42, Name: "Unicode", in: bodied,
		Sends: "an emoji prompt; a model name in another script",
		Wants: "byte for byte; 400 or 404 for the model at most",
		run: func(t *checkRun) error {
			if err := t.pick(post(chatPath, t.prompt("\U0001F6A6 \U0001F469\u200D\U0001F4BB \u0000"))); err != nil {
				return err
			}
			statuses := []int{400, 404}
			return t.pickOr(post(chatPath, `{"model":"モデル-\ud83d\ude80","messages":[]}`), statuses...)
		},
	},
}

// sized is a chat body of exactly n bytes; a single byte is a cut one.
func (t *checkRun) sized(n int) string {
	frame := t.prompt("")
	if n < len(frame) {
		return frame[:n]
	}
	at := strings.Index(frame, `"content":"`) + len(`"content":"`)
	return frame[:at] + strings.Repeat("a", n-len(frame)) + frame[at:]
}

// inChunks cuts a body into what one read of a proxy may bring: more than the 64 KiB that answers are held to.
func inChunks(body string) []string {
	const size = 100_000
	var out []string
	for len(body) > size {
		out, body = append(out, body[:size]), body[size:]
	}
	return append(out, body)
}

// sizes looks at memory too, where that can be seen: at what is counted as held, and at what is left when all is over.
func sizes(t *checkRun) error {
	const left = 12 << 20 // bytes by which memory may grow for other reasons: less than a large body
	before := t.heap()
	held := t.watchHeld()
	err := t.playSizes(held)
	held.stop()
	t.close()
	t.calls = nil
	if err != nil || t.Inside.Heap == nil {
		return err
	}
	var now int64
	if err := t.eventually("memory is given back",
		func() bool { now = t.heap(); return now <= before+left }); err != nil {
		return fmt.Errorf("%w: %d bytes more than before are in use", err, now-before)
	}
	return nil
}

func (t *checkRun) playSizes(held *heldPeak) error {
	for _, n := range []int{1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20, 20 << 20} {
		m := post(chatPath, inChunks(t.sized(n))...)
		statuses := []int{413}
		if n == 1 {
			statuses = []int{400}
		}
		if n < 20<<20 && n > 1 || t.BodyLimit >= 20<<20 && n > 1 {
			if err := t.pick(m); err != nil {
				return fmt.Errorf("%d bytes: %w", n, err)
			}
		} else if err := t.pickOr(m, statuses...); err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
		if err := t.heldFor(n, held); err != nil {
			return err
		}
	}
	if t.BodyLimit == 0 || !awaited(t.modes) {
		return nil
	}
	if err := t.refuse(post(chatPath, inChunks(t.sized(int(t.BodyLimit)+1))...), 413); err != nil {
		return fmt.Errorf("one byte more than the limit of %d: %w", t.BodyLimit, err)
	}
	return t.heldFor(int(t.BodyLimit), held)
}

func falseLength(t *checkRun) error {
	c, err := t.open(t.ctx)
	if err != nil {
		return err
	}
	m := t.chat().without("content-length").with("content-length", "1000000000000")
	if err := c.head(exchange.Request, m); err != nil {
		return err
	}
	if !c.refused() && !t.modes.Request.Buffers() && t.modes.Request.Body != exchange.None {
		if err := c.chunk(exchange.Request, m.chunks[0][:20], false); err != nil {
			return err
		}
	}
	if t.Inside.Held != nil && t.Inside.Held() > 1<<20 {
		return fmt.Errorf("%d bytes are held for 20 that came", t.Inside.Held())
	}
	if c.refused() {
		err = c.turnedAway(400, 413)
	} else {
		c.reset()
		err = c.clean()
	}
	return errors.Join(err, t.pick(t.chat()))
}

func endless(t *checkRun) error {
	t.impatient()
	c, err := t.open(t.ctx)
	if err != nil {
		return err
	}
	m := t.chat()
	if t.modes.Request.Body == exchange.GRPC { // the message came behind 5 bytes, which Envoy takes off
		m = m.without("content-length").with("content-length", strconv.Itoa(5+len(m.body())))
	}
	if err := c.head(exchange.Request, m); err != nil {
		return err
	}
	if err := c.chunk(exchange.Request, m.body(), false); err != nil {
		return err
	}
	if err := c.awaitFor(t.BodyWait, "pick or refusal", c.headersIn(exchange.Request)); err != nil {
		return err
	}
	if c.refused() {
		return c.turnedAway(408, 503, 504)
	}
	if done, err := c.sent(c.chunk(exchange.Request, "", true)); done {
		return err
	}
	return errors.Join(c.settle(exchange.Request), c.served())
}

// invalid plays a body that cannot be read. Only where the EPP cannot tell a part from the whole it is to be routed all
// the same.
func (t *checkRun) invalid(body string) error {
	m := post(chatPath, body)
	if t.modes.Request.Body == exchange.BufferedPartial {
		m.cut = len(body) - 1
		return t.pick(m)
	}
	c, err := t.start(m)
	if err != nil {
		return err
	}
	if err := c.turnedAway(400); err != nil {
		return err
	}
	return c.errorObject()
}

// deepAsFlat compares the best of some times, which a busy machine does not change much. Work that grows with the
// square of the depth is thousands of times slower.
func (t *checkRun) deepAsFlat() error {
	const depth = 100_000
	best := [2]time.Duration{time.Hour, time.Hour}
	for range 3 {
		for i, odd := range []string{strings.Repeat("[", depth) + strings.Repeat("]", depth),
			`"` + strings.Repeat("a", 2*depth-2) + `"`} {
			body := `{"model":` + quote(t.Model) + `,"messages":[],"x":` + odd + `}`
			began := time.Now()
			if err := t.pickOr(post(chatPath, body), 400); err != nil {
				return fmt.Errorf("%.60q: %w", body, err)
			}
			best[i] = min(best[i], time.Since(began))
		}
	}
	deep, flat := best[0].Round(time.Microsecond), best[1].Round(time.Microsecond)
	if t.figures = fmt.Sprintf("depth %d in %v, flat in %v", depth, deep, flat); deep > 10*flat+50*time.Millisecond {
		return errors.New(t.figures)
	}
	return nil
}

func (t *checkRun) oddities() []string {
	return []string{
		"[]", "null", `"x"`, "12", "1e999", strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000),
		`{"a":` + strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_001),
		`{"model":"a","model":"b","messages":[]}`, "{\"model\":\"a\x00b\"}", `{"model":"\u0000"}`, `{"model":"\ud800"}`,
		"{\"model\":\"\xff\xfe\"}", "{",
	}
}

func compressed(t *checkRun) error {
	plain := t.prompt("Say hello.")
	bodies := []struct {
		encoding, body string
		statuses       []int // with which it may be refused
	}{
		{"gzip", gzipped(plain), nil}, {"br", brotlied(plain), nil}, {"zstd", zstded(plain), nil},
		{"gzip", plain, []int{400, 415}}, {"gzip", bomb(), []int{400, 413, 415}}, {"x-unknown", plain, []int{415}},
	}
	for _, b := range bodies {
		m := post(chatPath, inChunks(b.body)...).with("content-encoding", b.encoding)
		c, err := t.start(m)
		if err != nil {
			return err
		}
		if b.statuses == nil {
			err = c.served()
		} else {
			err = c.servedOr(b.statuses...)
		}
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", b.encoding, len(b.body), err)
		}
	}
	return nil
}
