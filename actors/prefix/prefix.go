package prefix

import (
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// Prefix is the actor. The index outlives its incarnations, so that readers need no new address: it is cleared in place
// when one ends, whatever state a panic left it in.
type Prefix struct {
	index   *blockindex.Index
	metrics *Metrics
	placed  map[messages.RequestID]placement
	floors  []uint32              // by slot: the oldest generation that is not gone
	leaving map[uint32]*departure // by slot: what is being cleared
}

// partBlocks are cleared by one message: some 25 µs. A full slot has 61 times as many.
const partBlocks = 512

// placement is a prompt that a live request has in the index.
type placement struct {
	endpoint messages.EndpointID
	prompt   blockindex.Prompt
	entry    blockindex.Entry
	served   bool // confirmed by response headers
}

// departure is an endpoint whose slot is being cleared.
type departure struct {
	endpoint messages.EndpointID
	asked    []messages.EndpointLeft // to be answered when nothing is left
}

// New returns an incarnation, which is the only writer of the index from now on.
func New(index *blockindex.Index, metrics *Metrics) *Prefix {
	return &Prefix{
		index: index, metrics: metrics, placed: map[messages.RequestID]placement{}, leaving: map[uint32]*departure{},
	}
}

// Receive follows a prompt from the pick to the end of its request.
func (p *Prefix) Receive(ctx runtime.Context[messages.PrefixMsg], m messages.PrefixMsg) {
	switch m := m.(type) {
	case messages.PrefixStarted:
		p.index.Reset()
	case messages.PromptPlaced:
		p.onPromptPlaced(m)
	case messages.PromptServed:
		p.onPromptServed(m)
	case messages.PromptEnded:
		p.onPromptEnded(m)
	case messages.EndpointLeft:
		p.onEndpointLeft(ctx, m)
	case messages.DeparturesListed:
		p.onDeparturesListed(ctx, m)
	case messages.SlotPartCleared:
		p.clearPart(ctx, m.Endpoint)
	}
	p.metrics.show(p.index.Stats(), len(p.placed))
}

func (p *Prefix) onPromptPlaced(m messages.PromptPlaced) {
	p.withdraw(m.Request) // a request is at one place only
	if !p.admits(m.Endpoint) {
		return
	}
	prompt := blockindex.Prompt{Model: m.Model, Salt: m.Salt, Blocks: m.Blocks}
	p.placed[m.Request] = placement{
		endpoint: m.Endpoint, prompt: prompt, entry: p.index.Enter(m.Endpoint.Slot, prompt),
	}
}

func (p *Prefix) onPromptServed(m messages.PromptServed) {
	placed, ok := p.placed[m.Request]
	if !ok {
		return
	}
	if placed.endpoint == m.Endpoint && p.admits(m.Endpoint) {
		placed.served = true
		p.placed[m.Request] = placed
		return
	}
	p.withdraw(m.Request)
	if !p.admits(m.Endpoint) {
		return
	}
	placed.endpoint, placed.served = m.Endpoint, true
	placed.entry = p.index.Enter(m.Endpoint.Slot, placed.prompt)
	p.placed[m.Request] = placed
}

// onPromptEnded counts the end of a served request as a use: a server lets go of its blocks only then.
func (p *Prefix) onPromptEnded(m messages.PromptEnded) {
	placed, ok := p.placed[m.Request]
	if !ok || !placed.served || m.Failed {
		p.withdraw(m.Request)
		return
	}
	if p.admits(placed.endpoint) {
		p.index.Refresh(placed.endpoint.Slot, placed.prompt, placed.entry)
	}
	delete(p.placed, m.Request)
}

// onEndpointLeft answers when nothing of the slot is left.
func (p *Prefix) onEndpointLeft(ctx runtime.Context[messages.PrefixMsg], m messages.EndpointLeft) {
	if leaving := p.leaving[m.Endpoint.Slot]; leaving != nil {
		p.close(m.Endpoint)
		leaving.asked = append(leaving.asked, m)
		return
	}
	if !p.admits(m.Endpoint) {
		m.Pool.Tell(messages.SlotCleared{Endpoint: m.Endpoint})
		return
	}
	p.leave(ctx, m.Endpoint, m)
}

func (p *Prefix) onDeparturesListed(ctx runtime.Context[messages.PrefixMsg], m messages.DeparturesListed) {
	for _, e := range m.Endpoints.All() {
		if p.leaving[e.Slot] != nil {
			p.close(e)
		} else if p.admits(e) {
			p.leave(ctx, e)
		}
	}
}

// close lets nothing of an endpoint into its slot any more, nor of one that was there before.
func (p *Prefix) close(e messages.EndpointID) {
	p.floors[e.Slot] = max(p.floors[e.Slot], e.Generation+1)
}

// leave closes a slot to its endpoint at once, and clears it part by part: other messages come in between.
func (p *Prefix) leave(ctx runtime.Context[messages.PrefixMsg], e messages.EndpointID, asked ...messages.EndpointLeft) {
	p.close(e)
	p.leaving[e.Slot] = &departure{endpoint: e, asked: asked}
	p.clearPart(ctx, e)
}

// clearPart clears some of a slot, and tells itself to go on or the pool that nothing is left.
func (p *Prefix) clearPart(ctx runtime.Context[messages.PrefixMsg], e messages.EndpointID) {
	if leaving := p.leaving[e.Slot]; leaving == nil || leaving.endpoint != e {
		return // it was cleared as a whole meanwhile
	}
	p.index.ClearSome(e.Slot, partBlocks)
	if p.index.Held(e.Slot) > 0 {
		ctx.Self().Tell(messages.SlotPartCleared{Endpoint: e})
		return
	}
	p.cleared(e.Slot)
}

// cleared tells the pools that wait for the slot.
func (p *Prefix) cleared(slot uint32) {
	leaving := p.leaving[slot]
	delete(p.leaving, slot)
	if leaving == nil {
		return
	}
	for _, m := range leaving.asked {
		m.Pool.Tell(messages.SlotCleared{Endpoint: m.Endpoint})
	}
}

// withdraw takes a request's own blocks out, and forgets it.
func (p *Prefix) withdraw(id messages.RequestID) {
	placed, ok := p.placed[id]
	if !ok {
		return
	}
	delete(p.placed, id)
	if p.admits(placed.endpoint) {
		p.index.Withdraw(placed.endpoint.Slot, placed.prompt, placed.entry)
	}
}

// admits reports whether an incarnation of an endpoint may hold blocks: it is not gone. For one that is newer than any
// seen before it clears the slot: the pool takes care that it is clear, but blocks that were picked for the older one
// on an old snapshot may have come after a restart of this actor.
func (p *Prefix) admits(e messages.EndpointID) bool {
	if e.Generation == 0 || e.Slot >= blockindex.MaxSlots {
		return false
	}
	for int(e.Slot) >= len(p.floors) {
		p.floors = append(p.floors, 0)
	}
	floor := &p.floors[e.Slot]
	if e.Generation > *floor || e.Generation == *floor && p.leaving[e.Slot] != nil {
		p.index.ClearSlot(e.Slot)
		*floor = e.Generation
		p.cleared(e.Slot)
	}
	return e.Generation == *floor
}

// Stopped leaves the index empty: nothing would withdraw what is provisional, or forget an endpoint that leaves.
func (p *Prefix) Stopped(runtime.Context[messages.PrefixMsg]) {
	p.index.Reset()
	clear(p.placed)
	clear(p.leaving)
	p.metrics.show(p.index.Stats(), 0)
}
