package vllm

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// value reads a series from the metrics page.
func value(t *testing.T, s *Server, series string) (v float64) {
	t.Helper()
	for line := range strings.SplitSeq(ask(t, s, "GET /metrics", "").body, "\n") {
		if text, ok := strings.CutPrefix(line, series+" "); ok {
			if _, err := fmt.Sscan(text, &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no series %s", series)
	return 0
}

func TestRestartIsAFreshProcess(t *testing.T) {
	s, clock := slow(t)
	const counter, started = `vllm:generation_tokens_total{engine="0",model_name="tiny"}`, "process_start_time_seconds"
	stream, _ := open(t, s, endless)
	whole := make(chan error, 1)
	go func() {
		resp, err := http.Post(s.URL()+"/v1/completions", "application/json",
			strings.NewReader(`{"prompt":"Hi","max_tokens":1000}`))
		if err == nil {
			resp.Body.Close()
		}
		whole <- err
	}()
	until(t, "two run", func() bool { return s.Stats().Running+s.Stats().Waiting == 2 })
	clock.Advance(10 * time.Second)
	before, began := value(t, s, counter), value(t, s, started)
	set(t, s, `{"draining":true,"stalled":true,"stall_rate":0,"page_bytes":5}`)
	if got := ask(t, s, "POST /sim/restart?down=30s", ""); got.status != 202 || got.body != `{"down":"30s"}` {
		t.Fatalf("restart: %d %s", got.status, got.body)
	}
	if rest, err := io.ReadAll(stream); err == nil {
		t.Errorf("the stream ended whole, in %q", rest[max(len(rest)-50, 0):])
	}
	if err := <-whole; err == nil {
		t.Error("the request that was running got an answer")
	}
	until(t, "it is down", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.http == nil
	})
	if resp, err := http.Get(s.URL() + "/health"); err == nil {
		resp.Body.Close()
		t.Errorf("while down: /health answers %d", resp.StatusCode)
	}
	clock.Advance(30 * time.Second)
	if got := value(t, s, counter); before == 0 || got != 0 {
		t.Errorf("tokens generated: %v, after the restart %v, want 0", before, got)
	}
	if got := value(t, s, started); got != began+40 {
		t.Errorf("started at %v, then at %v, want 40 s later", began, got)
	}
	if got := s.Stats(); got != (Stats{}) {
		t.Errorf("after the restart: %+v, want nothing", got)
	}
	if f := s.Faults(); f.Draining || f.Stalled || f.PageBytes != 5 {
		t.Errorf("faults after the restart: %+v, want those of the process gone", f)
	}
}

func TestRestartEmptiesThePrefixCacheAndTheAdapters(t *testing.T) {
	s := start(t, func(c *Config) { c.PromptTokensDetails, c.Adapters = true, []string{"a"} })
	cached := func() string {
		body := ask(t, s, "POST /v1/completions",
			fmt.Sprintf(`{"prompt":%q,"max_tokens":1}`, strings.Repeat("word", 40))).body
		_, text, _ := strings.Cut(body, `"cached_tokens":`)
		text, _, _ = strings.Cut(text, ",")
		return text
	}
	cached()
	if got := cached(); got == "0" {
		t.Error("the second of two equal prompts finds nothing")
	}
	ask(t, s, "POST /v1/load_lora_adapter", `{"lora_name":"b","lora_path":"b"}`)
	s.Restart(0)
	http.DefaultClient.CloseIdleConnections()
	if got := cached(); got != "0" {
		t.Errorf("after a restart %s tokens are cached", got)
	}
	if list := ask(t, s, "GET /v1/models", "").body; !strings.Contains(list, `"id":"a"`) ||
		strings.Contains(list, `"id":"b"`) {
		t.Errorf("models after a restart: %s", list)
	}
}

func TestRestartEvery(t *testing.T) {
	s, clock := slow(t)
	began := value(t, s, "process_start_time_seconds")
	set(t, s, `{"restart_every":"60s","restart_down":"5s"}`)
	clock.Advance(3 * 65 * time.Second)
	if got := value(t, s, "process_start_time_seconds"); got != began+3*65 {
		t.Errorf("started %v s later, want %v", got-began, 3*65)
	}
	set(t, s, "{}")
	clock.Advance(time.Hour)
	if got := value(t, s, "process_start_time_seconds"); got != began+3*65 {
		t.Errorf("without the fault it restarted %v s later", got-began)
	}
}

func TestStopAndKillDuringARestart(t *testing.T) {
	for name, stop := range map[string]func(*Server){
		"stop": func(s *Server) {
			if err := s.Stop(t.Context()); err != nil {
				t.Errorf("stop: %v", err)
			}
		},
		"kill": (*Server).Kill,
	} {
		s, clock := slow(t)
		s.Restart(time.Second)
		stop(s)
		clock.Advance(time.Minute)
		s.Restart(0)
		if resp, err := http.Get(s.URL() + "/health"); err == nil {
			resp.Body.Close()
			t.Errorf("%s: the server came back", name)
		}
	}
}

func TestMetricsPageFaults(t *testing.T) {
	s := start(t, nil)
	whole := ask(t, s, "GET /metrics", "").body
	set(t, s, `{"page_bytes":3000000}`)
	huge := ask(t, s, "GET /metrics", "").body
	if len(huge) < 3_000_000 || len(huge) > 3_000_100 || !strings.HasPrefix(huge, whole[:200]) ||
		!strings.HasSuffix(huge, "} 0.0\n") {
		t.Errorf("huge page: %d bytes, ending in %q", len(huge), huge[len(huge)-40:])
	}
	set(t, s, `{"page_broken":"garbled"}`)
	if got := ask(t, s, "GET /metrics", ""); got.status != 200 || strings.Contains(got.body, "vllm:") ||
		got.body == "" {
		t.Errorf("garbled page: %d %.100q", got.status, got.body)
	}
	set(t, s, `{"page_broken":"error"}`)
	if got := ask(t, s, "GET /metrics", ""); got.status != 500 {
		t.Errorf("page with an error: %d", got.status)
	}
	set(t, s, `{"page_broken":"cut"}`)
	resp, err := http.Get(s.URL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	half, err := io.ReadAll(resp.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || len(half) != int(resp.ContentLength)/2 {
		t.Errorf("cut page: %d of %d bytes, %v", len(half), resp.ContentLength, err)
	}
}

func TestSlowMetricsPage(t *testing.T) {
	s, clock := slow(t)
	set(t, s, `{"page_delay":"3s"}`)
	page := make(chan reply, 1)
	go func() { page <- ask(t, s, "GET /metrics", "") }()
	until(t, "the page waits", func() bool {
		clock.mu.Lock()
		defer clock.mu.Unlock()
		return len(clock.alarms) == 1
	})
	clock.Advance(3*time.Second - 1)
	select {
	case <-page:
		t.Error("the page came too early")
	default:
	}
	clock.Advance(1)
	if got := <-page; got.status != 200 || !strings.Contains(got.body, "vllm:") {
		t.Errorf("got %d", got.status)
	}
}

// TestAnswerOfBeforeLeavesTheNewAlone ends an answer of a process that is gone after its number was given out again.
func TestAnswerOfBeforeLeavesTheNewAlone(t *testing.T) {
	s, _ := slow(t)
	open(t, s, endless)
	until(t, "one runs", func() bool { return s.Stats().Running == 1 })
	s.abandon(&answer{choices: []choice{{id: 1}}})
	if got := s.Stats(); got.Running != 1 || got.Aborted != 0 {
		t.Errorf("the new answer was ended: %+v", got)
	}
}
