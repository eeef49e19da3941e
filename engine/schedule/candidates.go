package schedule

import (
	"iter"
	"slices"

	"github.com/signalbox-epp/signalbox/messages"
)

// endpoint is what one request sees of an endpoint beside its attributes. Its values are read once, so that every
// plugin sees the same.
type endpoint struct {
	id      messages.EndpointID
	address messages.Address
	labels  map[string]string // nil reads as empty
}

// Candidates are the endpoints that are left for a request. Plugins can only read them, because the runs of other
// profiles and the next requests read the same memory.
type Candidates struct {
	all   []endpoint
	place []int // place[i] is the index of candidate i in all
}

// Len returns the number of candidates.
func (c Candidates) Len() int { return len(c.place) }

// At returns candidate i, counted from 0.
func (c Candidates) At(i int) Candidate { return Candidate{&c.all[c.place[i]]} }

// All returns an iterator over all candidates in their order.
func (c Candidates) All() iter.Seq2[int, Candidate] {
	return func(yield func(int, Candidate) bool) {
		for i := range c.place {
			if !yield(i, c.At(i)) {
				return
			}
		}
	}
}

// Candidate is one of Candidates. It is valid until the call of the plugin returns.
type Candidate struct{ endpoint *endpoint }

// ID returns the endpoint's slot and generation.
func (c Candidate) ID() messages.EndpointID { return c.endpoint.id }

// Address returns where the endpoint listens.
func (c Candidate) Address() messages.Address { return c.endpoint.address }

// Label returns the value of a label, and whether the endpoint has it.
func (c Candidate) Label(key string) (string, bool) {
	value, ok := c.endpoint.labels[key]
	return value, ok
}

// Numbers is a number attribute of all candidates, in their order; NaN = unknown. Plugins can only read it. It is valid
// until the call of the plugin returns.
type Numbers struct{ column []float64 }

// Len returns the number of candidates.
func (n Numbers) Len() int { return len(n.column) }

// At returns the value of candidate i; NaN = unknown.
func (n Numbers) At(i int) float64 { return n.column[i] }

// Names is an attribute of all candidates, in their order, that lists names. Plugins can only read it. It is valid
// until the call of the plugin returns.
type Names struct{ column [][]string }

// Count returns how many names candidate i has; -1 = unknown.
func (n Names) Count(i int) int {
	if n.column[i] == nil {
		return -1
	}
	return len(n.column[i])
}

// Of returns the names of candidate i; empty if they are unknown.
func (n Names) Of(i int) messages.List[string] { return messages.TakeList(n.column[i]) }

// Contains reports whether a name is among those of candidate i. Unknown names contain none.
func (n Names) Contains(i int, name string) bool { return slices.Contains(n.column[i], name) }
