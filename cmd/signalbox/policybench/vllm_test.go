package policybench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// vllmVariable names running vLLM servers that are equal, as host:port with a comma between, and idle. They serve the
// model "tiny" with blocks of 64 tokens, as vllmEngine has it.
const vllmVariable = "BENCH_VLLM"

// vllmEngine is how the servers are started: --block-size 64 --num-gpu-blocks-override 400 --max-num-batched-tokens 512
// --max-num-seqs 16 --enable-prompt-tokens-details.
func vllmEngine(timing Timing) Engine {
	return Engine{KVBlocks: 400, StepTokens: 512, MaxSequences: 16, Timing: timing}
}

// TestTimingOfVLLM fits a Timing to real servers, and then plays the same requests to them, in real time, and to the
// model: it holds if hits are within two points, and policies whose mean times to the first token differ by a tenth and
// more are in the same order. CPU has the constants that it logs. Where others use the processor, servers are slower
// than the least that was measured: by how much the time between two tokens tells, of each play by itself. That is
// rough, so a verdict needs a processor for each server and one for the test.
func TestTimingOfVLLM(t *testing.T) {
	if os.Getenv(vllmVariable) == "" {
		t.Skipf( //nolint:forbidigo // said aloud
			"%s, addresses of running vLLM servers, is not set: there is nothing to compare with", vllmVariable)
	}
	l := &live{t: t, at: strings.Split(os.Getenv(vllmVariable), ","), results: make(chan func(*world), 1024)}
	timing := l.fit()
	t.Logf("FIGURES %+v", timing)
	var measured, modelled []Outcome
	rules := vllmRules()
	for _, c := range rules {
		served := l.play(vllmPlay(timing, len(l.at)), c)
		timing.Speed = speedOf(t, timing, len(l.at), c, served.PerToken)
		model := runVLLM(t, timing, len(l.at), c)
		measured, modelled = append(measured, served), append(modelled, model)
		t.Logf("FIGURES %s: %d requests, mean %.3f s, hits %.1f %%; in the model, at speed %.2f, %d, %.3f s, %.1f %%",
			c.Name, served.Requests, served.Mean, 100*served.Hits, timing.Speed, model.Requests, model.Mean,
			100*model.Hits)
		if math.Abs(served.Hits-model.Hits) > .02 {
			t.Errorf("%s: hits %.3f, in the model %.3f, want them within 0.02", c.Name, served.Hits, model.Hits)
		}
	}
	for i := range rules {
		for k := range rules {
			if measured[i].Mean < .9*measured[k].Mean && .9*modelled[i].Mean > modelled[k].Mean {
				t.Errorf("%s is faster than %s, and slower in the model", rules[i].Name, rules[k].Name)
			}
		}
	}
}

// speedOf returns the speed at which the mean time between two tokens is what was measured.
func speedOf(t *testing.T, timing Timing, servers int, c Contender, perToken float64) float64 {
	t.Helper()
	low, high := 1./64, 4.
	for high/low > 1.02 {
		if timing.Speed = math.Sqrt(low * high); runVLLM(t, timing, servers, c).PerToken > perToken {
			low = timing.Speed
		} else {
			high = timing.Speed
		}
	}
	return low
}

// runVLLM plays to the model.
func runVLLM(t *testing.T, timing Timing, servers int, c Contender) Outcome {
	t.Helper()
	o, err := Run(vllmPlay(timing, servers), c)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// vllmRules are policies that need to know no more of servers than what they sent.
func vllmRules() []Contender {
	return slices.DeleteFunc(Contenders(1), func(c Contender) bool {
		return !slices.Contains([]string{"random", "round-robin", "least-request", "lmetric", "greedy"}, c.Name)
	})
}

// vllmPlay is of requests whose prefixes do not fit into the cache of one server. They come at times of their own, so
// that servers which share the processor with others get the same ones as the model.
func vllmPlay(timing Timing, servers int) Play {
	requests := Groups{
		Count: 600, Rate: 2 * float64(servers), Own: 100, Output: 12, Bursts: .3,
		Kinds: []Kind{{Share: .8, Number: 15 * servers, Prefix: 1280}, {Share: .2, Prefix: 1280}},
	}.Generate("prefixes", 1)
	return Play{
		Seed: 1, Servers: slices.Repeat([]Engine{vllmEngine(timing)}, servers), Warm: 15 * time.Second,
		Length: 45 * time.Second, Page: 100 * time.Millisecond, Load: Load{Trace: requests, Scale: 1, Rate: 1},
	}
}

// live is running servers.
type live struct {
	t       *testing.T
	at      []string
	results chan func(*world)
	plays   uint64 // prompts of different plays have nothing in common
}

// play plays to the servers, in real time.
func (l *live) play(p Play, c Contender) Outcome {
	l.plays++
	salt, began := l.plays, time.Now()
	p.elsewhere = func(x *exchange) { go l.serve(x, salt) }
	w := &world{Play: p, now: start, rand: newRand(p.Seed), policy: c.rule()}
	w.begin()
	for !w.finished() && len(w.due) > 0 {
		w.now = start.Add(time.Since(began))
		w.happen()
		select {
		case result := <-l.results:
			w.now = start.Add(time.Since(began))
			result(w)
		case <-time.After(time.Until(began.Add(w.due[0].at.Sub(start)))):
		}
	}
	return w.outcome()
}

// serve has a server answer an exchange, and tells its world.
func (l *live) serve(x *exchange, salt uint64) {
	prompt := make([]int, x.prompt)
	for i := range prompt {
		block := mix(uint64(x.number), 1)
		if i/blockTokens < len(x.blocks) {
			block = x.blocks[i/blockTokens]
		}
		prompt[i] = token(block+salt<<48, i%blockTokens)
	}
	cached, err := l.ask(l.at[x.server], prompt, x.output, func() {
		l.results <- func(w *world) {
			x.first = w.now
			w.policy.first(x)
		}
	})
	if err != nil {
		l.t.Error(err)
	}
	l.results <- func(w *world) {
		x.ended, x.cached = w.now, cached
		w.leave(x)
	}
}

// token is one of a block.
func token(block uint64, i int) int { return 16 + int(mix(block, uint64(i))%480) }

// ask asks a server, and returns how much of the prompt it had cached.
func (l *live) ask(at string, prompt []int, output int, first func()) (cached int, err error) {
	body, err := json.Marshal(map[string]any{
		"model": "tiny", "prompt": prompt, "max_tokens": output, "ignore_eos": true, "temperature": 0, "stream": true,
		"stream_options": map[string]any{"include_usage": true},
	})
	if err != nil {
		return 0, err
	}
	answer, err := http.Post("http://"+at+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	var event struct {
		Choices []struct{}
		Usage   *struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "data: {")
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte("{"+text), &event); err != nil {
			return 0, err
		}
		if len(event.Choices) > 0 {
			if first != nil {
				first()
			}
			first = nil
		}
		if event.Usage != nil {
			cached = event.Usage.Details.Cached
		}
	}
	if first != nil {
		return 0, fmt.Errorf("%s: %s, and no token of %d tokens: %w", at, answer.Status, len(prompt), lines.Err())
	}
	return cached, nil
}

// probe is what a server took, in nanoseconds, and of how many of each constant of a Timing that is.
type probe struct {
	took  float64
	parts [5]float64 // steps, tokens of prompts, pairs of them, sequences, tokens before them
}

// by returns what it takes by constants.
func (p *probe) by(x [5]float64) (took float64) {
	for k, v := range x {
		took += v * p.parts[k]
	}
	return took
}

// fit returns the Timing whose steps take what those of a server take: of prompts that come alone, and of answers to
// cached prompts that are generated at the same time. Each is measured several times, and the least counts, for others
// use the processor.
func (l *live) fit() Timing {
	var probes []probe
	e := vllmEngine(Timing{})
	for _, n := range []float64{64, 256, 512, 1024, 2048, 3500} {
		took := l.least(24, func() time.Duration { return l.together(l.prompts(1, int(n)), 1) })
		probes = append(probes, probe{took, [5]float64{math.Ceil(n / float64(e.StepTokens)), n, n * n / 2}})
	}
	const output = 96
	for _, c := range [][2]float64{{1, 65}, {1, 3009}, {4, 129}, {4, 2049}, {12, 129}, {12, 1601}} {
		prompts := l.prompts(int(c[0]), int(c[1]))
		l.together(prompts, 1)
		took := l.least(12, func() time.Duration { return l.together(prompts, output) })
		probes = append(probes, probe{
			took, [5]float64{output, c[0], c[0] * c[1], c[0] * (output - 1), c[0] * (output - 1) * (c[1] + output/2)},
		})
	}
	x := solve(probes)
	for _, p := range probes {
		l.t.Logf("FIGURES %v of each: %.2f ms, by the fit %.2f", p.parts, p.took/1e6, p.by(x)/1e6)
	}
	return Timing{
		Step: time.Duration(x[0]), Prefill: time.Duration(x[1]), Attention: x[2], Decode: time.Duration(x[3]),
		Context: x[4],
	}
}

// least returns the shortest of several times, in nanoseconds.
func (l *live) least(times int, of func() time.Duration) float64 {
	took := of()
	for range times - 1 {
		took = min(took, of())
	}
	return float64(took)
}

// prompts returns new prompts.
func (l *live) prompts(n, length int) [][]int {
	all := make([][]int, n)
	for i := range all {
		l.plays++
		all[i] = make([]int, length)
		for k := range all[i] {
			all[i][k] = token(l.plays<<48, k)
		}
	}
	return all
}

// together has the first server answer several prompts at the same time, and returns how long it takes.
func (l *live) together(prompts [][]int, output int) time.Duration {
	l.t.Helper()
	began := time.Now()
	var group sync.WaitGroup
	for _, prompt := range prompts {
		group.Go(func() {
			if _, err := l.ask(l.at[0], prompt, output, func() {}); err != nil {
				l.t.Error(err)
			}
		})
	}
	if group.Wait(); l.t.Failed() {
		l.t.FailNow()
	}
	return time.Since(began)
}

// solve returns the constants of 0 and more by which probes take what they took, with the least squares of the shares
// by which they do not. It sets one after the other to what is best while the others stay, which comes to the best of
// all.
func solve(probes []probe) (x [5]float64) {
	for range 200_000 {
		for k := range x {
			var with, square float64
			for _, p := range probes {
				part := p.parts[k] / p.took
				with, square = with+part*(1-(p.by(x)-x[k]*p.parts[k])/p.took), square+part*part
			}
			x[k] = max(with/square, 0)
		}
	}
	return x
}
