package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

const (
	talks       = 24               // conversations at once
	talkTokens  = 48               // of each answer
	talkLimit   = 3600             // prompt tokens from which on a conversation makes way for another
	talkBefore  = 8 * time.Second  // with all servers
	talkWithout = 6 * time.Second  // without the first
	talkAfter   = 20 * time.Second // with it again
)

// turn is what became of one turn of a conversation.
type turn struct {
	answer
	prompt, cached int
	text           string
}

// TestEnvoyConversationsReturn: conversations run on all servers, the first goes away and comes back, and so do
// conversations. It prints which servers served them, how soon, and how much of their prompts was cached; the same for
// the configuration files of $CONFIGS (paths with spaces between), in turns, $ROUNDS times. $STOP and $START are shell
// commands that end the first of $ENDPOINTS and start it again.
func TestEnvoyConversationsReturn(t *testing.T) {
	seenElsewhere(t)
	if os.Getenv("ENDPOINTS") == "" {
		t.Parallel() // it mostly waits
	}
	f := newFleet(t, "--max-num-seqs", "8", "--enable-prompt-tokens-details")
	if f.stop == nil || f.start == nil {
		t.Log("*** NO STOP OR START COMMAND: nothing was tested here. ***")
		return
	}
	rounds := 1
	if text := os.Getenv("ROUNDS"); text != "" {
		if _, err := fmt.Sscan(text, &rounds); err != nil {
			t.Fatalf("ROUNDS: %v", err)
		}
	}
	configs := append([]string{""}, strings.Fields(os.Getenv("CONFIGS"))...)
	for round := range rounds {
		for _, config := range configs {
			var flags []string
			if config != "" {
				flags = []string{"--config-file", config}
			}
			t.Run(filepath.Base(cmp.Or(config, "default")), func(t *testing.T) {
				share := f.playTalks(t, uint64(round), flags...)
				if config == "" && share < 0.25 {
					t.Errorf("%.2f of the turns went to the server that had returned, want 0.25 and more", share)
				}
			})
		}
	}
}

// phase is a stretch of time in which turns began.
type phase struct {
	name     string
	from, to time.Time
}

// playTalks returns the share of the first server some time after its return.
func (f *fleet) playTalks(t *testing.T, seed uint64, flags ...string) float64 {
	t.Helper()
	s := startStack(t, f.servers, flags...)
	play := &talkers{client: s.client, model: f.model, seed: seed}
	began := time.Now()
	play.start()
	pass(talkBefore)
	away := time.Now()
	f.stop(t)
	pass(talkWithout)
	f.start(t)
	back := time.Now()
	pass(talkAfter)
	turns := play.stop()
	names := make([]string, len(turns))
	for i := range turns {
		names[i] = turns[i].name
	}
	log := s.envoy.attemptsOf(t, names)
	var table strings.Builder
	rows := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "phase\tturns\ton the first\tfirst token, mean\tp90\ttokens/s\tcached")
	share := 0.0
	for _, p := range []phase{
		{"before", began.Add(talkBefore / 4), away},
		{"without it", away, back},
		{"back, 0 to 5 s", back, back.Add(talkAfter / 4)},
		{"back, 5 to 10 s", back.Add(talkAfter / 4), back.Add(talkAfter / 2)},
		{"back, 10 to 20 s", back.Add(talkAfter / 2), back.Add(talkAfter)},
	} {
		share = p.sumUp(rows, turns, func(a *turn) bool { return log[a.name].Hosts == f.servers[0] })
	}
	rows.Flush()
	t.Logf("FIGURES, %d conversations\n%s", talks, table.String())
	return share
}

// pass lets time go by under load.
func pass(d time.Duration) { <-time.After(d) }

// sumUp prints the row of a phase and returns the share of the first server in it.
func (p *phase) sumUp(rows io.Writer, turns []turn, onFirst func(*turn) bool) float64 {
	var times []time.Duration
	var first, prompt, cached int
	var sum time.Duration
	for i := range turns {
		a := &turns[i]
		if !a.whole() || a.sent.Before(p.from) || !a.sent.Before(p.to) {
			continue
		}
		if onFirst(a) {
			first++
		}
		ttft := a.events[1].at.Sub(a.sent) // the event before has the role alone
		times, sum = append(times, ttft), sum+ttft
		prompt, cached = prompt+a.prompt, cached+a.cached
	}
	n := len(times)
	if n == 0 {
		fmt.Fprintf(rows, "%s\t0\n", p.name)
		return 0
	}
	slices.Sort(times)
	share := float64(first) / float64(n)
	fmt.Fprintf(rows, "%s\t%d\t%.0f %%\t%d ms\t%d ms\t%.0f\t%.2f\n", p.name, n, 100*share,
		(sum / time.Duration(n)).Milliseconds(),
		times[n*9/10].Milliseconds(), float64(n*talkTokens)/p.to.Sub(p.from).Seconds(),
		float64(cached)/float64(max(1, prompt)))
	return share
}

// talkers are conversations in closed loops, each of which repeats in every turn all that was said.
type talkers struct {
	client *client
	model  string
	seed   uint64
	mu     sync.Mutex
	turns  []turn
	leave  context.CancelFunc
	ended  sync.WaitGroup
}

func (p *talkers) start() {
	ctx, cancel := context.WithCancel(context.Background())
	p.leave = cancel
	for i := range talks {
		p.ended.Go(func() { p.talk(ctx, rand.New(rand.NewPCG(p.seed, uint64(i)))) })
	}
}

// stop gives all turns that were answered or failed; those that run are left.
func (p *talkers) stop() []turn {
	p.leave()
	p.ended.Wait()
	return p.turns
}

func (p *talkers) talk(ctx context.Context, r *rand.Rand) {
	type message = map[string]string
	var said []message
	for ctx.Err() == nil {
		words := 3
		if len(said) == 0 {
			words = 150
		}
		said = append(said, message{"role": "user", "content": talkText(r, words)})
		a := p.ask(ctx, said)
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		p.turns = append(p.turns, a)
		p.mu.Unlock()
		switch {
		case !a.whole():
			said = said[:len(said)-1]
			<-time.After(100 * time.Millisecond)
		case a.prompt > talkLimit:
			said = nil
		default:
			said = append(said, message{"role": "assistant", "content": a.text})
		}
	}
}

func (p *talkers) ask(ctx context.Context, said any) turn {
	body := mustJSON(map[string]any{
		"model": p.model, "max_tokens": talkTokens, "ignore_eos": true, "temperature": 0, "messages": said,
		"stream": true, "stream_options": map[string]bool{"include_usage": true},
	})
	a := turn{answer: p.client.do(ctx, http.MethodPost, "/v1/chat/completions", body, nil)}
	for _, e := range a.events {
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
			Usage struct {
				Prompt  int `json:"prompt_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			} `json:"usage"`
		}
		if json.Unmarshal([]byte(e.data), &chunk) != nil {
			continue // [DONE]
		}
		for _, c := range chunk.Choices {
			a.text += c.Delta.Content
		}
		a.prompt, a.cached = max(a.prompt, chunk.Usage.Prompt), max(a.cached, chunk.Usage.Details.Cached)
	}
	return a
}

// talkText is made-up text.
func talkText(r *rand.Rand, words int) string {
	b := make([]byte, 0, 4*words)
	for range words {
		b = append(b, byte('a'+r.IntN(26)), byte('a'+r.IntN(26)), byte('a'+r.IntN(26)), ' ')
	}
	return string(b)
}
