package batch

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var epoch = time.Unix(1_800_000_000, 0)

// scene is an engine in virtual time and what came out of it.
type scene struct {
	t     *testing.T
	core  *Core
	now   time.Time
	first map[uint64]time.Duration // since epoch
	ended map[uint64]time.Duration
	last  map[uint64]Progress
	log   []string
}

// newScene starts an engine that computes 1000 prompt tokens or, of one sequence, 100 answer tokens a second.
func newScene(t *testing.T, change func(*Config)) *scene {
	t.Helper()
	cfg := Config{
		MaxRunning: 8, MaxBatchedTokens: 1000, KVBlocks: 100, BlockTokens: 16, MaxLoRAs: 2,
		PrefillTokensPerSecond: 1000, DecodeTokensPerSecond: 100, AnswerTokens: 50, Seed: 1,
	}
	if change != nil {
		change(&cfg)
	}
	core, err := New(cfg, NewTokens(4))
	if err != nil {
		t.Fatal(err)
	}
	return &scene{
		t: t, core: core, now: epoch, first: map[uint64]time.Duration{}, ended: map[uint64]time.Duration{},
		last: map[uint64]Progress{},
	}
}

func (s *scene) submit(r Request) uint64 {
	if r.MaxTokens == 0 {
		r.MaxTokens = 1
	}
	id, _ := s.core.Submit(s.now, r)
	return id
}

// step moves time to the next event.
func (s *scene) step() bool {
	at, ok := s.core.NextEvent()
	if !ok {
		return false
	}
	s.now = at
	for _, p := range s.core.Advance(at) {
		s.log = append(s.log, fmt.Sprint(p, at.Sub(epoch)))
		if p.Generated == 1 {
			s.first[p.ID] = at.Sub(epoch)
		}
		if p.Ended != Running {
			s.ended[p.ID] = at.Sub(epoch)
		}
		s.last[p.ID] = p
	}
	return true
}

func (s *scene) finish() {
	s.t.Helper()
	for n := 0; s.step(); n++ {
		if n > 100_000 {
			s.t.Fatal("the engine does not come to rest")
		}
	}
	if got, want := s.core.Stats(), (Stats{}); got != want {
		s.t.Errorf("at rest: got %+v, want %+v", got, want)
	}
}

// prompt has n tokens that no prompt of another kind shares.
func prompt(kind, n int) []uint32 {
	p := make([]uint32, n)
	for i := range p {
		p[i] = uint32(kind*1_000_000 + i)
	}
	return p
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func TestPrefillThenOneTokenAStep(t *testing.T) {
	s := newScene(t, nil)
	id := s.submit(Request{Prompt: prompt(1, 100), MaxTokens: 11, IgnoreEnd: true})
	s.finish()
	if got, want := s.first[id], ms(100); got != want {
		t.Errorf("first token of a prompt of 100 tokens: got %s, want %s", got, want)
	}
	if got, want := s.ended[id], ms(200); got != want {
		t.Errorf("10 further tokens: ended at %s, want %s", got, want)
	}
	if got, want := s.last[id], (Progress{ID: id, Generated: 11, Ended: Length}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestBatchSharesSteps(t *testing.T) {
	s := newScene(t, func(c *Config) { c.BatchSlowdown = 0.5 })
	a := s.submit(Request{Prompt: prompt(1, 100), MaxTokens: 11, IgnoreEnd: true})
	b := s.submit(Request{Prompt: prompt(2, 100), MaxTokens: 11, IgnoreEnd: true})
	s.finish()
	// a's prefill, then a step with b's prefill and a's second token, then 9 steps of both, then b's last.
	if got, want := s.first[b], ms(100+100+10); got != want {
		t.Errorf("first token of b: got %s, want %s", got, want)
	}
	if got, want := s.ended[a], ms(210+9*15); got != want {
		t.Errorf("a: ended at %s, want %s", got, want)
	}
	if got, want := s.ended[b], ms(210+9*15+10); got != want {
		t.Errorf("b: ended at %s, want %s", got, want)
	}
}

func TestLongPromptIsComputedInChunks(t *testing.T) {
	s := newScene(t, func(c *Config) { c.MaxBatchedTokens = 64 })
	a := s.submit(Request{Prompt: prompt(1, 16), MaxTokens: 20, IgnoreEnd: true})
	b := s.submit(Request{Prompt: prompt(2, 640)})
	s.finish()
	if s.ended[a] > s.first[b]*2 || s.core.Tally().InterToken.Sum > 2 {
		t.Errorf("decoding stood still: a ended at %s, b's first token came at %s", s.ended[a], s.first[b])
	}
	if got := s.core.Tally().StepTokens.Sum; got != 16+19+640 {
		t.Errorf("tokens computed: got %g, want %d", got, 16+19+640)
	}
}

func TestPrefixHitShortensPrefill(t *testing.T) {
	tests := map[string]struct {
		second  Request
		prefill time.Duration
	}{
		"same prompt: all but the block of the last token": {Request{Prompt: prompt(1, 160)}, ms(16)},
		"longer prompt":        {Request{Prompt: append(prompt(1, 160), prompt(2, 40)...)}, ms(40)},
		"other beginning":      {Request{Prompt: append(prompt(2, 1), prompt(1, 159)...)}, ms(160)},
		"other salt":           {Request{Prompt: prompt(1, 160), Salt: "x"}, ms(160)},
		"other adapter":        {Request{Prompt: prompt(1, 160), Adapter: "a"}, ms(160)},
		"shared part of block": {Request{Prompt: append(prompt(1, 24), prompt(2, 136)...)}, ms(144)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, nil)
			s.submit(Request{Prompt: prompt(1, 160)})
			s.finish()
			before := s.now
			id := s.submit(tt.second)
			s.finish()
			if got := epoch.Add(s.first[id]).Sub(before); got != tt.prefill {
				t.Errorf("prefill: got %s, want %s", got, tt.prefill)
			}
			hits := uint64(len(tt.second.Prompt)) - uint64(tt.prefill/time.Millisecond)
			if y := s.core.Tally(); y.HitTokens != hits || y.QueriedTokens != 160+uint64(len(tt.second.Prompt)) {
				t.Errorf("prefix cache: got %d hits of %d, want %d of %d", y.HitTokens, y.QueriedTokens, hits,
					160+len(tt.second.Prompt))
			}
		})
	}
}

func TestNextTurnFindsTheAnswer(t *testing.T) {
	s := newScene(t, nil)
	first := prompt(1, 20)
	_, key := s.core.Submit(s.now, Request{Prompt: first, MaxTokens: 60, IgnoreEnd: true})
	s.finish()
	next := append([]uint32{}, first...)
	for i := range 60 {
		next = s.core.tokens.Encode(next, s.core.tokens.Word(key, i))
	}
	s.submit(Request{Prompt: append(next, prompt(3, 10)...)})
	s.finish()
	// 79 tokens have KV entries, the last one's was never computed: 4 full blocks.
	if got, want := s.core.Tally().HitTokens, uint64(64); got != want {
		t.Errorf("hit tokens: got %d, want %d", got, want)
	}
}

func TestQueueIsFirstComeFirstServed(t *testing.T) {
	s := newScene(t, func(c *Config) { c.MaxRunning = 2 })
	var ids []uint64
	for i := range 6 {
		ids = append(ids, s.submit(Request{Prompt: prompt(i, 50), MaxTokens: 3, IgnoreEnd: true}))
	}
	s.step()
	if got := s.core.Stats(); got.Running != 2 || got.Waiting != 4 {
		t.Errorf("running %d, waiting %d, want 2 and 4", got.Running, got.Waiting)
	}
	s.finish()
	for i := 1; i < len(ids); i++ {
		if s.first[ids[i]] < s.first[ids[i-1]] {
			t.Errorf("first tokens out of order: %v", s.first)
		}
	}
	if got := s.core.Tally().Queue; got.Count != 6 || got.Sum <= 0 {
		t.Errorf("queue times: got %d, in sum %g s", got.Count, got.Sum)
	}
}

func TestSameInputsSameOutputs(t *testing.T) {
	play := func(seed uint64) []string {
		s := newScene(t, func(c *Config) { c.Seed, c.KVBlocks = seed, 40 })
		for i := range 30 {
			id := s.submit(Request{Prompt: prompt(i%4, 40+i*5), MaxTokens: 200,
				Adapter: []string{"", "a", "b", "c"}[i%4]})
			if i%7 == 3 {
				s.core.Cancel(s.now, id-1)
			}
			s.step()
		}
		s.finish()
		return s.log
	}
	one := play(1)
	if diff := cmp.Diff(one, play(1)); diff != "" {
		t.Errorf("two runs of seed 1 differ:\n%s", diff)
	}
	if cmp.Equal(one, play(2)) {
		t.Error("seeds 1 and 2 give the same")
	}
}

func TestConfigNamesEveryProblem(t *testing.T) {
	err := Config{MaxLoRAs: -1, BatchSlowdown: -1, LoRALoad: -1}.Validate()
	if err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 10 {
		t.Errorf("got %v, want 10 problems", err)
	}
}
