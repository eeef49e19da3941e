package endpoints

import (
	"iter"
	"maps"
	"sync/atomic"

	"github.com/signalbox-epp/signalbox/engine/cow"
)

// TallyLabels is how many labels a Tally tells apart. Any further label is counted as "other".
const TallyLabels = 64

// Tally counts by label. Any goroutine may count and read: counting under a known label is a lookup and an addition.
// The zero Tally is empty.
type Tally struct {
	counts cow.Map[string, *atomic.Uint64]
}

// Add adds one to the count of a label.
func (t *Tally) Add(label string) {
	n, known := t.counts.Get(label)
	if !known {
		n = t.enter(label)
	}
	n.Add(1)
}

// enter returns the count of a label, which it adds if there is room; else that of "other".
func (t *Tally) enter(label string) (n *atomic.Uint64) {
	t.counts.Change(func(now map[string]*atomic.Uint64) map[string]*atomic.Uint64 {
		key := label
		if now[key] == nil && len(now) >= TallyLabels {
			key = "other"
		}
		if n = now[key]; n != nil {
			return nil
		}
		next := make(map[string]*atomic.Uint64, len(now)+1)
		maps.Copy(next, now)
		n = new(atomic.Uint64)
		next[key] = n
		return next
	})
	return n
}

// All ranges over the labels with their counts, in no particular order.
func (t *Tally) All() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		for label, n := range t.counts.All() {
			if !yield(label, n.Load()) {
				return
			}
		}
	}
}
