package pool

import (
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// slots are the places that endpoints have in the prefix index.
//
//	┌──────┐   take    ┌───────┐  withdraw   ┌──────────┐
//	│ free │ ────────► │ taken │ ──────────► │ clearing │
//	└──────┘           └───────┘             └──────────┘
//	    ▲                                          │
//	    └──────────────────────────────────────────┘
//	              SlotCleared, PrefixLost
//
// Each slot below count is in one of these states, and only those in free are given out, before a new one is.
type slots struct {
	count      uint32
	free       []uint32                       // the next one last
	clearing   map[uint32]messages.EndpointID // what left, and prefix has yet to clear
	departed   map[uint32]messages.EndpointID // the incarnation that left each slot last
	askedBelow uint32                         // this incarnation of the pool has asked for the slots below this one
}

// take returns a slot that prefix has cleared, or a new one.
func (s *slots) take() uint32 {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		return slot
	}
	s.count++
	return s.count - 1
}

// remind tells prefix which endpoints have left, as far as it is known: an incarnation that knows of none would take
// prompts that were picked for them and come late.
func (p *Pool) remind() {
	var left []messages.EndpointID
	for slot := range p.slots.count {
		id, known := p.slots.clearing[slot]
		if !known {
			id, known = p.slots.departed[slot]
		}
		if known {
			left = append(left, id)
		}
	}
	if len(left) > 0 {
		p.deps.Prefix.Tell(messages.DeparturesListed{Endpoints: messages.TakeList(left)})
	}
}

// ask has prefix say again that a slot is clear, if the incarnation before may have missed it: one slot at a time, so
// that a panic at an answer brings one question more, not one for each slot.
func (p *Pool) ask(ctx runtime.Context[messages.PoolMsg]) {
	for p.slots.askedBelow < p.slots.count {
		id, ok := p.slots.clearing[p.slots.askedBelow]
		p.slots.askedBelow++
		if ok {
			p.deps.Prefix.Tell(messages.EndpointLeft{Endpoint: id, Pool: ctx.Self()})
			return
		}
	}
}

func (p *Pool) onSlotCleared(ctx runtime.Context[messages.PoolMsg], m messages.SlotCleared) {
	if id, ok := p.slots.clearing[m.Endpoint.Slot]; ok && id == m.Endpoint {
		delete(p.slots.clearing, m.Endpoint.Slot)
		p.slots.free = append(p.slots.free, m.Endpoint.Slot)
	}
	if m.Endpoint.Slot+1 == p.slots.askedBelow {
		p.ask(ctx)
	}
}

func (p *Pool) onPrefixLost(ctx runtime.Context[messages.PoolMsg]) {
	p.slots.free = append(p.slots.free, sortedKeys(p.slots.clearing)...)
	clear(p.slots.clearing)
	ctx.Watch(p.deps.Prefix, messages.PrefixLost{})
	p.remind()
}
