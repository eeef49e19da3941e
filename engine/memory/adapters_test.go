package memory

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/messages"
)

// The lists are those of a naive model: the names of each endpoint, the last one first, each once, cut at the limit.
func TestAdaptersAreTheLastOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, a := NewTables(), Adapters{}
		want := map[uint32][]string{}
		for range rapid.IntRange(1, 300).Draw(t, "picks") {
			slot := rapid.Uint32Range(0, 2).Draw(t, "slot")
			name := strconv.Itoa(rapid.IntRange(0, 80).Draw(t, "name"))
			keep(m, start, func(n *Notes) { a.Keep(n, messages.EndpointID{Slot: slot, Generation: 1}, name) })
			rest := slices.DeleteFunc(want[slot], func(s string) bool { return s == name })
			want[slot] = slices.Insert(rest, 0, name)
			want[slot] = want[slot][:min(len(want[slot]), mostAdapters)]
		}
		entries := 0
		for slot, names := range want {
			got := a.Of(m.At(start), messages.EndpointID{Slot: slot, Generation: 1})
			entries += len(names)
			for rank, name := range names {
				if got.Rank(a.Key(name)) != rank || got.Len() != len(names) ||
					rank > 0 && got.Last(rank) >= got.Last(rank-1) {
					t.Fatalf("slot %d: %s has rank %d of %d, want %d of %d, and the last use first", slot, name,
						got.Rank(a.Key(name)), got.Len(), rank, len(names))
				}
			}
		}
		if got := m.Stats(messages.AdapterTable).Entries; got != entries {
			t.Fatalf("%d entries, want %d", got, entries)
		}
	})
}

// An endpoint that came anew begins without adapters, and the endpoints that have any are bounded.
func TestAdaptersOfEndpointsThatWent(t *testing.T) {
	m, a := NewTables(), Adapters{}
	use := func(e messages.EndpointID) { keep(m, start, func(n *Notes) { a.Keep(n, e, "x") }) }
	use(one)
	if a.Of(m.At(start), newer).Len() != 0 {
		t.Error("the incarnation after has the adapters of the one before")
	}
	use(newer)
	if a.Of(m.At(start), one).Len() != 0 || m.Stats(messages.AdapterTable) != (Stats{Entries: 1, Evicted: 1}) {
		t.Errorf("the incarnation before still has its adapters: %+v", m.Stats(messages.AdapterTable))
	}
	use(one)
	if a.Of(m.At(start), newer).Len() != 1 || a.Of(m.At(start), one).Len() != 0 {
		t.Error("a pick of the incarnation before, told late, counts")
	}
	for slot := range uint32(mostEndpoints) {
		use(messages.EndpointID{Slot: 100 + slot, Generation: 1})
	}
	if a.Of(m.At(start), newer).Len() != 0 || m.Stats(messages.AdapterTable).Entries != mostEndpoints {
		t.Errorf("%+v, want those of the last %d endpoints", m.Stats(messages.AdapterTable), mostEndpoints)
	}
	if (Recent{}).Rank(a.Key("x")) != -1 || a.Of(View{}, one).Len() != 0 {
		t.Error("an empty view has adapters")
	}
	m.Reset()
	if a.Of(m.At(start), messages.EndpointID{Slot: 100, Generation: 1}).Len() != 0 ||
		m.Stats(messages.AdapterTable).Entries != 0 {
		t.Error("adapters outlive a reset")
	}
}

func BenchmarkAdaptersOf(b *testing.B) {
	m, a := NewTables(), Adapters{}
	for i := range 16 {
		keep(m, start, func(n *Notes) { a.Keep(n, one, strconv.Itoa(i)) })
	}
	b.ReportAllocs()
	for b.Loop() {
		a.Of(m.At(start), one).Rank(a.Key("none"))
	}
}
