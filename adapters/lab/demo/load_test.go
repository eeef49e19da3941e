package demo

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
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
			t.Errorf("conversation %d begins at %s, after %s, in a load of %s", i, c.Start, load[max(i-1, 0)].Start,
				length)
		}
		if len(c.Turns) == 0 || c.Turns[0].Think != 0 {
			t.Errorf("conversation %d: turns %+v, want some, the first without delay", i, c.Turns)
		}
		systems[c.System]++
		if c.Model != baseModel {
			if adapters[c.Model] == nil {
				adapters[c.Model] = map[string]bool{}
			}
			adapters[c.Model][c.System] = true
		}
	}
	if len(systems) > groups || len(load) < 4*len(systems) {
		t.Errorf("%d conversations with %d system prompts, want %d prompts at most and each used often", len(load),
			len(systems), groups)
	}
	for _, a := range loras {
		if len(adapters[a]) != 1 {
			t.Errorf("adapter %s is used with %d system prompts, want 1", a, len(adapters[a]))
		}
	}
	if n := float64(len(load)) / length.Seconds(); math.Abs(n-conversationsPerSecond) > conversationsPerSecond/2 {
		t.Errorf("%.1f conversations a second, want about %v", n, conversationsPerSecond)
	}
	if got := newLoad(7, time.Nanosecond); len(got) != 1 {
		t.Errorf("a load of 1 ns: got %d conversations, want 1", len(got))
	}
}

func TestReadAnswer(t *testing.T) {
	const role = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
	const usage = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":2}}\n\n"
	const word = "data: {\"choices\":[{\"delta\":{\"content\":\" ha\"}}]}\n\n"
	for name, c := range map[string]struct {
		body, text string
		first, ok  bool
		tokens     int
	}{
		"two words":        {role + word + word + "data: [DONE]\n\n", " ha ha", true, true, 0},
		"no word":          {role + "data: [DONE]\n\n", "", false, true, 0},
		"usage":            {role + word + usage + "data: [DONE]\n\n", " ha", true, true, 2},
		"cut":              {role + word, "", true, false, 0},
		"cut before words": {role, "", false, false, 0},
		"empty":            {"", "", false, false, 0},
		"broken event":     {"data: {\n\n", "", false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readAnswer(strings.NewReader(c.body))
			if got.text != c.text || got.first.IsZero() == c.first || got.tokens != c.tokens || (err == nil) != c.ok {
				t.Errorf("%q: got %+v, error %v; want %q, first token seen %v, %d tokens, ok %v",
					c.body, got, err, c.text, c.first, c.tokens, c.ok)
			}
		})
	}
}

func TestPlayerCountsWhatFails(t *testing.T) {
	defer goleak.VerifyNone(t)
	asked := make(chan struct{}, 1)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(ServersHeader) != "" {
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
			failed = p.tally.Failed
			p.mu.Unlock()
		}
		cancel()
	}()
	p.play(ctx, []conversation{{Model: loras[0], Turns: two}, {Model: baseModel, Turns: two}})
	if want := (tally{Sent: 2, Failed: 1, Cut: 1}); p.tally != want || len(p.ttft) != 1 {
		t.Fatalf("got %+v, times %v; want %+v and one time", p.tally, p.ttft, want)
	}
	if !strings.Contains(p.problem.Error(), "404") {
		t.Errorf("first failure: got %v, want status 404", p.problem)
	}
}
