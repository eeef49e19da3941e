package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestDemoLoadFollowsItsSeed(t *testing.T) {
	const length = 20 * time.Second
	load := newLoad(7, length)
	if diff := cmp.Diff(load, newLoad(7, length)); diff != "" {
		t.Errorf("two loads of seed 7 differ:\n%s", diff)
	}
	if cmp.Equal(load, newLoad(8, length)) {
		t.Error("seeds 7 and 8 give the same load")
	}
	systems, adapters := map[string]int{}, map[string]map[string]bool{}
	for i, c := range load {
		if c.Start < 0 || c.Start >= length || i > 0 && c.Start < load[i-1].Start {
			t.Errorf("conversation %d begins at %s, after %s, in a load of %s", i, c.Start, load[max(i-1, 0)].Start, length)
		}
		if len(c.Turns) == 0 || c.Turns[0].Think != 0 {
			t.Errorf("conversation %d: turns %+v, want some, the first without delay", i, c.Turns)
		}
		systems[c.System]++
		if c.Model != demoModel {
			if adapters[c.Model] == nil {
				adapters[c.Model] = map[string]bool{}
			}
			adapters[c.Model][c.System] = true
		}
	}
	if len(systems) > demoGroups || len(load) < 4*len(systems) {
		t.Errorf("%d conversations with %d system prompts, want %d prompts at most and each used often", len(load), len(systems), demoGroups)
	}
	for _, a := range demoAdapters {
		if len(adapters[a]) != 1 {
			t.Errorf("adapter %s is used with %d system prompts, want 1", a, len(adapters[a]))
		}
	}
	if n := float64(len(load)) / length.Seconds(); math.Abs(n-demoConversations) > demoConversations/2 {
		t.Errorf("%.1f conversations a second, want about %v", n, demoConversations)
	}
	if got := newLoad(7, time.Nanosecond); len(got) != 1 {
		t.Errorf("a load of 1 ns: got %d conversations, want 1", len(got))
	}
}

func TestReadAnswer(t *testing.T) {
	const role = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
	const word = "data: {\"choices\":[{\"delta\":{\"content\":\" ha\"}}]}\n\n"
	for name, c := range map[string]struct {
		body, text string
		first, ok  bool
	}{
		"two words":        {role + word + word + "data: [DONE]\n\n", " ha ha", true, true},
		"no word":          {role + "data: [DONE]\n\n", "", false, true},
		"cut":              {role + word, "", true, false},
		"cut before words": {role, "", false, false},
		"empty":            {"", "", false, false},
		"broken event":     {"data: {\n\n", "", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			text, first, err := readAnswer(strings.NewReader(c.body))
			if text != c.text || first.IsZero() == c.first || (err == nil) != c.ok {
				t.Errorf("%q: got %q, first token seen %v, error %v; want %q, %v, ok %v", c.body, text, !first.IsZero(), err, c.text, c.first, c.ok)
			}
		})
	}
}

func TestPlayerCountsWhatFails(t *testing.T) {
	defer goleak.VerifyNone(t)
	asked := make(chan struct{}, 1)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(demoServersHeader) != "" {
			http.Error(w, "no", http.StatusNotFound)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // a server notices that its client is gone only when the body is read
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer front.Close()
	two := []turn{{Text: "a", AnswerTokens: 1}, {Text: "b", AnswerTokens: 1}}
	p := newPlayer(front.URL, "127.0.0.1:1")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		for failed := 0; failed == 0 && sleep(ctx, time.Millisecond); {
			p.mu.Lock()
			failed = p.failed
			p.mu.Unlock()
		}
		cancel()
	}()
	p.play(ctx, []conversation{{Model: demoAdapters[0], Turns: two}, {Model: demoModel, Turns: two}})
	if p.sent != 2 || p.done != 0 || p.failed != 1 || p.cut != 1 || len(p.ttft) != 1 {
		t.Fatalf("sent %d, done %d, failed %d, cut %d, times %v; want 2, 0, 1, 1 and one time", p.sent, p.done, p.failed, p.cut, p.ttft)
	}
	if !strings.Contains(p.problem.Error(), "404") {
		t.Errorf("first failure: got %v, want status 404", p.problem)
	}
}

func TestDescribeTTFT(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, ms(100-i))
	}
	for name, c := range map[string]struct {
		all            []time.Duration
		mean, p50, p95 time.Duration
	}{
		"none":    {nil, 0, 0, 0},
		"one":     {[]time.Duration{ms(3)}, ms(3), ms(3), ms(3)},
		"two":     {[]time.Duration{ms(3), ms(1)}, ms(2), ms(1), ms(3)},
		"hundred": {hundred, 50500 * time.Microsecond, ms(50), ms(95)},
	} {
		var s demoState
		s.describeTTFT(c.all)
		if s.TTFTMean != c.mean || s.TTFTP50 != c.p50 || s.TTFTP95 != c.p95 {
			t.Errorf("%s: got %s, %s, %s, want %s, %s, %s", name, s.TTFTMean, s.TTFTP50, s.TTFTP95, c.mean, c.p50, c.p95)
		}
	}
}

func TestVerdict(t *testing.T) {
	state := func(mean time.Duration, failed int) *demoState {
		return &demoState{Title: "x", TTFTMean: mean, Failed: failed}
	}
	for name, c := range map[string]struct {
		standard, random *demoState
		want             error
	}{
		"half":                     {state(50, 0), state(100, 0), nil},
		"just enough":              {state(80, 0), state(100, 0), nil},
		"not enough":               {state(81, 0), state(100, 0), exitError(1)},
		"worse":                    {state(120, 0), state(100, 0), exitError(1)},
		"nothing was measured":     {state(0, 0), state(0, 0), exitError(1)},
		"better, but one failed":   {state(50, 1), state(100, 0), exitError(1)},
		"better, and random fails": {state(50, 0), state(100, 3), nil},
	} {
		if got := verdict(io.Discard, c.standard, c.random); !errors.Is(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestDisplayDrawsOverItself(t *testing.T) {
	s := &demoState{Title: "default", Planned: 9, Sent: 8, Done: 5, Failed: 1, Endpoints: []endpointState{
		{Name: "one", Address: "127.0.0.1:1", Kind: "1 tok/s", Picks: 4, Waiting: 2, KVUsedRatio: 0.5, Queried: 10, Hit: 3},
	}}
	var b bytes.Buffer
	d := &display{out: &b, live: true, width: func() int { return 70 }}
	d.show(s)
	first := b.String()
	for _, want := range []string{"5 of 9 requests done, 2 open, 1 failed, 0 cut", "127.0.0.1:1", "50 %"} {
		if !strings.Contains(first, want) {
			t.Errorf("table: got\n%s\nwant %q in it", first, want)
		}
	}
	for row := range strings.Lines(first) {
		if n := len([]rune(row)) - 1; n > 70 {
			t.Errorf("%q has %d columns, the terminal 70", row, n)
		}
	}
	b.Reset()
	d.show(s)
	if want := "\x1b[4A\r\x1b[J" + first; b.String() != want {
		t.Errorf("second table: got %q, want %q", b.String(), want)
	}
	b.Reset()
	plain := newDisplay(&b, false) // a buffer is no terminal
	plain.show(s)
	plain.show(s)
	if got := b.String(); strings.Count(got, "\n") != 1 || strings.Contains(got, "\x1b") {
		t.Errorf("plain: got %q, want one line without escapes", got)
	}
}

func TestEnvoyBootstrapFits(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/envoy/original-dst.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o := &envoyOptions{bootstrap: string(text)}
	got, err := o.fit("127.0.0.1:4711")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		piece string
		want  int
	}{{"port_value: 0}", 2}, {"port_value: 4711}", 2}, {demoServersHeader, 1}, {"port_value: 9002}", 0}, {"port_value: 8080}", 0}} {
		if n := strings.Count(got, c.piece); n != c.want {
			t.Errorf("%q stands %d times in the bootstrap, want %d", c.piece, n, c.want)
		}
	}
	o.bootstrap = "port_value: 19000}"
	if _, err := o.fit("127.0.0.1:4711"); err == nil {
		t.Error("a bootstrap without a listener was accepted")
	}
	t.Setenv("ENVOY", "/does/not/exist")
	if _, err := findEnvoy("../../../deploy/envoy/original-dst.yaml"); err == nil || !strings.Contains(err.Error(), "$ENVOY") {
		t.Errorf("findEnvoy with a wrong $ENVOY: got %v", err)
	}
}

func TestEnvoyThatIsNoneIsNamed(t *testing.T) {
	t.Setenv("ENVOY", "/bin/false")
	err := (&demoOptions{seed: 1, duration: time.Second, envoy: true, bootstrap: "../../../deploy/envoy/original-dst.yaml"}).run(t.Context(), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "--envoy: /bin/false ended by itself, saying \"\": exit status 1") {
		t.Errorf("got %v, want that /bin/false ended by itself", err)
	}
}

func TestWhatIsNotMeasuredIsADash(t *testing.T) {
	if got := stateLine(&demoState{Title: "x"}); !strings.Contains(got, "TTFT mean - p95 -  hits -  pick -") {
		t.Errorf("got %q", got)
	}
}

func TestDemoFlags(t *testing.T) {
	for _, d := range []time.Duration{0, -time.Second, demoLongest + 1} {
		if err := (&demoOptions{duration: d}).run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "--duration") {
			t.Errorf("duration %s: got %v, want an error about --duration", d, err)
		}
	}
}
