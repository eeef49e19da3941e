package blockindex_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/messages"
)

// chain makes a prompt of random blocks behind those of another one.
func chain(r *rand.Rand, before []uint64, n int) blockindex.Prompt {
	blocks := slices.Clone(before)
	for range n {
		blocks = append(blocks, r.Uint64())
	}
	return blockindex.Prompt{Model: "m", Blocks: messages.TakeList(blocks)}
}

// TestReadersDuringWrites lets readers look up a prompt that some endpoints hold all the time, while the writer enters,
// withdraws, evicts and clears around it, so that tables are replaced and rows spill under the readers.
func TestReadersDuringWrites(t *testing.T) {
	const stable, length = 7, 700
	index := blockindex.NewIndex(5000)
	r := rand.New(rand.NewPCG(1, 2))
	prompt := chain(r, nil, length)
	index.Enter(stable, prompt)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			out := make([]int, 200)
			for !stop.Load() {
				index.Match(prompt, out)
				if out[stable] != length {
					t.Errorf("slot %d: %d blocks, want %d", stable, out[stable], length)
					return
				}
				for slot, n := range out {
					if n < 0 || n > length || slot >= 150 && n != 0 {
						t.Errorf("slot %d: %d blocks of %d", slot, n, length)
						return
					}
				}
			}
		})
	}
	base := prompt.Blocks.Append(nil)
	for range 3000 {
		slot := r.Uint32N(150)
		if slot == stable {
			continue
		}
		p := chain(r, base[:r.IntN(length)], r.IntN(50)+1)
		switch e := index.Enter(slot, p); r.IntN(4) {
		case 0:
			index.ClearSlot(slot)
		case 1:
			index.Withdraw(slot, p, e)
		}
	}
	stop.Store(true)
	wg.Wait()
	out := make([]int, 200)
	for slot := range uint32(150) {
		want := index.Touch(slot, prompt)
		if index.Match(prompt, out); out[slot] != want {
			t.Errorf("at rest, slot %d: %d blocks, want %d", slot, out[slot], want)
		}
	}
}

func TestWithdrawStopsAtWhatWasUsedSince(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	index := blockindex.NewIndex(0)
	first := chain(r, nil, 10)
	entry := index.Enter(1, first)
	second := chain(r, first.Blocks.Append(nil)[:4], 2)
	if got := index.Enter(1, second); got.From != 4 || got.To != 6 {
		t.Errorf("second entered %d to %d, want 4 to 6", got.From, got.To)
	}
	if got := index.Withdraw(1, first, entry); got != 6 {
		t.Errorf("withdrew %d blocks, want the 6 behind what the second used", got)
	}
	out := make([]int, 2)
	if best := index.Match(first, out); best != 4 || out[1] != 4 {
		t.Errorf("first still held: %v, best %d; want 4", out, best)
	}
	if best := index.Match(second, out); best != 6 {
		t.Errorf("second: best %d, want 6", best)
	}
}

func TestSlotBeyondTheLimitIsNotKept(t *testing.T) {
	index := blockindex.NewIndex(0)
	p := chain(rand.New(rand.NewPCG(5, 6)), nil, 3)
	if e := index.Enter(blockindex.MaxSlots, p); e != (blockindex.Entry{}) {
		t.Errorf("entered %+v, want nothing", e)
	}
	if n := index.Match(p, make([]int, blockindex.MaxSlots+1)); n != 0 {
		t.Errorf("best %d, want 0", n)
	}
}

// TestMemoryOfFullEndpoints keeps entering new prompts at full endpoints: memory stays within what the index states.
func TestMemoryOfFullEndpoints(t *testing.T) {
	const endpoints = 3
	index := blockindex.NewIndex(0)
	r := rand.New(rand.NewPCG(7, 8))
	for range 1200 {
		index.Enter(r.Uint32N(endpoints), chain(r, nil, 100))
	}
	s := index.Stats()
	if s.Held != endpoints*blockindex.DefaultCapacity || s.Evicted == 0 {
		t.Errorf("%d blocks held, %d evicted; want %d endpoints full", s.Held, s.Evicted, endpoints)
	}
	if limit := endpoints * (1_600_000 + 64*blockindex.DefaultCapacity); s.Bytes > limit {
		t.Errorf("%d bytes, want %d at most", s.Bytes, limit)
	}
}

// TestRefresh enters a prompt, then others, then refreshes the first, and fills the endpoint: what was refreshed
// outlives what was entered before the refresh, but only if there was enough of it.
func TestRefresh(t *testing.T) {
	const capacity, length = 160, 4
	for others, want := range map[int]int{0: 0, 1: 0, 2: 0, 3: length, 10: length} { // a sixteenth of 160 is 10 blocks
		index, r := blockindex.NewIndex(capacity), rand.New(rand.NewPCG(5, 6))
		first := chain(r, nil, length)
		e := index.Enter(0, first)
		for range others {
			index.Enter(0, chain(r, nil, length))
		}
		stamp := index.Refresh(0, first, e)
		index.Lead(0, first, func(b blockindex.Block) bool {
			if b.Stamp != stamp {
				t.Errorf("with %d blocks between, one was last used by stamp %d, Refresh says %d", others*length,
					b.Stamp, stamp)
			}
			return true
		})
		index.Enter(0, chain(r, nil, capacity-length*others))
		if got := index.Match(first, make([]int, 1)); got != want {
			t.Errorf("with %d blocks between, %d blocks are left, want %d", others*length, got, want)
		}
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	index, prompt := hundredEndpoints()
	out := make([]int, 100)
	if n := testing.AllocsPerRun(100, func() { index.Match(prompt, out) }); n != 0 {
		t.Errorf("%v allocations for a lookup, want 0", n)
	}
}

// hundredEndpoints hold a system prompt of 40 blocks; each tenth of them a part of a conversation of 2000.
func hundredEndpoints() (*blockindex.Index, blockindex.Prompt) {
	index := blockindex.NewIndex(0)
	prompt := chain(rand.New(rand.NewPCG(9, 10)), nil, 2000)
	all := prompt.Blocks.Append(nil)
	for slot := range uint32(100) {
		n := 40
		if slot%10 == 0 {
			n = 1000 + 10*int(slot)
		}
		index.Enter(slot, blockindex.Prompt{Model: "m", Blocks: messages.ListOf(all[:n]...)})
	}
	return index, prompt
}

func BenchmarkMatch(b *testing.B) {
	index, prompt := hundredEndpoints()
	out := make([]int, 100)
	b.ReportAllocs()
	for b.Loop() {
		index.Match(prompt, out)
	}
}

func BenchmarkEnterAtFullEndpoint(b *testing.B) {
	index, r := blockindex.NewIndex(0), rand.New(rand.NewPCG(11, 12))
	for range 400 {
		index.Enter(0, chain(r, nil, 100))
	}
	b.ReportAllocs()
	for b.Loop() {
		index.Enter(0, chain(r, nil, 64))
	}
}

// BenchmarkPromptLife is all that one request of 8 KB asks of the index, with ten full endpoints: a lookup, an entry of
// a prompt of which three fifths are known, and its use at the end.
func BenchmarkPromptLife(b *testing.B) {
	const endpoints, groups, shared, own = 10, 16, 19, 13
	index, r := blockindex.NewIndex(0), rand.New(rand.NewPCG(13, 14))
	var systems [groups][]uint64
	for i := range systems {
		systems[i] = chain(r, nil, shared).Blocks.Append(nil)
	}
	out := make([]int, endpoints)
	life := func() {
		p := chain(r, systems[r.IntN(groups)], own)
		index.Match(p, out)
		slot := r.Uint32N(endpoints)
		index.Refresh(slot, p, index.Enter(slot, p))
	}
	for range endpoints * blockindex.DefaultCapacity / own {
		life()
	}
	b.ReportAllocs()
	for b.Loop() {
		life()
	}
}

// What was last used by a stamp goes, and with it nothing that was used later. Lead shows the stamps.
func TestDisuse(t *testing.T) {
	x := blockindex.NewIndex(0)
	one := blockindex.Prompt{Model: "m", Blocks: messages.ListOf[uint64](1, 2, 3)}
	two := blockindex.Prompt{Model: "m", Blocks: messages.ListOf[uint64](1, 2, 4, 5)}
	first := x.Enter(0, one)
	second := x.Enter(0, two)
	stamps := func(p blockindex.Prompt) (list []uint64) {
		x.Lead(0, p, func(b blockindex.Block) bool {
			list = append(list, b.Stamp)
			return true
		})
		return list
	}
	if got, want := stamps(one), []uint64{second.Stamp, second.Stamp, first.Stamp}; !slices.Equal(got, want) {
		t.Errorf("stamps %v, want %v", got, want)
	}
	var keys []uint64
	x.Lead(0, two, func(b blockindex.Block) bool {
		keys = append(keys, b.Key)
		return len(keys) < 3
	})
	if len(keys) != 3 || two.Key(second) != keys[2] || one.Key(blockindex.Entry{From: 3, To: 3}) != 0 {
		t.Errorf("keys %v; the first that was added has %v, none has %v", keys, two.Key(second),
			one.Key(blockindex.Entry{From: 3, To: 3}))
	}
	if n := x.Disuse(0, first.Stamp-1); n != 0 {
		t.Errorf("%d blocks went that were used later", n)
	}
	if n := x.Disuse(0, first.Stamp); n != 1 || len(stamps(one)) != 2 || len(stamps(two)) != 4 {
		t.Errorf("%d blocks went, %d and %d are left of the prompts; want 1, 2 and 4", n, len(stamps(one)),
			len(stamps(two)))
	}
	if n := x.Disuse(0, second.Stamp); n != 4 || len(stamps(two)) != 0 || x.Disuse(7, 100) != 0 {
		t.Errorf("%d blocks went, %d are left; want 4 and 0", n, len(stamps(two)))
	}
	if stats := x.Stats(); stats.Held != 0 || stats.Blocks != 0 || stats.Forgotten != 5 {
		t.Errorf("stats %+v", stats)
	}
}

// What is noted of a block stays through its uses, and goes with it.
func TestCount(t *testing.T) {
	x := blockindex.NewIndex(3)
	one := blockindex.Prompt{Model: "m", Blocks: messages.ListOf[uint64](1, 2, 3)}
	count := func(slot uint32, p blockindex.Prompt, blocks, tokens int) (was int) {
		was = -1
		x.Count(slot, p, blocks, func(noted int) int { was = noted; return tokens })
		return was
	}
	tokens := func() (list []int) {
		x.Lead(0, one, func(b blockindex.Block) bool {
			list = append(list, b.Tokens)
			return true
		})
		return list
	}
	first := x.Enter(0, one)
	for _, c := range []struct{ blocks, tokens, was int }{
		{2, 130, 0}, {2, 120, 130}, {3, 1 << 30, 0}, {3, 200, 1<<24 - 1}, {1, -1, 0}, {0, 7, -1},
	} {
		if was := count(0, one, c.blocks, c.tokens); was != c.was {
			t.Errorf("%d blocks had %d tokens before they had %d, want %d", c.blocks, was, c.tokens, c.was)
		}
	}
	again := x.Enter(0, one)
	if got := tokens(); !slices.Equal(got, []int{0, 120, 200}) || again.Stamp != first.Stamp+1 {
		t.Errorf("after another use %v, stamp %d after %d", got, again.Stamp, first.Stamp)
	}
	x.Enter(0, blockindex.Prompt{Model: "m", Blocks: messages.ListOf[uint64](9)})
	if was := count(0, one, 3, 1); was != -1 {
		t.Errorf("a block that is not held has %d tokens", was)
	}
	x.Enter(0, one)
	if got := tokens(); !slices.Equal(got, []int{0, 120, 0}) || count(5, one, 1, 1) != -1 {
		t.Errorf("once the last block is back, %v", got)
	}
}

// A capacity that changes holds from the next prompt on. What was used longest ago makes way.
func TestResize(t *testing.T) {
	r, index := rand.New(rand.NewPCG(3, 3)), blockindex.NewIndex(100)
	prompts := make([]blockindex.Prompt, 10)
	for i := range prompts {
		prompts[i] = chain(r, nil, 10)
		index.Enter(1, prompts[i])
		index.Enter(2, prompts[i])
	}
	for _, c := range []struct{ capacity, held int }{{30, 30}, {0, 40}, {1000, 50}, {5, 5}} {
		index.Resize(1, c.capacity)
		index.Enter(1, chain(r, nil, 10))
		if held := index.Held(1); held != c.held {
			t.Errorf("capacity %d: %d blocks are held, want %d", c.capacity, held, c.held)
		}
	}
	index.Enter(2, chain(r, nil, 10))
	if index.Held(2) != 100 {
		t.Errorf("the other endpoint holds %d blocks, want 100", index.Held(2))
	}
	index.Resize(2, 5)
	index.Enter(2, prompts[9])
	out := make([]int, 3)
	index.Match(prompts[9], out)
	if index.Held(2) != 5 || out[2] != 5 {
		t.Errorf("the other endpoint holds %d blocks, %d of its last prompt; want 5 of it", index.Held(2), out[2])
	}
}
