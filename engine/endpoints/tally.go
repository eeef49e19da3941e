package endpoints

import (
	"iter"
	"maps"
	"sync/atomic"
)

// TallyLabels is how many labels a Tally tells apart. Any further label is counted as "other".
const TallyLabels = 64

// Tally counts by label. Any goroutine may count and read: when a label is added, the map of the labels is replaced,
// never changed. Counting under a known label is a lookup and an addition. The zero Tally is empty.
type Tally struct {
	counts atomic.Pointer[map[string]*atomic.Uint64]
}

// Add adds one to the count of a label.
func (t *Tally) Add(label string) {
	for {
		known := t.counts.Load()
		if known != nil {
			if n, ok := (*known)[label]; ok {
				n.Add(1)
				return
			}
			if len(*known) >= TallyLabels && label != "other" {
				label = "other"
				continue
			}
		}
		more := make(map[string]*atomic.Uint64, 1)
		if known != nil {
			more = maps.Clone(*known)
		}
		more[label] = new(atomic.Uint64)
		t.counts.CompareAndSwap(known, &more) // the next round adds to this map, or to that of a faster goroutine
	}
}

// All ranges over the labels with their counts, in no particular order.
func (t *Tally) All() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		known := t.counts.Load()
		if known == nil {
			return
		}
		for label, n := range *known {
			if !yield(label, n.Load()) {
				return
			}
		}
	}
}
