package queues

import (
	"math/bits"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

// MaxMinHeap keeps requests in the order of the keys that the ordering gave them, and of their arrival where these are
// equal. It knows the first and the last one at once; entering and removing take O(log n).
type MaxMinHeap struct{}

// Validate returns nil: there are no parameters.
func (*MaxMinHeap) Validate() error { return nil }

// Can returns what the queue can do.
func (*MaxMinHeap) Can() flow.Ability {
	return flow.KeyOrder | flow.Removal | flow.TailPeek | flow.Listing
}

// New returns an empty queue.
func (*MaxMinHeap) New() flow.Queue { return new(heap) }

// heap is a min-max heap: an entry on an even level goes before all below it, one on an odd level goes after all below
// it. An entry's Place is its index.
//
// Source: Atkinson, Sack, Santoro and Strothotte, "Min-max heaps and generalized priority queues", 1986.
type heap struct{ entries []*flow.Entry }

func (h *heap) Head() *flow.Entry { return h.entries[0] }
func (h *heap) Len() int          { return len(h.entries) }

// List calls yield with the entries as they stand in the heap.
func (h *heap) List(yield func(*flow.Entry) bool) {
	for _, e := range h.entries {
		if !yield(e) {
			return
		}
	}
}

func (h *heap) Tail() *flow.Entry {
	switch len(h.entries) {
	case 1:
		return h.entries[0]
	case 2:
		return h.entries[1]
	}
	if h.entries[1].Before(h.entries[2]) {
		return h.entries[2]
	}
	return h.entries[1]
}

func (h *heap) Push(e *flow.Entry) {
	e.Place = len(h.entries)
	h.entries = append(h.entries, e)
	h.up(e.Place)
}

func (h *heap) Remove(e *flow.Entry) {
	at, last := e.Place, len(h.entries)-1
	h.swap(at, last)
	h.entries[last] = nil
	h.entries = h.entries[:last]
	if at < last {
		h.up(at)   // the one that took its place may belong above,
		h.down(at) // and the one that came down for that below
	}
}

// up moves the entry at i towards the root, on its own levels or on those between.
func (h *heap) up(i int) {
	if i == 0 {
		return
	}
	late := isLate(i)
	if parent := (i - 1) / 2; h.goes(i, parent, !late) { // it belongs on the other levels
		h.swap(i, parent)
		i, late = parent, !late
	}
	for i > 2 {
		grandparent := ((i-1)/2 - 1) / 2
		if !h.goes(i, grandparent, late) {
			return
		}
		h.swap(i, grandparent)
		i = grandparent
	}
}

// down moves the entry at i away from the root.
func (h *heap) down(i int) {
	late := isLate(i)
	for {
		first := h.firstBelow(i, late)
		if first < 0 || !h.goes(first, i, late) {
			return
		}
		h.swap(first, i)
		if first <= 2*i+2 { // a child: it has none below it that goes before
			return
		}
		if parent := (first - 1) / 2; h.goes(parent, first, late) {
			h.swap(parent, first)
		}
		i = first
	}
}

// firstBelow returns which child or grandchild of i goes before the others, or on late levels after them; -1 = there
// is none.
func (h *heap) firstBelow(i int, late bool) int {
	first := -1
	for _, below := range [2]struct{ from, to int }{{2*i + 1, 2*i + 3}, {4*i + 3, 4*i + 7}} {
		for j := below.from; j < min(below.to, len(h.entries)); j++ {
			if first < 0 || h.goes(j, first, late) {
				first = j
			}
		}
	}
	return first
}

// goes reports whether the entry at i goes before that at j, or with late after it.
func (h *heap) goes(i, j int, late bool) bool {
	if late {
		return h.entries[j].Before(h.entries[i])
	}
	return h.entries[i].Before(h.entries[j])
}

func (h *heap) swap(i, j int) {
	h.entries[i], h.entries[j] = h.entries[j], h.entries[i]
	h.entries[i].Place, h.entries[j].Place = i, j
}

// isLate reports whether an index is on a level whose entries go after all below them.
func isLate(i int) bool { return bits.Len(uint(i+1))%2 == 0 }
