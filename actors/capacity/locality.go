package capacity

import (
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/messages"
)

// Matcher finds how much of a prompt each endpoint holds.
type Matcher interface {
	// Match sets out[slot] to the number of lead blocks that the endpoint in the slot holds, and returns the largest.
	Match(p blockindex.Prompt, out []int) int
}

// places are the endpoints that made room which no turn has taken yet, as far as is known. They are a hint: the pick
// finds whether there is room.
type places struct {
	free    map[messages.EndpointID]int // how much, in requests; above 0
	matches []int                       // by slot; valid within held
}

// mostPlaces bounds the endpoints that are remembered.
const mostPlaces = 1024

// made notes that an endpoint made room for a request.
func (p *places) made(e messages.EndpointID) {
	if e == (messages.EndpointID{}) {
		return
	}
	if len(p.free) >= mostPlaces {
		clear(p.free)
	}
	p.free[e]++
}

// taken notes that a request was picked for.
func (p *places) taken(e messages.EndpointID) {
	if p.free[e] > 1 {
		p.free[e]--
	} else {
		delete(p.free, e)
	}
}

// held returns how many lead blocks of a request's prompt an endpoint holds that has room.
func (a *Capacity) held(e *flow.Entry) (most int) {
	if len(a.places.free) == 0 || e.Prefix.Blocks.Len() == 0 {
		return 0
	}
	slots := 0
	for id := range a.places.free {
		slots = max(slots, int(id.Slot)+1)
	}
	if len(a.places.matches) < slots {
		a.places.matches = make([]int, slots)
	}
	matches := a.places.matches[:slots]
	if a.deps.Prefixes.Match(e.Prefix, matches) == 0 {
		return 0
	}
	for id := range a.places.free {
		most = max(most, matches[id.Slot])
	}
	return most
}
