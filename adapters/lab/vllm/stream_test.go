package vllm

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// dataOf reads the next event.
func dataOf(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "data: "))
}

func TestOverloadInStreams(t *testing.T) {
	const want = `data: {"error": {"message": "The engine is currently busy and cannot accept new requests. Please try again later or on a ` +
		`different instance.", "type": "Service Unavailable", "param": null, "code": 503}}` + "\n\ndata: [DONE]\n\n"
	s := start(t, nil)
	set(t, s, `{"overload_rate":1,"overload_in_stream":true}`)
	if got := ask(t, s, "POST /v1/completions", shortSSE); got.status != 200 || got.body != want ||
		got.header.Get("Content-Type") != eventStream {
		t.Errorf("on demand: got %d %s", got.status, got.body)
	}
	if got := ask(t, s, "POST /v1/completions", short); got.status != 503 {
		t.Errorf("not streamed: got %d, want 503", got.status)
	}
	// Two pass the door together, and there is room for one.
	clock := newVirtualClock(time.Unix(1_800_000_000, 0))
	s = start(t, func(c *Config) { c.Clock, c.MaxQueued, c.FrontEndLatency, c.MaxModelLen = clock, 1, time.Second, 0 })
	bodies := make(chan string, 2)
	for range 2 {
		go func() { bodies <- ask(t, s, "POST /v1/completions", shortSSE).body }()
	}
	until(t, "both are in", func() bool {
		clock.mu.Lock()
		defer clock.mu.Unlock()
		return len(clock.alarms) == 2
	})
	clock.Advance(time.Second)
	if got := <-bodies; got != want {
		t.Errorf("the second got %s", got)
	}
	if got := ask(t, s, "POST /v1/completions", shortSSE); got.status != 503 {
		t.Errorf("a third, which finds the server full: got %d, want 503", got.status)
	}
	clock.Advance(time.Minute)
	if got := <-bodies; !strings.Contains(got, `"finish_reason":"length"`) {
		t.Errorf("the first got %s", got)
	}
}

func TestOpenStreamsEndWhileDraining(t *testing.T) {
	s := start(t, nil)
	stream, _ := open(t, s, `{"prompt":"Hello","max_tokens":4000,"ignore_eos":true,"stream":true}`)
	dataOf(t, stream)
	set(t, s, `{"draining":true}`)
	rest, err := io.ReadAll(stream)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") ||
		bytes.Count(rest, []byte("data: {")) != 3999 {
		t.Errorf("%d further events, ending in %q (%v); want 3999 and [DONE]", bytes.Count(rest, []byte("data: {")),
			rest[max(len(rest)-50, 0):], err)
	}
}

// slow is a server whose streams last until the test is over, and whose time a test moves.
func slow(t *testing.T) (*Server, *virtualClock) {
	t.Helper()
	clock := newVirtualClock(time.Unix(1_800_000_000, 0))
	return start(t, func(c *Config) {
		c.Clock, c.MaxModelLen, c.PrefillTokensPerSecond, c.DecodeTokensPerSecond = clock, 0, 1000, 10
	}), clock
}

func TestEngineDiesInMidStream(t *testing.T) {
	s, clock := slow(t)
	stream, _ := open(t, s, endless)
	whole := make(chan reply, 1)
	go func() { whole <- ask(t, s, "POST /v1/completions", `{"prompt":"Hello","max_tokens":1000}`) }()
	until(t, "two run", func() bool { return s.Stats().Running+s.Stats().Waiting == 2 })
	clock.Advance(time.Second)
	dataOf(t, stream)
	set(t, s, `{"engine_dead":true}`)
	rest, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	events := strings.Split(strings.TrimSpace(string(rest)), "\n\n")
	want := strings.Split(capture(t, "stream_engine_killed").body, "\n\n")
	if diff := cmp.Diff(want[len(want)-2:], events[max(len(events)-2, 0):]); diff != "" {
		t.Errorf("the last two events (-want +got):\n%s", diff)
	}
	if got := <-whole; got.status != 500 || !strings.Contains(got.body, "EngineCore encountered an issue") {
		t.Errorf("not streamed: got %d %s", got.status, got.body)
	}
	if st := s.Stats(); st.Running != 0 || st.KVUsedRatio != 0 {
		t.Errorf("the dead engine holds %+v", st)
	}
}

func TestEngineDiesAfterTokens(t *testing.T) {
	s := start(t, func(c *Config) { c.Faults = Faults{EngineDiesAfterTokens: 50} })
	got := ask(t, s, "POST /v1/completions", `{"prompt":"Hello","max_tokens":4000,"ignore_eos":true,"stream":true}`)
	if n := strings.Count(got.body, `"text":`); !strings.Contains(got.body, `data: {"error": `) || n >= 4000 {
		t.Errorf("%d tokens, ending in %q; want about 50 and an error", n, got.body[max(len(got.body)-80, 0):])
	}
	if f := s.Faults(); !f.EngineDead || f.EngineDiesAfterTokens != 0 {
		t.Errorf("faults after that: %+v", f)
	}
}

// TestStalledHoldsBackOpenStreams: of what a stream has to show, all but what was on its way waits until the fault is
// taken away.
func TestStalledHoldsBackOpenStreams(t *testing.T) {
	const before, during = 10, 600 // tokens
	s, clock := slow(t)
	stream, _ := open(t, s, endless)
	clock.Advance(before * time.Second / 10)
	first := dataOf(t, stream)
	set(t, s, `{"stalled":true}`)
	events := make(chan string, before+during)
	go func() { // until the stream is closed
		for {
			line, err := stream.ReadString('\n')
			if err != nil {
				return
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				events <- data
			}
		}
	}()
	clock.Advance(during * time.Second / 10)
	<-time.After(50 * time.Millisecond) // nothing can be waited for
	if n := len(events); n >= before {
		t.Errorf("while stalled came %d events", n)
	}
	set(t, s, "{}")
	until(t, "what was held back comes", func() bool { return len(events) > during/2 })
	if got := <-events; shape(t, got) != shape(t, first) {
		t.Errorf("afterwards came %s", got)
	}
}

func TestStalledAnswersLastUntilTheClientLeaves(t *testing.T) {
	s := start(t, nil)
	set(t, s, `{"stall_rate":1,"stall_tokens":2}`)
	stream, cancel := open(t, s, shortSSE)
	dataOf(t, stream)
	dataOf(t, stream)
	more := make(chan error, 1)
	go func() { _, err := stream.ReadByte(); more <- err }()
	select {
	case err := <-more:
		t.Errorf("after two tokens: %v, want neither data nor close", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	if err := <-more; err == nil {
		t.Error("a byte after all")
	}
	client := &http.Client{Timeout: 50 * time.Millisecond}
	defer client.CloseIdleConnections()
	resp, err := client.Post(s.URL()+"/v1/completions", "application/json", strings.NewReader(short))
	if err == nil {
		resp.Body.Close()
	}
	if e := interface{ Timeout() bool }(nil); !errors.As(err, &e) || !e.Timeout() {
		t.Errorf("not streamed: got %v, %v; want the client's timeout", resp, err)
	}
	set(t, s, "{}")
	if got := ask(t, s, "POST /v1/completions", short); got.status != 200 {
		t.Errorf("without faults: got %d %s", got.status, got.body)
	}
}
