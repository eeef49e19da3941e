package blockindex_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/messages"
)

// naive is the index as one would write it down: for each slot a list of blocks, the most recently used first.
type naive struct {
	capacity int
	slots    map[uint32][]naiveBlock
	stamp    uint64
}

type naiveBlock struct {
	name  string // model, salt and the chain up to here
	stamp uint64
}

func names(p blockindex.Prompt) []string {
	out := []string{}
	for _, h := range p.Blocks.All() {
		out = append(out, fmt.Sprint(p.Model, "/", p.Salt, "/", h))
	}
	return out
}

func (n *naive) position(slot uint32, name string) int {
	return slices.IndexFunc(n.slots[slot], func(b naiveBlock) bool { return b.name == name })
}

func (n *naive) lead(slot uint32, p blockindex.Prompt) (count int) {
	for _, name := range names(p) {
		if n.position(slot, name) < 0 {
			break
		}
		count++
	}
	return count
}

// enter uses the blocks one by one from the end to the start, and then drops what is too much.
func (n *naive) enter(slot uint32, p blockindex.Prompt, upTo int) {
	n.stamp++
	all := names(p)
	for i := upTo - 1; i >= 0; i-- {
		if at := n.position(slot, all[i]); at >= 0 {
			n.slots[slot] = slices.Delete(n.slots[slot], at, at+1)
		}
		n.slots[slot] = slices.Insert(n.slots[slot], 0, naiveBlock{name: all[i], stamp: n.stamp})
	}
	n.slots[slot] = n.slots[slot][:min(len(n.slots[slot]), n.capacity)]
}

func (n *naive) withdraw(slot uint32, p blockindex.Prompt, from, to int, stamp uint64) (count int) {
	all := names(p)
	for i := to - 1; i >= from; i-- {
		at := n.position(slot, all[i])
		if at < 0 {
			continue
		}
		if n.slots[slot][at].stamp != stamp {
			break
		}
		n.slots[slot] = slices.Delete(n.slots[slot], at, at+1)
		count++
	}
	return count
}

type placed struct {
	slot       uint32
	p          blockindex.Prompt
	entry      blockindex.Entry
	naiveStamp uint64
}

func drawPrompt(t *rapid.T) blockindex.Prompt {
	letters := rapid.SliceOfN(rapid.IntRange(0, 1), 1, 14).Draw(t, "letters")
	var chain []uint64
	text := ""
	for _, l := range letters {
		text += string(rune('a' + l))
		chain = append(chain, xxhash.Sum64String(text))
	}
	return blockindex.Prompt{
		Model: rapid.SampledFrom([]string{"m", "m", "m", "n"}).Draw(t, "model"),
		Salt:  rapid.SampledFrom([]string{"", "", "", "s"}).Draw(t, "salt"), Blocks: messages.TakeList(chain),
	}
}

// Slot 0 comes often, so that it fills and evicts; the others are enough for holders to outgrow a word.
var testSlots = []uint32{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 63, 64, 200, 4095}

func TestIndexEqualsNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.SampledFrom([]int{1, 2, 4, 6, 9, 14, 40}).Draw(t, "capacity")
		index := blockindex.NewIndex(capacity)
		model := &naive{capacity: capacity, slots: map[uint32][]naiveBlock{}}
		var entries []placed
		slot := rapid.SampledFrom(testSlots)
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				s, p := slot.Draw(t, "slot"), drawPrompt(t)
				upTo := min(p.Blocks.Len(), capacity)
				from := min(model.lead(s, p), upTo)
				got := index.Enter(s, p)
				model.enter(s, p, upTo)
				if got.From != from || got.To != upTo {
					t.Fatalf("slot %d: entered %d to %d, want %d to %d", s, got.From, got.To, from, upTo)
				}
				entries = append(entries, placed{slot: s, p: p, entry: got, naiveStamp: model.stamp})
			},
			"touch": func(t *rapid.T) {
				s, p := slot.Draw(t, "slot"), drawPrompt(t)
				want := min(model.lead(s, p), capacity)
				if got := index.Touch(s, p); got != want {
					t.Fatalf("slot %d: touched %d, want %d", s, got, want)
				}
				model.enter(s, p, want)
			},
			"withdraw": func(t *rapid.T) {
				if len(entries) == 0 {
					return
				}
				i := rapid.IntRange(0, len(entries)-1).Draw(t, "entry")
				e := entries[i]
				entries = slices.Delete(entries, i, i+1)
				want := model.withdraw(e.slot, e.p, e.entry.From, e.entry.To, e.naiveStamp)
				if got := index.Withdraw(e.slot, e.p, e.entry); got != want {
					t.Fatalf("slot %d: withdrew %d, want %d", e.slot, got, want)
				}
			},
			"clear": func(t *rapid.T) {
				s := slot.Draw(t, "slot")
				if got, want := index.ClearSlot(s), len(model.slots[s]); got != want {
					t.Fatalf("slot %d: forgot %d, want %d", s, got, want)
				}
				delete(model.slots, s)
			},
			"": func(t *rapid.T) { compare(t, index, model, drawPrompt(t)) },
		})
		index.Reset()
		model.slots = map[uint32][]naiveBlock{}
		compare(t, index, model, drawPrompt(t))
		if got := index.Stats().Bytes; got != 0 {
			t.Fatalf("after Reset: %d bytes, want 0", got)
		}
	})
}

func compare(t *rapid.T, index *blockindex.Index, model *naive, p blockindex.Prompt) {
	out := make([]int, rapid.SampledFrom([]int{3, 64, 65, 4096}).Draw(t, "slots looked at"))
	best := index.Match(p, out)
	wantBest := 0
	for slot, got := range out {
		want := 0
		if len(model.slots[uint32(slot)]) > 0 {
			want = model.lead(uint32(slot), p)
		}
		if got != want {
			t.Fatalf("slot %d holds %d lead blocks of %v, want %d", slot, got, names(p), want)
		}
		wantBest = max(wantBest, want)
	}
	distinct, held := map[string]bool{}, 0
	for slot, blocks := range model.slots {
		held += len(blocks)
		for _, b := range blocks {
			distinct[b.name] = true
		}
		if got := index.Held(slot); got != len(blocks) {
			t.Fatalf("slot %d: holds %d, want %d", slot, got, len(blocks))
		}
	}
	if s := index.Stats(); best != wantBest || s.Held != held || s.Blocks != len(distinct) {
		t.Fatalf("best %d, want %d; stats %+v, want %d held, %d blocks", best, wantBest, s, held, len(distinct))
	}
	if s := index.Stats(); s.Entered-s.Evicted-s.Withdrawn-s.Forgotten != uint64(held) {
		t.Fatalf("stats %+v do not add up to %d held", s, held)
	}
}
