package endpoints

import (
	"iter"
	"maps"
	"sync/atomic"
)

// TallyLabels is how many labels a Tally tells apart; what is counted under a further one goes to "other".
const TallyLabels = 64

// Tally counts by label. Any loop may count and any goroutine may read: labels stand in a map that is replaced, never
// changed, when one is added. Counting under a known label is a lookup and an addition. The zero Tally is empty.
type Tally struct {
	counts atomic.Pointer[map[string]*atomic.Uint64]
}

// Add counts one.
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
		t.counts.CompareAndSwap(known, &more) // what was faster is seen in the next round
	}
}

// All yields every label with its count, in no order.
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
