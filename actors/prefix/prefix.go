package prefix

import (
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// Prefix is the actor. The index outlives its incarnations, so that its readers need not be told of a new one. It is
// cleared in place when an incarnation ends, whatever state a panic left it in.
type Prefix struct {
	index   *blockindex.Index
	pool    *endpoints.Published
	metrics *Metrics
	placed  map[messages.RequestID]*placement
	spare   []*placement          // to be used again, so that a pick allocates nothing; no request's
	floors  []uint32              // by slot: the oldest generation that may hold blocks; 0 = none was seen
	leaving map[uint32]*departure // by slot: the endpoint whose blocks are being cleared
	audits  audits
	tokens  blockindex.TokenBytes

	sizes         messages.PrefixSizes // of the newest configuration that has placed a prompt
	configuration uint64               // its number
}

// partBlocks is how many blocks one message clears, in some 25 µs. A full slot has 61 times as many.
const partBlocks = 512

// placement is a prompt that a live request has in the index.
type placement struct {
	endpoint messages.EndpointID
	prompt   blockindex.Prompt
	entry    blockindex.Entry
	stages   []held // where else the prompt stands
	served   bool   // confirmed by response headers
	follows  bool   // as its configuration has it; see messages.PrefixSizes
	lead     lead
}

// held is an entry of a prompt at a stage.
type held struct {
	endpoint messages.EndpointID
	entry    blockindex.Entry
}

// departure is an endpoint whose slot is being cleared.
type departure struct {
	endpoint messages.EndpointID
	asked    []messages.EndpointLeft // to be answered when the slot is clear
}

// New returns an incarnation, which is the only writer of the index from now on.
func New(index *blockindex.Index, pool *endpoints.Published, metrics *Metrics) *Prefix {
	return &Prefix{
		index: index, pool: pool, metrics: metrics, placed: map[messages.RequestID]*placement{},
		leaving: map[uint32]*departure{}, audits: newAudits(), tokens: blockindex.TokenBytes{},
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
	p.withdraw(m.Request) // it comes once for a request, and in vain if the actor fails with it
	if !p.admits(m.Endpoint) {
		return
	}
	prompt := blockindex.Prompt{Model: m.Model, Salt: m.Salt, Blocks: m.Blocks}
	placed := p.blank()
	placed.endpoint, placed.prompt, placed.follows = m.Endpoint, prompt, m.Sizes.Follows
	if m.Configuration >= p.configuration {
		p.sizes, p.configuration = m.Sizes, m.Configuration
	}
	p.enter(placed)
	for _, e := range m.Stages.All() {
		if p.admits(e) && e != m.Endpoint {
			p.fit(e, m.Model)
			placed.stages = append(placed.stages, held{e, p.index.Enter(e.Slot, prompt)})
		}
	}
	p.placed[m.Request] = placed
}

func (p *Prefix) onPromptServed(m messages.PromptServed) {
	placed, ok := p.placed[m.Request]
	if !ok {
		return
	}
	if placed.endpoint == m.Endpoint && p.admits(m.Endpoint) {
		placed.served = true
		return
	}
	if !p.admits(m.Endpoint) {
		p.withdraw(m.Request)
		return
	}
	p.remove(placed.prompt, held{placed.endpoint, placed.entry})
	p.audits.ended(placed.endpoint.Slot, placed.prompt, placed.entry)
	placed.endpoint, placed.served = m.Endpoint, true
	p.enter(placed)
}

// blank returns a placement of no request.
func (p *Prefix) blank() *placement {
	if len(p.spare) == 0 {
		return new(placement)
	}
	last := len(p.spare) - 1
	blank := p.spare[last]
	p.spare = p.spare[:last]
	return blank
}

// forget forgets a request.
func (p *Prefix) forget(id messages.RequestID) {
	if placed := p.placed[id]; placed != nil {
		delete(p.placed, id)
		*placed = placement{stages: placed.stages[:0]}
		p.spare = append(p.spare, placed)
	}
}

// enter enters the prompt of a placement for its endpoint.
func (p *Prefix) enter(at *placement) {
	p.fit(at.endpoint, at.prompt.Model)
	at.lead = p.audits.expect(p.index, at.endpoint, at.prompt)
	at.entry = p.index.Enter(at.endpoint.Slot, at.prompt)
	p.audits.entered(at.endpoint.Slot, at.prompt, at.entry)
}

// fit has the index keep as much for an endpoint as the sizes say, for prompts of a model.
func (p *Prefix) fit(e messages.EndpointID, model string) {
	own := cacheOf(p.pool.Snapshot().ByID(e))
	p.index.Resize(e.Slot, blockindex.Kept(p.sizes, own, p.tokens.Of(model)))
}

// onPromptEnded counts the end of a served request as a use of its blocks where the index follows caches, because its
// server holds them until then.
func (p *Prefix) onPromptEnded(m messages.PromptEnded) {
	placed, ok := p.placed[m.Request]
	if !ok || !placed.served || m.Failed {
		p.withdraw(m.Request)
		return
	}
	if p.admits(placed.endpoint) {
		used := placed.entry.Stamp
		if placed.follows {
			p.tokens.Learn(placed.prompt, m.Prompt)
			used = p.index.Refresh(placed.endpoint.Slot, placed.prompt, placed.entry)
		}
		p.audit(placed, m.Prompt, used)
	}
	p.audits.ended(placed.endpoint.Slot, placed.prompt, placed.entry)
	p.forget(m.Request)
}

// audit compares what the index held of a prompt with what its server reports, and drops what the server has lost if
// the index follows its cache. The prompt was last used by that stamp.
func (p *Prefix) audit(of *placement, m messages.ReportedPrompt, used uint64) {
	endpoint := p.pool.Snapshot().ByID(of.endpoint)
	verdict := p.audits.judge(of, m, cacheOf(endpoint).BlockTokens)
	p.audits.count(p.index, of, m, verdict.found)
	var found endpoints.Audited
	if verdict.judged {
		found.PredictedTokens, found.ReportedTokens = uint64(verdict.predicted), uint64(verdict.reported)
	}
	if of.follows {
		found.Drifts, found.LostBlocks = verdict.drifts, uint64(p.drop(of, verdict, used))
	}
	p.metrics.audited(found)
	if endpoint != nil {
		endpoints.PrefixWriter{Endpoint: endpoint}.AddAudited(found)
	}
}

// drop removes what a verdict says is lost, and returns how many blocks that are.
func (p *Prefix) drop(of *placement, v verdict, used uint64) (blocks int) {
	if v.drop > 0 {
		blocks = p.index.Disuse(of.endpoint.Slot, v.drop)
	}
	if v.drifts {
		rest := blockindex.Entry{From: v.keep, To: of.prompt.Blocks.Len(), Stamp: used}
		blocks += p.index.Lose(of.endpoint.Slot, of.prompt, rest)
	}
	return blocks
}

// cacheOf returns what an endpoint says of its own cache; nil = it is gone.
func cacheOf(e *endpoints.Endpoint) blockindex.CacheSize {
	if e == nil {
		return blockindex.CacheSize{}
	}
	return e.Sample().Cache()
}

// onEndpointLeft clears a slot, and answers when it is clear.
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

// close keeps an incarnation, and all before it, from entering blocks in the slot.
func (p *Prefix) close(e messages.EndpointID) {
	p.floors[e.Slot] = max(p.floors[e.Slot], e.Generation+1)
}

// leave closes a slot to its endpoint at once, and clears it part by part, so that other messages need not wait.
func (p *Prefix) leave(ctx runtime.Context[messages.PrefixMsg], e messages.EndpointID, asked ...messages.EndpointLeft) {
	p.close(e)
	p.leaving[e.Slot] = &departure{endpoint: e, asked: asked}
	p.clearPart(ctx, e)
}

// clearPart clears a part of a slot. Then it tells the actor itself to go on or, if the slot is clear, the pool.
func (p *Prefix) clearPart(ctx runtime.Context[messages.PrefixMsg], e messages.EndpointID) {
	if leaving := p.leaving[e.Slot]; leaving == nil || leaving.endpoint != e {
		return // a newer incarnation has come meanwhile, for which admits cleared the slot
	}
	p.index.ClearSome(e.Slot, partBlocks)
	if p.index.Held(e.Slot) > 0 {
		ctx.Self().Tell(messages.SlotPartCleared{Endpoint: e})
		return
	}
	p.cleared(e.Slot)
}

// cleared tells the incarnations of the pool that wait for a slot that it is clear.
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

// withdraw takes a request's own blocks out of the index, and forgets the request.
func (p *Prefix) withdraw(id messages.RequestID) {
	placed, ok := p.placed[id]
	if !ok {
		return
	}
	p.audits.ended(placed.endpoint.Slot, placed.prompt, placed.entry)
	p.remove(placed.prompt, held{placed.endpoint, placed.entry})
	for _, s := range placed.stages {
		p.remove(placed.prompt, s)
	}
	p.forget(id)
}

// remove takes a request's own blocks out of the index at one endpoint.
func (p *Prefix) remove(prompt blockindex.Prompt, at held) {
	if p.admits(at.endpoint) {
		p.index.Withdraw(at.endpoint.Slot, prompt, at.entry)
	}
}

// admits reports whether an incarnation of an endpoint may hold blocks: no newer one has come, and it has not left. It
// clears the slot for an incarnation that is newer than any seen so far. The pool gives out clear slots only, but after
// a restart of this actor blocks of the older incarnation may have come, from picks on an old snapshot.
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

// Stopped leaves the index empty, for nothing would withdraw provisional blocks or those of an endpoint that leaves.
func (p *Prefix) Stopped(runtime.Context[messages.PrefixMsg]) {
	p.index.Reset()
	clear(p.placed)
	clear(p.leaving)
	p.metrics.show(p.index.Stats(), 0)
}
