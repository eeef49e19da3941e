package vllm

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// answered returns the answer to a request that waits meanwhile.
func answered(t *testing.T, s *Server, what, body string) <-chan reply {
	t.Helper()
	r, got := request(t, s, what, body), make(chan reply, 1)
	go func() { got <- send(t, http.DefaultClient, r) }()
	return got
}

func TestSleepAnswersAreThoseOfVLLM(t *testing.T) {
	s := start(t, nil)
	for _, step := range []struct{ capture, what string }{
		{"sleep", "POST /sleep?level=1"},
		{"sleep_bad_level", "POST /sleep?level=7"},
		{"is_sleeping", "GET /is_sleeping"},
		{"wake_up_weights", "POST /wake_up?tags=weights"},
		{"wake_up", "POST /wake_up"},
	} {
		want, got := capture(t, step.capture), ask(t, s, step.what, "")
		if got.status != want.status || got.body != want.body {
			t.Errorf("%s: got %d %s, want %d %s", step.what, got.status, got.body, want.status, want.body)
		}
	}
}

// A server that sleeps is healthy and answers no request until it wakes. Then the prefix cache is empty, but not after
// level 0.
func TestSleepEmptiesTheCache(t *testing.T) {
	for level, cached := range map[string]string{"0": `"cached_tokens":32`, "1": `"cached_tokens":0`,
		"2": `"cached_tokens":0`} {
		s := start(t, func(c *Config) { c.PromptTokensDetails = true })
		long := `{"model":"tiny","prompt":"` + strings.Repeat("word", 40) + `","max_tokens":2}`
		ask(t, s, "POST /v1/completions", long)
		ask(t, s, "POST /sleep?level="+level, "")
		got := answered(t, s, "POST /v1/completions", long)
		state := map[string]string{"0": "none", "1": `sleep_state="weights_offloaded"} 1.0`,
			"2": `sleep_state="discard_all"} 1.0`}[level]
		page := ask(t, s, "GET /metrics", "").body
		if !strings.Contains(page, `sleep_state="awake"} 0.0`) || state != "none" && !strings.Contains(page, state) ||
			ask(t, s, "GET /health", "").status != 200 {
			t.Errorf("level %s: the page does not say that it sleeps, or it is not healthy", level)
		}
		select {
		case r := <-got:
			t.Fatalf("level %s: answered while it sleeps: %d %s", level, r.status, r.body)
		case <-time.After(20 * time.Millisecond):
		}
		ask(t, s, "POST /wake_up", "")
		if r := <-got; r.status != 200 || !strings.Contains(r.body, cached) {
			t.Errorf("level %s: %d %s, want %s", level, r.status, r.body, cached)
		}
		if !strings.Contains(ask(t, s, "GET /metrics", "").body, `sleep_state="awake"} 1.0`) {
			t.Errorf("level %s: the page does not say that it is awake", level)
		}
	}
}

// Sleep ends open answers as a real one did: with 200, and "abort" as the reason, in an event of its own.
func TestSleepEndsAnswers(t *testing.T) {
	s := start(t, func(c *Config) { c.DecodeTokensPerSecond = 100 })
	whole := answered(t, s, "POST /v1/completions", `{"model":"tiny","prompt":"Hi","max_tokens":3000,"ignore_eos":true}`)
	stream := answered(t, s, "POST /v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"Hi"}],`+
		`"max_tokens":3000,"ignore_eos":true,"stream":true}`)
	until(t, "both run", func() bool { return s.Stats().Running == 2 })
	began := s.Stats().AnswerTokens
	until(t, "both have tokens", func() bool { return s.Stats().AnswerTokens >= began+4 })
	s.Sleep(1)
	if r := <-whole; r.status != 200 || !strings.Contains(r.body, `"finish_reason":"abort"`) {
		t.Errorf("a whole answer: %d %s", r.status, r.body)
	}
	events := strings.Split((<-stream).body, "\n\n")
	if last := events[max(len(events)-3, 0)]; len(events) < 4 ||
		!strings.Contains(last, `"delta":{"content":""},"logprobs":null,"finish_reason":"abort","stop_reason":null`) {
		t.Errorf("a stream ends with %q", events[max(len(events)-3, 0):])
	}
	if running := s.Stats().Running; running != 0 || !s.Wake() {
		t.Errorf("%d sequences run, and it does not wake", running)
	}
}

// A chat template that drifts leaves nothing of a prompt in the prefix cache.
func TestRenderDrift(t *testing.T) {
	s := start(t, func(c *Config) { c.PromptTokensDetails = true })
	cached := func() bool {
		chat := `{"model":"tiny","max_tokens":2,"messages":[{"role":"user","content":"` + strings.Repeat("word", 40) + `"}]}`
		return !strings.Contains(ask(t, s, "POST /v1/chat/completions", chat).body, `"cached_tokens":0`)
	}
	for i, step := range []struct {
		faults string
		want   bool
	}{
		{`{}`, false}, {`{}`, true}, {`{"render_drift":true}`, false}, {`{"render_drift":true}`, false}, {`{}`, true},
	} {
		set(t, s, step.faults)
		if got := cached(); got != step.want {
			t.Errorf("answer %d, with %s: cached %t, want %t", i, step.faults, got, step.want)
		}
	}
}
