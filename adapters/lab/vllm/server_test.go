package vllm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// URL is http://, then Addr.
func (s *Server) URL() string { return "http://" + s.addr }

// until waits for a condition that other goroutines bring about.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("not within 10 s: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// open starts a stream and returns its reader; the test's end, or cancel, closes it.
func open(t *testing.T, s *Server, body string) (*bufio.Reader, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); resp.Body.Close() })
	return bufio.NewReader(resp.Body), cancel
}

const endless = `{"prompt":"Tell me everything","max_tokens":1000000,"ignore_eos":true,"stream":true}`

func TestVirtualClockDrivesTheServer(t *testing.T) {
	clock := newVirtualClock(time.Unix(1_800_000_000, 0))
	s := start(t, func(c *Config) {
		c.Clock, c.MaxModelLen, c.PrefillTokensPerSecond, c.DecodeTokensPerSecond = clock, 0, 10, 10
	})
	stream, cancel := open(t, s, endless) // 5 tokens: half a second
	clock.Advance(499 * time.Millisecond)
	if got := s.Stats(); got.Running != 1 || got.AnswerTokens != 0 || got.KVUsedRatio == 0 {
		t.Errorf("before the first token: %+v", got)
	}
	clock.Advance(time.Millisecond)
	if err := readEvent(stream); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Second)
	if got := s.Stats(); got.AnswerTokens != 11 {
		t.Errorf("after 1.5 s: %d tokens, want 11", got.AnswerTokens)
	}
	cancel()
	until(t, "the client's leaving frees all", func() bool {
		st := s.Stats()
		return st.Running == 0 && st.KVUsedRatio == 0 && st.Aborted == 1
	})
}

func TestSameSeedSameText(t *testing.T) {
	text := func(seed uint64, extra string) string {
		s := start(t, func(c *Config) { c.Seed = seed })
		got := ask(t, s, "POST /v1/completions", `{"prompt":"Once upon a time"`+extra+`}`)
		var a struct {
			ID      string
			Choices []struct{ Text string }
		}
		if err := json.Unmarshal([]byte(got.body), &a); err != nil || len(a.Choices) == 0 || a.Choices[0].Text == "" {
			t.Fatalf("%s: %v", got.body, err)
		}
		return fmt.Sprint(a)
	}
	if one, again := text(1, ""), text(1, ""); one != again {
		t.Errorf("seed 1 gives %q, then %q", one, again)
	}
	if text(1, "") == text(2, "") {
		t.Error("seeds 1 and 2 give the same")
	}
	if text(1, "") == text(1, `,"seed":7`) {
		t.Error("a request's seed is without effect")
	}
}

func TestNextTurnOfAChatIsCached(t *testing.T) {
	s := start(t, func(c *Config) { c.PromptTokensDetails = true })
	type turn struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   struct {
			PromptTokens int `json:"prompt_tokens"`
			Details      struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	say := func(messages string) (a turn) {
		got := ask(t, s, "POST /v1/chat/completions", `{"max_tokens":100,"min_tokens":100,"messages":[`+messages+`]}`)
		if err := json.Unmarshal([]byte(got.body), &a); err != nil || len(a.Choices) != 1 {
			t.Fatalf("%s: %v", got.body, err)
		}
		return a
	}
	first := `{"role":"user","content":[{"type":"text","text":"Tell me of the sea"}]}`
	one := say(first)
	two := say(first + `,{"role":"assistant","content":"` + one.Choices[0].Message.Content +
		`"},{"role":"user","content":"More"}`)
	if one.Usage.Details.Cached != 0 || two.Usage.Details.Cached < 96 {
		t.Errorf("cached tokens: got %d, then %d of %d; want none, then the first turn", one.Usage.Details.Cached,
			two.Usage.Details.Cached, two.Usage.PromptTokens)
	}
	if st := s.Stats(); int(st.HitTokens) != two.Usage.Details.Cached || st.Requests != 2 {
		t.Errorf("stats: %+v", st)
	}
}

func TestSeveralPromptsAndChoices(t *testing.T) {
	s := start(t, nil)
	for prompt, want := range map[string]int{`"a"`: 2, `["a","b"]`: 4, `[[1,2],[3]]`: 4, `[1,2]`: 2} {
		got := ask(t, s, "POST /v1/completions", `{"n":2,"max_tokens":3,"prompt":`+prompt+`}`)
		var a struct {
			Choices []struct {
				Index int
				Text  string
			}
			Usage struct {
				Completion int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(got.body), &a); err != nil || len(a.Choices) != want ||
			a.Usage.Completion != 3*want {
			t.Errorf("%s: got %s (%v), want %d choices of 3 tokens", prompt, got.body, err, want)
		}
	}
}

func TestBadInputIsAnswered(t *testing.T) {
	s := start(t, nil)
	for _, body := range []string{
		``, `[]`, `null`, `{"prompt":`, `{"prompt":7}`, `{"prompt":[]}`, `{"prompt":["a",1]}`, `{"prompt":"a","n":0}`,
		`{"prompt":"a","n":1000}`,
		`{"prompt":"a","max_tokens":0}`, `{"prompt":"a","max_tokens":1.5}`, `{"prompt":"a","stream":"maybe"}`,
		`{"prompt":"a","stream_options":3}`,
		`{"prompt":[-1]}`, `{"prompt":"a","max_tokens":4097}`,
	} {
		if got := ask(t, s, "POST /v1/completions", body); got.status != 400 ||
			!strings.HasPrefix(got.body, `{"error":{"message":`) {
			t.Errorf("%s: got %d %s, want a 400", body, got.status, got.body)
		}
	}
	for _, messages := range []string{`[]`, `3`, `[3]`, `[{"role":"user","content":3}]`,
		`[{"role":"user","content":[3]}]`} {
		if got := ask(t, s, "POST /v1/chat/completions", `{"messages":`+messages+`}`); got.status != 400 {
			t.Errorf("%s: got %d %s, want a 400", messages, got.status, got.body)
		}
	}
	if got := s.Stats(); got.Requests != 0 || got.Running != 0 {
		t.Errorf("bad requests reached the engine: %+v", got)
	}
}

func TestByteOrderMarkIsSteppedOver(t *testing.T) {
	s := start(t, nil)
	if got := ask(t, s, "POST /v1/completions", "\ufeff"+`{"prompt":"a","max_tokens":2}`); got.status != 200 {
		t.Errorf("got %d %s, want 200", got.status, got.body)
	}
}

func TestLargeBodies(t *testing.T) {
	s := start(t, func(c *Config) { c.MaxModelLen, c.PrefillTokensPerSecond = 0, 1e9 })
	text := strings.Repeat("0123456789abcdef", 8<<20/16)
	if got := ask(t, s, "POST /v1/completions", `{"max_tokens":2,"prompt":"`+text+`"}`); got.status != 200 {
		t.Errorf("8 MiB: got %d %s, want 200", got.status, got.body)
	}
	if got := ask(t, s, "POST /v1/completions", `{"prompt":"`+strings.Repeat(text, 8)+`"}`); got.status != 413 {
		t.Errorf("over 64 MiB: got %d %s, want 413", got.status, got.body)
	}
}

func TestFullQueueIsAnswered503(t *testing.T) {
	s := start(t, func(c *Config) { c.MaxModelLen, c.MaxRunning, c.MaxQueued, c.DecodeTokensPerSecond = 0, 1, 2, 1 })
	open(t, s, endless)
	until(t, "one runs", func() bool { return s.Stats().Running == 1 })
	open(t, s, endless)
	until(t, "one waits", func() bool { return s.Stats().Waiting == 1 })
	got, want := ask(t, s, "POST /v1/completions", endless), capture(t, "error_overload_503")
	if got.status != want.status || got.body != want.body || s.Stats().Rejected != 1 {
		t.Errorf("got %d %s, want %d %s", got.status, got.body, want.status, want.body)
	}
	if page := ask(t, s, "GET /metrics", "").body; !strings.Contains(page,
		`vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.0`) {
		t.Error("the metrics page does not show the waiting request")
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestStopLetsStreamsEndAndKillCutsThem(t *testing.T) {
	long := strings.Replace(endless, "1000000", "300", 1)
	s := start(t, func(c *Config) { c.DecodeTokensPerSecond = 1000 })
	stream, _ := open(t, s, long)
	if err := s.Stop(context.Background()); err != nil {
		t.Errorf("stop: %v", err)
	}
	b, err := io.ReadAll(stream)
	if err != nil || strings.Count(string(b), "data: {") != 300 || !strings.HasSuffix(string(b), "data: [DONE]\n\n") {
		t.Errorf("a stream at Stop: %d events, %v", strings.Count(string(b), "data: {"), err)
	}
	if r, err := http.Get(s.URL() + "/health"); err == nil {
		_ = r.Body.Close()
		t.Error("still listening after Stop")
	}

	k := start(t, func(c *Config) { c.MaxModelLen = 0 })
	stream, _ = open(t, k, endless)
	if err := readEvent(stream); err != nil {
		t.Fatal(err)
	}
	k.Kill()
	if _, err := io.ReadAll(stream); err == nil {
		t.Error("a stream at Kill ended as if it were complete")
	}
	if got := k.Stats(); got.Running != 0 || got.KVUsedRatio != 0 {
		t.Errorf("after Kill: %+v", got)
	}
}

func TestStopGivesUpWithItsContext(t *testing.T) {
	s, err := Start(Config{})
	if err != nil {
		t.Fatal(err)
	}
	open(t, s, endless)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want deadline exceeded", err)
	}
}

func TestManyStreamsOnManyServers(t *testing.T) {
	var servers []*Server
	for range 4 {
		servers = append(servers, start(t, func(c *Config) { c.Adapters = []string{"a", "b"} }))
	}
	var wg sync.WaitGroup
	for i := range 128 {
		wg.Go(func() {
			model := []string{"tiny", "a", "b"}[i%3]
			got := ask(t, servers[i%4], "POST /v1/completions", fmt.Sprintf(
				`{"model":"%s","prompt":"request %d","max_tokens":40,"ignore_eos":true,"stream":true}`, model, i))
			if n := strings.Count(got.body, "data: {"); n != 40 {
				t.Errorf("%d events, want 40", n)
			}
		})
	}
	wg.Wait()
	for _, s := range servers {
		if got := s.Stats(); got.Ended != 32 || got.AnswerTokens != 32*40 || got.Running != 0 {
			t.Errorf("got %+v, want 32 answers of 40 tokens", got)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// alarmCount counts how often the server asks to be woken.
type alarmCount struct {
	*virtualClock
	alarms atomic.Int64
}

func (c *alarmCount) AfterFunc(d time.Duration, f func()) func() {
	c.alarms.Add(1)
	return c.virtualClock.AfterFunc(d, f)
}

func TestTokensAreDeliveredInTicks(t *testing.T) {
	clock := &alarmCount{virtualClock: newVirtualClock(time.Unix(1_800_000_000, 0))}
	s := start(t, func(c *Config) {
		c.Clock, c.MaxModelLen, c.DecodeTokensPerSecond, c.Tick = clock, 0, 1000, 100*time.Millisecond
	})
	_, cancel := open(t, s, endless)
	clock.Advance(time.Second)
	if got := clock.alarms.Load(); got < 10 || got > 13 {
		t.Errorf("1000 tokens in 1 s: woken %d times, want once in 100 ms", got)
	}
	if got := s.Stats().AnswerTokens; got < 998 || got > 1001 {
		t.Errorf("ticks change the speed: %d tokens in 1 s, want 1000", got)
	}
	cancel()
	until(t, "the client's leaving", func() bool { return s.Stats().Aborted == 1 })
	before := clock.alarms.Load()
	clock.Advance(time.Hour)
	if got := clock.alarms.Load() - before; got > 1 {
		t.Errorf("woken %d times in an hour without work", got)
	}
}
