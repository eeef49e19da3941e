package policybench

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// checkBlocks fails if the server's blocks are not each free, idle or held, and counted once.
func (s *server) checkBlocks(t interface{ Fatalf(string, ...any) }) {
	refs, own := map[*block]int{}, 0
	for _, q := range s.running {
		own += q.own
		for _, b := range q.held {
			refs[b]++
		}
		if q.own < 0 || (len(q.held)+q.own)*blockTokens < q.computed {
			t.Fatalf(
				"a sequence of %d computed tokens holds %d blocks by name and %d others",
				q.computed,
				len(q.held),
				q.own,
			)
		}
	}
	for _, q := range s.waiting {
		if len(q.held)+q.own+q.computed != 0 {
			t.Fatalf("a waiting sequence holds %d blocks and has %d tokens", len(q.held)+q.own, q.computed)
		}
	}
	if s.free < 0 || s.free+s.idle.Len()+len(refs)+own != s.KVBlocks {
		t.Fatalf(
			"%d blocks free, %d idle, %d held by name, %d others, want %d in all",
			s.free,
			s.idle.Len(),
			len(refs),
			own,
			s.KVBlocks,
		)
	}
	for id, b := range s.blocks {
		if b.id != id || b.refs != refs[b] || (b.idle != nil) != (b.refs == 0) {
			t.Fatalf("block %d: %+v, held by %d", id, b, refs[b])
		}
	}
	if len(s.blocks) != len(refs)+s.idle.Len() {
		t.Fatalf("%d blocks have names, want the %d held and the %d idle", len(s.blocks), len(refs), s.idle.Len())
	}
	if len(s.running) > s.MaxSequences {
		t.Fatalf("%d sequences run, want %d at most", len(s.running), s.MaxSequences)
	}
	chunks := 0
	for _, q := range s.running {
		chunks += q.chunk
	}
	if chunks > s.StepTokens {
		t.Fatalf("a step computes %d tokens, want %d at most", chunks, s.StepTokens)
	}
}

// Whatever comes, each request ends once with its whole answer, no block is held twice or lost, and each token of a
// prompt was cached or computed.
func TestServerKeepsItsBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newServer(Engine{
			KVBlocks: rapid.IntRange(8, 40).Draw(t, "blocks"), StepTokens: rapid.IntRange(64, 600).Draw(t, "step"),
			MaxSequences: rapid.IntRange(1, 6).Draw(t, "sequences"), Timing: GPU(),
		}, true)
		now, firsts, ends, prompts := start, map[*exchange]int{}, map[*exchange]int{}, 0
		told := func(q *sequence, at time.Time) {
			if at.After(now) {
				t.Fatalf("told of %v at %v", at, now)
			}
			if q.generated == 1 {
				firsts[q.exchange]++
			}
			if q.generated == q.output {
				ends[q.exchange]++
			}
		}
		submitted := 0
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			x := &exchange{
				demand: demand{
					prompt: rapid.IntRange(1, 1200).Draw(t, "prompt"),
					output: rapid.IntRange(1, 200).Draw(t, "output"),
				},
			}
			group := rapid.Uint64Range(0, 3).Draw(t, "group")
			for i := range x.prompt / blockTokens {
				x.blocks = append(x.blocks, mix(group, uint64(i)))
			}
			if s.fits(x) {
				s.submit(x, now)
				submitted, prompts = submitted+1, prompts+x.prompt
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "ms")) * time.Millisecond)
			s.advance(now, told)
			s.checkBlocks(t)
		}
		now = now.Add(time.Hour)
		s.advance(now, told)
		s.checkBlocks(t)
		if len(s.running)+len(s.waiting)+len(s.coming) != 0 || s.step.runs {
			t.Fatalf("an hour later %d run, %d wait and %d blocks come", len(s.running), len(s.waiting), len(s.coming))
		}
		if len(ends) != submitted || len(firsts) != submitted {
			t.Fatalf("%d first tokens and %d ends, want those of %d requests", len(firsts), len(ends), submitted)
		}
		for x, n := range ends {
			if n != 1 || firsts[x] != 1 {
				t.Fatalf("%+v ended %d times and had %d first tokens", x, n, firsts[x])
			}
		}
		if s.tally.preempted == 0 && (s.tally.prompt != prompts || s.tally.cached+s.tally.computed != prompts) {
			t.Fatalf("%+v, want %d tokens of prompts", s.tally, prompts)
		}
		if s.tally.cached+s.tally.computed < prompts {
			t.Fatalf("%+v, want at least %d tokens cached or computed", s.tally, prompts)
		}
	})
}

// The blocks that were used least recently make way, the end of a prompt before its beginning.
func TestServerEvictsLeastRecentlyUsed(t *testing.T) {
	s := newServer(Engine{KVBlocks: 9, StepTokens: 2048, MaxSequences: 4, Timing: GPU()}, false)
	now := start
	prompt := func(group uint64) (blocks []uint64) {
		for i := range uint64(3) {
			blocks = append(blocks, mix(group, i))
		}
		return blocks
	}
	serve := func(group uint64) (cached int) {
		s.submit(&exchange{demand: demand{prompt: 3*blockTokens + 1, output: 1, blocks: prompt(group)}}, now)
		now = now.Add(time.Minute)
		s.advance(now, func(q *sequence, _ time.Time) { cached = q.cached / blockTokens })
		s.checkBlocks(t)
		return cached
	}
	for i, c := range []struct {
		group  uint64
		cached int
	}{{1, 0}, {2, 0}, {1, 3}, {3, 0}} { // the last one needs four blocks, and three are free
		if got := serve(c.group); got != c.cached {
			t.Errorf("prompt %d, of group %d: %d blocks cached, want %d", i, c.group, got, c.cached)
		}
	}
	if one, two, three := s.hits(prompt(1)), s.hits(prompt(2)), s.hits(prompt(3)); one != 3 || two != 2 || three != 3 {
		t.Errorf("%d, %d and %d blocks are left, want 3, 2 and 3: group 2 was used least recently", one, two, three)
	}
}

// A step takes what its timing says, and a server of twice the speed half of it.
func TestServerTiming(t *testing.T) {
	timing := Timing{Step: time.Millisecond, Prefill: 10 * time.Microsecond, Decode: 100 * time.Microsecond}
	for speed, want := range map[float64]time.Duration{0: 6 * time.Millisecond, 2: 3 * time.Millisecond} {
		timing.Speed = speed
		s := newServer(Engine{KVBlocks: 100, StepTokens: 500, MaxSequences: 4, Timing: timing}, false)
		s.submit(&exchange{demand: demand{prompt: 500, output: 2}}, start)
		var first time.Duration
		s.advance(start.Add(time.Second), func(q *sequence, at time.Time) {
			if q.generated == 1 {
				first = at.Sub(start)
			}
		})
		if first != want {
			t.Errorf("speed %v: first token after %v, want %v", speed, first, want)
		}
	}
}
