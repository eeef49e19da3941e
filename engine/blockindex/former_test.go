package blockindex_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/messages"
)

// numbers returns the home and the credit of an endpoint.
func numbers(x *blockindex.Index, slot uint32, p blockindex.Prompt) [2]int {
	out := make([]int, slot+1)
	x.Homes(p, out)
	return [2]int{out[slot], x.Credit(p, slot, out[slot])}
}

func prompt(blocks ...uint64) blockindex.Prompt {
	for i := range blocks { // as hashes are, for the index
		blocks[i] *= 0x9E3779B97F4A7C15
	}
	return blockindex.Prompt{Model: "m", Blocks: messages.TakeList(blocks)}
}

// What an endpoint has lost gives no credit, and is at home there still.
func TestHomeOutlivesTheCredit(t *testing.T) {
	long, other := prompt(1, 2, 3, 4), prompt(7, 8)
	for name, c := range map[string]struct {
		play func(*blockindex.Index)
		want [2]int // of long
	}{
		"nothing lost": {func(*blockindex.Index) {}, [2]int{4, 4}},
		"all":          {func(x *blockindex.Index) { x.Disuse(0, math.MaxUint64) }, [2]int{4, 0}},
		"its end": {func(x *blockindex.Index) {
			e := x.Enter(0, long)
			x.Lose(0, long, blockindex.Entry{From: 1, To: 4, Stamp: e.Stamp})
		}, [2]int{4, 1}},
		"computed again": {func(x *blockindex.Index) {
			x.Disuse(0, math.MaxUint64)
			x.Enter(0, prompt(1, 2, 3))
		}, [2]int{4, 3}},
		"computed again in vain": {func(x *blockindex.Index) {
			x.Disuse(0, math.MaxUint64)
			x.Withdraw(0, long, x.Enter(0, long))
		}, [2]int{4, 0}},
		"lost, and others come": {func(x *blockindex.Index) {
			x.Disuse(0, math.MaxUint64)
			x.Enter(0, prompt(11, 12, 13, 14, 15, 16))
		}, [2]int{2, 0}},
		"lost twice": {func(x *blockindex.Index) {
			x.Disuse(0, math.MaxUint64)
			x.Enter(0, long)
			x.Disuse(0, math.MaxUint64)
			x.Enter(0, prompt(11, 12, 13, 14))
		}, [2]int{4, 0}},
		"the endpoint leaves": {func(x *blockindex.Index) {
			x.Disuse(0, math.MaxUint64)
			x.ClearSlot(0)
		}, [2]int{0, 0}},
		"all is forgotten": {func(x *blockindex.Index) {
			x.Disuse(0, math.MaxUint64)
			x.Reset()
		}, [2]int{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			x := blockindex.NewIndex(8)
			x.Enter(0, other)
			x.Enter(1, long)
			x.Enter(0, long)
			c.play(x)
			if got := numbers(x, 0, long); got != c.want {
				t.Errorf("home and credit are %v, want %v", got, c.want)
			}
			if want := ([2]int{4, 4}); name != "all is forgotten" && numbers(x, 1, long) != want {
				t.Errorf("home and credit of another one are %v, want %v", numbers(x, 1, long), want)
			}
		})
	}
}

// Whatever happens, the credit is what Match finds, a home is no less, and both together are bounded.
func TestHomesAndCredit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.SampledFrom([]int{1, 4, 9, 40}).Draw(t, "capacity")
		x := blockindex.NewIndex(capacity)
		slot := rapid.SampledFrom([]uint32{0, 0, 0, 1, 64})
		newest := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				s, p := slot.Draw(t, "slot"), drawPrompt(t)
				e := x.Enter(s, p)
				newest = e.Stamp
				switch rapid.IntRange(0, 3).Draw(t, "then") {
				case 0:
					x.Withdraw(s, p, e)
				case 1:
					before := numbers(x, s, p)
					x.Lose(s, p, e)
					if got, want := numbers(x, s, p), ([2]int{before[0], e.From}); got != want {
						t.Fatalf("home and credit were %v and are %v, want %v", before, got, want)
					}
				}
			},
			"disuse": func(t *rapid.T) {
				x.Disuse(slot.Draw(t, "slot"), newest-min(newest, rapid.Uint64Range(0, 5).Draw(t, "age")))
			},
			"clear": func(t *rapid.T) {
				s := slot.Draw(t, "slot")
				if x.ClearSome(s, 3); x.Held(s) == 0 && numbers(x, s, drawPrompt(t)) != [2]int{} {
					t.Fatal("a slot that holds nothing is a home")
				}
			},
			"": func(t *rapid.T) {
				p := drawPrompt(t)
				out, homes := make([]int, 65), make([]int, 65)
				x.Match(p, out)
				x.Homes(p, homes)
				for s := range out {
					if c := x.Credit(
						p,
						uint32(s),
						homes[s],
					); c != out[s] || homes[s] < c ||
						x.Held(uint32(s)) > capacity {
						t.Fatalf(
							"slot %d: home %d, credit %d, match %d, held %d",
							s,
							homes[s],
							c,
							out[s],
							x.Held(uint32(s)),
						)
					}
				}
			},
		})
		x.Reset()
		if got := x.Stats().Bytes; got != 0 {
			t.Fatalf("after Reset: %d bytes, want 0", got)
		}
	})
}
