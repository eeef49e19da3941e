package records

import (
	"maps"
	"sync/atomic"
)

// Names is a set of labels that only grows, up to a limit. Any loop may add and anyone may ask: the labels stand in a
// map that is replaced, never changed, when some are added. Asking is a lookup.
type Names struct {
	limit int
	known atomic.Pointer[map[string]struct{}] // nil = none
}

// NewNames is a set of at most limit labels. It is empty.
func NewNames(limit int) *Names { return &Names{limit: limit} }

// Has reports whether a label is in the set. It must be a label already: see Label.
func (n *Names) Has(label string) bool {
	known := n.known.Load()
	if known == nil {
		return false
	}
	_, ok := (*known)[label]
	return ok
}

// Add adds the labels of texts of clients or servers, in one step. What the set has no room for is left out.
func (n *Names) Add(texts ...string) {
	for {
		old := n.known.Load()
		more := n.with(old, texts)
		if more == nil || n.known.CompareAndSwap(old, more) {
			return
		}
	}
}

// with is the set old and what is new in texts; nil if nothing is, or the set is full.
func (n *Names) with(old *map[string]struct{}, texts []string) *map[string]struct{} {
	var known, more map[string]struct{}
	if old != nil {
		known = *old
	}
	for _, text := range texts {
		label := Label(text)
		if _, ok := known[label]; ok || max(len(known), len(more)) >= n.limit {
			continue
		}
		if more == nil {
			more = make(map[string]struct{}, len(known)+len(texts))
			maps.Copy(more, known)
		}
		more[label] = struct{}{}
	}
	if more == nil {
		return nil
	}
	replaced := more // more itself would be allocated where nothing is new
	return &replaced
}
