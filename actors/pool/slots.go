package pool

import (
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// slots hands out the slots of the prefix index.
//
//	┌──────┐   take    ┌───────┐  withdraw   ┌──────────┐
//	│ free │ ────────► │ taken │ ──────────► │ clearing │
//	└──────┘           └───────┘             └──────────┘
//	    ▲                                          │
//	    └──────────────────────────────────────────┘
//	              SlotCleared, PrefixLost
//
// Each slot below count is in exactly one of these states. A free slot is given out before a new one.
type slots struct {
	count      uint32
	free       []uint32                       // the last one is given out next
	clearing   map[uint32]messages.EndpointID // by slot: the incarnation that left and that prefix has yet to clear
	departed   map[uint32]messages.EndpointID // by slot: the incarnation that left it last
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

// remind tells prefix which incarnations left their slots last, as far as they are known. A prefix actor that does not
// know them would enter prompts that were placed at them and arrive late.
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

// ask has prefix say again that a slot is clear, because the earlier incarnation of the pool may have missed it. It
// asks for one slot at a time, so that a panic at an answer costs one question more, not one for each slot.
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
