package vllm

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	putFaults = "PUT /sim/faults"
	short     = `{"model":"tiny","prompt":"Hello","max_tokens":4,"ignore_eos":true}`
	shortSSE  = `{"model":"tiny","prompt":"Hello","max_tokens":4,"ignore_eos":true,"stream":true}`
)

// set puts faults in force over HTTP.
func set(t *testing.T, s *Server, faults string) {
	t.Helper()
	if got := ask(t, s, putFaults, faults); got.status != 200 {
		t.Fatalf("faults %s: %d %s", faults, got.status, got.body)
	}
}

func TestFaultsAreSetAndShown(t *testing.T) {
	s := start(t, func(c *Config) { c.Faults = Faults{ErrorRate: 0.25, PageDelay: Span(time.Millisecond)} })
	shown := func() (f Faults) {
		t.Helper()
		got := ask(t, s, "GET /sim/faults", "")
		if err := json.Unmarshal([]byte(got.body), &f); err != nil || got.status != 200 {
			t.Fatalf("%d %s: %v", got.status, got.body, err)
		}
		return f
	}
	for _, step := range []struct {
		what, body string
		want       Faults
	}{
		{"GET /sim/faults", "", Faults{ErrorRate: 0.25, ErrorStatus: 500, PageDelay: Span(time.Millisecond)}},
		{putFaults, `{"draining":true,"page_delay":"1.5s"}`,
			Faults{ErrorStatus: 500, Draining: true, PageDelay: Span(1500 * time.Millisecond)}},
		// refused
		{putFaults, `{"error_rate":2}`, Faults{ErrorStatus: 500, Draining: true,
			PageDelay: Span(1500 * time.Millisecond)}},
		{"DELETE /sim/faults", "", Faults{ErrorStatus: 500}},
	} {
		ask(t, s, step.what, step.body)
		if diff := cmp.Diff(step.want, shown()); diff != "" {
			t.Errorf("after %s %s (-want +got):\n%s", step.what, step.body, diff)
		}
	}
}

func TestBadFaultsAreRefusedByName(t *testing.T) {
	s := start(t, nil)
	for body, want := range map[string]string{
		``:                              "the text is empty, want a JSON object",
		`{"error_rate":0.1`:             "the JSON object has no end",
		`{"error_rate":0.1} x`:          "something follows the JSON object",
		`[]`:                            "got array, want a JSON object",
		`{"error_rat":0.1}`:             `unknown field \"error_rat\"`,
		`{"error_rate":"much"}`:         "got string, want a number",
		`{"error_rate":1.5}`:            "error_rate: got 1.5, want 0 to 1",
		`{"error_status":404}`:          "error_status: got 404, want 500 to 599",
		`{"overload_rate":-1}`:          "overload_rate: got -1, want 0 to 1",
		`{"stall_tokens":-1}`:           "stall_tokens: got -1, want 0 or more",
		`{"page_delay":3}`:              "got number, want a time",
		`{"page_delay":"soon"}`:         `\"soon\" is no duration, want one such as 1.5s or 200ms`,
		`{"page_delay":"-1s"}`:          "page_delay: got -1s, want 0s or more",
		`{"page_bytes":99999999999}`:    "page_bytes: got 99999999999, want 0 to 67108864",
		`{"page_broken":"half"}`:        `page_broken: got \"half\", want \"cut\", \"garbled\", \"error\" or \"\"`,
		`{"stall_rate":9,"draining":1}`: "got number, want true or false",
	} {
		got := ask(t, s, putFaults, body)
		if got.status != 400 || !strings.Contains(got.body, want) ||
			!strings.HasPrefix(got.body, `{"error":{"message":"faults: `) {
			t.Errorf("%s: got %d %s, want 400 and %q", body, got.status, got.body, want)
		}
	}
	got := ask(t, s, putFaults, `{"error_rate":7,"stall_rate":-2}`)
	if !strings.Contains(got.body, "error_rate: got 7") || !strings.Contains(got.body, "stall_rate: got -2") {
		t.Errorf("two problems: got %s, want both named", got.body)
	}
	if got := ask(t, s, "POST /sim/restart?down=soon", ""); got.status != 400 ||
		!strings.Contains(got.body, "no duration") {
		t.Errorf("restart: got %d %s, want 400", got.status, got.body)
	}
	if got := ask(t, s, "POST /sim/faults", "{}"); got.status != 405 || got.header.Get("Allow") != "DELETE, GET, PUT" {
		t.Errorf("POST: got %d, allowed %q", got.status, got.header.Get("Allow"))
	}
}

// TestRatesAreDrawnFromTheSeed looks at 200 answers: about as many as the rate says fail, the same ones for one seed.
func TestRatesAreDrawnFromTheSeed(t *testing.T) {
	failing := func(seed uint64, faults string) (pattern string, n int) {
		s := start(t, func(c *Config) { c.Seed = seed })
		set(t, s, faults)
		for range 200 {
			if got := ask(t, s, "POST /v1/completions", `{"prompt":"a","max_tokens":1}`); got.status == 200 {
				pattern += "."
			} else {
				pattern, n = pattern+strconv.Itoa(got.status), n+1
			}
		}
		return pattern, n
	}
	one, n := failing(1, `{"error_rate":0.25}`)
	if again, _ := failing(1, `{"error_rate":0.25}`); again != one {
		t.Errorf("seed 1 gives\n%s, then\n%s", one, again)
	}
	if other, _ := failing(2, `{"error_rate":0.25}`); other == one {
		t.Error("seeds 1 and 2 give the same")
	}
	if n < 30 || n > 70 || strings.Count(one, "500") != n {
		t.Errorf("%d of 200 failed, want about 50, each with 500: %s", n, one)
	}
	both, _ := failing(1, `{"error_rate":0.25,"error_status":502,"overload_rate":0.2}`)
	if a := strings.ReplaceAll(strings.ReplaceAll(both, "502", "500"), "503", "500"); !strings.Contains(both, "503") ||
		len(a) <= len(one) {
		t.Errorf("one rate moves the draws of another: %s", both)
	}
}

func TestErrorsOnDemand(t *testing.T) {
	for name, c := range map[string]struct {
		faults, capture string
		status          int
		body            string // "" = the capture's
	}{
		"overload": {`{"overload_rate":1}`, "error_overload_503", 503, ""},
		"drain": {`{"draining":true}`, "", 500,
			`{"error":{"message":"cannot schedule new futures after shutdown","type":"InternalServerError","param":null,"code":500}}`},
		"engine dead": {`{"engine_dead":true}`, "", 500,
			`{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","param":null,"code":500}}`},
		"error": {`{"error_rate":1}`, "", 500,
			`{"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}`},
		"bad gateway": {`{"error_rate":1,"error_status":502}`, "", 502,
			`{"error":{"message":"status 502 on purpose","type":"Bad Gateway","param":null,"code":502}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil)
			set(t, s, c.faults)
			want := c.body
			if c.capture != "" {
				want = capture(t, c.capture).body
			}
			for _, body := range []string{short, shortSSE} {
				got := ask(t, s, "POST /v1/completions", body)
				if got.status != c.status || got.body != want || got.header.Get("Retry-After") != "" {
					t.Errorf("got %d %s, Retry-After %q; want %d %s", got.status, got.body,
						got.header.Get("Retry-After"), c.status, want)
				}
			}
			// What was wrong before the engine was asked is answered as ever.
			if got := ask(t, s, "POST /v1/completions", `{"model":"nope","prompt":"a"}`); got.status != 404 {
				t.Errorf("unknown model: got %d, want 404", got.status)
			}
			health := ask(t, s, "GET /health", "").status
			if wantHealth := map[bool]int{true: 503, false: 200}[name == "engine dead"]; health != wantHealth {
				t.Errorf("/health: got %d, want %d", health, wantHealth)
			}
			if got := ask(t, s, "GET /metrics", ""); got.status != 200 ||
				!strings.Contains(got.body, "vllm:num_requests_running") {
				t.Errorf("/metrics: got %d", got.status)
			}
			set(t, s, "{}")
			if got := ask(t, s, "POST /v1/completions", short); got.status != 200 {
				t.Errorf("without faults: got %d %s", got.status, got.body)
			}
		})
	}
}
