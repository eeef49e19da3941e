package records

import (
	"maps"
	"sync/atomic"
)

// Names is a set of labels that only grows, up to a limit. Any goroutine may add and ask: when labels are added, the
// map that holds them is replaced, never changed.
type Names struct {
	limit int
	known atomic.Pointer[map[string]struct{}] // nil = none
}

// NewNames returns an empty set for at most limit labels.
func NewNames(limit int) *Names { return &Names{limit: limit} }

// Has reports whether a label is in the set. label must be what Label returns.
func (n *Names) Has(label string) bool {
	known := n.known.Load()
	if known == nil {
		return false
	}
	_, ok := (*known)[label]
	return ok
}

// Add adds the labels of texts that come from clients or servers. Labels for which the set has no room are left out.
func (n *Names) Add(texts ...string) {
	for {
		old := n.known.Load()
		more := n.with(old, texts)
		if more == nil || n.known.CompareAndSwap(old, more) {
			return
		}
	}
}

// with returns the set old with the new labels of texts; nil = there are none, or the set is full.
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
	replaced := more // returning &more would allocate more even if nothing is new
	return &replaced
}
