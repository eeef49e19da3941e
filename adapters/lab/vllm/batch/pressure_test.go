package batch

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestLeastRecentlyUsedPrefixGoesFirst(t *testing.T) {
	s := newScene(t, func(c *Config) { c.KVBlocks = 30 })
	run := func(kind, tokens int) (hits uint64) {
		before := s.core.Tally().HitTokens
		s.submit(Request{Prompt: prompt(kind, tokens)})
		s.finish()
		return s.core.Tally().HitTokens - before
	}
	run(1, 160)
	run(2, 160)
	if got, want := run(1, 160), uint64(144); got != want { // 1 is now younger than 2
		t.Fatalf("both fit: got %d hit tokens, want %d", got, want)
	}
	run(3, 240) // 10 blocks were never used; 5 more are needed
	if got, want := run(1, 160), uint64(144); got != want {
		t.Errorf("the younger prefix: got %d hit tokens, want %d", got, want)
	}
	if got := run(2, 160); got >= 144 {
		t.Errorf("the older prefix: got %d hit tokens, want fewer than 144", got)
	}
}

func TestBeginningOfAPromptOutlivesItsEnd(t *testing.T) {
	s := newScene(t, func(c *Config) { c.KVBlocks = 20 })
	s.submit(Request{Prompt: prompt(1, 320)})
	s.finish()
	s.submit(Request{Prompt: prompt(2, 160)})
	s.finish()
	s.submit(Request{Prompt: prompt(1, 320)})
	s.finish()
	if got, want := s.core.Tally().HitTokens, uint64(160); got != want {
		t.Errorf("hit tokens: got %d, want %d", got, want)
	}
}

func TestFullCacheMakesPromptsWait(t *testing.T) {
	s := newScene(t, func(c *Config) { c.KVBlocks = 20 })
	s.submit(Request{Prompt: prompt(1, 300), MaxTokens: 5, IgnoreEnd: true})
	b := s.submit(Request{Prompt: prompt(2, 300)})
	s.step()
	if got := s.core.Stats(); got.Running != 1 || got.Waiting != 1 || got.KVUsedRatio < 0.9 {
		t.Errorf("got %+v, want one running, one waiting, a full cache", got)
	}
	s.finish()
	if got := s.core.Tally(); s.ended[b] == 0 || got.Preemptions != 0 {
		t.Errorf("b ended at %s after %d preemptions, want an end and none", s.ended[b], got.Preemptions)
	}
}

func TestGrowthPreemptsTheLatest(t *testing.T) {
	s := newScene(t, func(c *Config) { c.KVBlocks = 20 })
	a := s.submit(Request{Prompt: prompt(1, 120), MaxTokens: 100, IgnoreEnd: true})
	b := s.submit(Request{Prompt: prompt(2, 120), MaxTokens: 100, IgnoreEnd: true})
	s.finish()
	y := s.core.Tally()
	if y.Preemptions == 0 || s.ended[a] >= s.ended[b] {
		t.Errorf("%d preemptions, a ended at %s, b at %s; want b preempted", y.Preemptions, s.ended[a], s.ended[b])
	}
	if y.GenerationTokens != 200 || y.PromptTokens != 240 || y.QueriedTokens != 240 {
		t.Errorf("tokens counted twice: %d generated, %d prompt, %d queried", y.GenerationTokens, y.PromptTokens,
			y.QueriedTokens)
	}
}

func TestSequenceLongerThanTheCacheRuns(t *testing.T) {
	s := newScene(t, func(c *Config) { c.KVBlocks = 10 })
	id := s.submit(Request{Prompt: prompt(1, 1000), MaxTokens: 50, IgnoreEnd: true})
	s.finish()
	if got, want := s.first[id], time.Second; got != want {
		t.Errorf("first token: got %s, want %s", got, want)
	}
	if got := s.last[id]; got.Generated != 50 || got.Ended != Length {
		t.Errorf("got %+v, want 50 tokens", got)
	}
}

func TestLoRASlots(t *testing.T) {
	s := newScene(t, func(c *Config) { c.LoRALoad = ms(30) })
	a := s.submit(Request{Prompt: prompt(1, 100), Adapter: "a", MaxTokens: 3, IgnoreEnd: true})
	s.submit(Request{Prompt: prompt(2, 100), Adapter: "b", MaxTokens: 30, IgnoreEnd: true})
	c := s.submit(Request{Prompt: prompt(3, 100), Adapter: "c", MaxTokens: 3, IgnoreEnd: true})
	base := s.submit(Request{Prompt: prompt(4, 100)})
	s.step()
	if got, want := s.first[a], ms(130); got != want {
		t.Errorf("a is moved into a slot first: first token at %s, want %s", got, want)
	}
	if got := s.core.Stats(); got.Running != 3 || got.Waiting != 1 || got.Deferred != 1 {
		t.Errorf("got %+v, want c deferred and the base model's sequence to pass it", got)
	}
	s.finish()
	if s.first[c] <= s.ended[a] || s.first[base] >= s.first[c] {
		t.Errorf("a ended at %s, base began at %s, c at %s", s.ended[a], s.first[base], s.first[c])
	}
	var sets [][2]string
	newest := LoRASets{}
	for _, l := range s.core.LoRAs() {
		sets = append(sets, [2]string{l.Running, l.Waiting})
		if l.At.After(newest.At) {
			newest = l
		}
	}
	want := [][2]string{{"a", "a"}, {"a", "a,b,c"}, {"a,b", "a,b,c"}, {"b", "b,c"}, {"b,c", "b,c"}, {"b", "b"},
		{"", ""}}
	if diff := cmp.Diff(want, sets); diff != "" {
		t.Errorf("adapter sets (-want +got):\n%s", diff)
	}
	if newest.Running != "" {
		t.Errorf("at rest the newest set is %q, want none", newest.Running)
	}
}

func TestCancelFreesAtOnce(t *testing.T) {
	s := newScene(t, func(c *Config) { c.MaxRunning = 1 })
	a := s.submit(Request{Prompt: prompt(1, 100), MaxTokens: 1000, IgnoreEnd: true, Adapter: "a"})
	b := s.submit(Request{Prompt: prompt(2, 100), MaxTokens: 5, IgnoreEnd: true})
	c := s.submit(Request{Prompt: prompt(3, 100)})
	s.step()
	s.core.Cancel(s.now.Add(ms(3)), a) // in the middle of a step
	s.core.Cancel(s.now.Add(ms(3)), c) // in the queue
	s.core.Cancel(s.now.Add(ms(3)), c)
	if got := s.core.Stats(); got.Running != 0 || got.Waiting != 1 || got.KVUsedRatio != 0 {
		t.Errorf("got %+v, want b waiting and nothing held", got)
	}
	s.finish()
	if got := s.last[a].Generated; got != 1 {
		t.Errorf("a went on to %d tokens", got)
	}
	if got, want := s.core.Tally().Finished, [...]uint64{Length: 1, Abort: 2}; got != want || s.ended[b] == 0 {
		t.Errorf("finished: got %v, want %v; b ended at %s", got, want, s.ended[b])
	}
}

func TestResetForgetsPrefixesWhenIdle(t *testing.T) {
	s := newScene(t, nil)
	s.submit(Request{Prompt: prompt(1, 100)})
	if s.core.ResetPrefixCache() {
		t.Error("reset while a sequence runs")
	}
	s.finish()
	if !s.core.ResetPrefixCache() {
		t.Error("no reset at rest")
	}
	s.submit(Request{Prompt: prompt(1, 100)})
	s.finish()
	if got := s.core.Tally().HitTokens; got != 0 {
		t.Errorf("%d hit tokens after a reset", got)
	}
}

func TestEngineWithoutSlotsRunsAdapters(t *testing.T) {
	s := newScene(t, func(c *Config) { c.MaxLoRAs = 0 })
	s.submit(Request{Prompt: prompt(1, 100), Adapter: "a"})
	s.submit(Request{Prompt: prompt(1, 100)})
	s.finish()
	if got := s.core.Tally(); got.Finished[Length] != 2 || got.HitTokens != 0 || len(s.core.LoRAs()) != 0 {
		t.Errorf("%v finished, %d hit tokens, %v; want two, no shared blocks, no adapter sets", got.Finished,
			got.HitTokens, s.core.LoRAs())
	}
}

// Whatever happens, every sequence ends once, and nothing is held in the end.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newScene(t, func(c *Config) {
			c.KVBlocks = rapid.IntRange(1, 40).Draw(rt, "blocks")
			c.MaxRunning = rapid.IntRange(1, 6).Draw(rt, "running")
			c.MaxBatchedTokens = rapid.IntRange(1, 100).Draw(rt, "batched")
			c.MaxLoRAs = rapid.IntRange(0, 2).Draw(rt, "loras")
		})
		ends, cancelled := map[uint64]int{}, map[uint64]bool{}
		n := rapid.IntRange(1, 25).Draw(rt, "sequences")
		for i := range n {
			s.submit(Request{
				Prompt:    prompt(rapid.IntRange(0, 3).Draw(rt, "kind"), rapid.IntRange(0, 200).Draw(rt, "tokens")),
				Adapter:   rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(rt, "adapter"),
				MaxTokens: rapid.IntRange(1, 60).Draw(rt, "max"),
			})
			s.countEnds(s.now, ends)
			victim := uint64(rapid.IntRange(1, i+1).Draw(rt, "victim"))
			if rapid.IntRange(0, 4).Draw(rt, "cancel") == 0 && ends[victim] == 0 {
				s.core.Cancel(s.now, victim)
				cancelled[victim] = true
			}
			s.now = s.now.Add(ms(rapid.IntRange(0, 50).Draw(rt, "pause")))
		}
		steps := 0
		for at, busy := s.core.NextEvent(); busy && steps < 50_000; at, busy = s.core.NextEvent() {
			s.countEnds(at, ends)
			steps++
		}
		for id := uint64(1); id <= uint64(n); id++ {
			if want := map[bool]int{false: 1, true: 0}[cancelled[id]]; ends[id] != want {
				rt.Errorf("after %d steps sequence %d ended %d times, want %d", steps, id, ends[id], want)
			}
		}
		if got := s.core.Stats(); got != (Stats{}) || len(s.core.live)+len(s.core.loras.running)+
			len(s.core.loras.waiting) != 0 {
			rt.Errorf("at rest: %+v, %d live, %v", got, len(s.core.live), s.core.loras)
		}
	})
}

// countEnds advances and counts the last words of sequences.
func (s *scene) countEnds(now time.Time, ends map[uint64]int) {
	for _, p := range s.core.Advance(now) {
		if p.Ended != Running {
			ends[p.ID]++
		}
	}
}
