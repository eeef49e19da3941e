//go:build mutation_stale

package sim_test

import (
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// A stale generation is accepted: what is meant for an endpoint that has left goes to the one that has its slot.
func init() {
	tagged = mutation{tag: "mutation_stale",
		prefix: func(a runtime.Actor[messages.PrefixMsg]) runtime.Actor[messages.PrefixMsg] {
			return &trusting{a, map[uint32]uint32{}}
		}}
}

type trusting struct {
	runtime.Actor[messages.PrefixMsg]
	newest map[uint32]uint32 // generation by slot
}

func (p *trusting) Receive(ctx runtime.Context[messages.PrefixMsg], m messages.PrefixMsg) {
	switch was := m.(type) {
	case messages.PromptPlaced:
		was.Endpoint = p.renewed(was.Endpoint)
		m = was
	case messages.PromptServed:
		was.Endpoint = p.renewed(was.Endpoint)
		m = was
	case messages.EndpointLeft: // the next one is expected already
		p.leave(was.Endpoint)
	case messages.DeparturesListed:
		for _, e := range was.Endpoints.All() {
			p.leave(e)
		}
	case messages.PrefixStarted, messages.PromptEnded:
	}
	p.Actor.Receive(ctx, m)
}

func (p *trusting) leave(e messages.EndpointID) {
	p.newest[e.Slot] = max(p.newest[e.Slot], e.Generation+1)
}

func (p *trusting) renewed(e messages.EndpointID) messages.EndpointID {
	if e.Generation > 0 {
		e.Generation = max(e.Generation, p.newest[e.Slot])
		p.newest[e.Slot] = e.Generation
	}
	return e
}
