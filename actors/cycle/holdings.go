package cycle

import (
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// holdings are what other owners keep for the request. Each is taken at most once at a time and given back once, at the
// latest by Stopped.
type holdings struct {
	wait    bool // in the line of capacity, or a turn there: once WaitRequested was taken, until WaitEnded
	entry   bool // in the book, with an open account: from RequestArrived until the record is whole, or forgotten
	prompt  bool // blocks in the prefix index: once PromptPlaced was taken, until PromptEnded
	offered bool // capacity may have it end for others: from ServingStarted until ServingEnded
	hold    hold // at the endpoint that it waits for
	load    bool // pick is part of the load of the endpoint that served names, which is not nil
	pick    endpoints.Pick
	stages  []stage // load at what works before the endpoint that serves: from the pick until the first token
}

// hold is what the request counts at the endpoint for whose room it waits; without an endpoint, nothing.
type hold struct {
	endpoint *endpoints.Endpoint
	tokens   int
}

// stage is the load of the request at an endpoint beside the one that serves.
type stage struct {
	endpoint *endpoints.Endpoint
	pick     endpoints.Pick
}

// openEntry enters the request in the book and in the metrics. A check counts only in metrics that no page shows.
func (c *Cycle) openEntry(ctx runtime.Context[messages.CycleMsg]) {
	c.deps.Book.Begin(c.req.ID, ctx.Self())
	c.held.entry = true
	if c.check {
		c.account = c.deps.Metrics.unseen()
	} else {
		c.account = c.deps.Metrics.arrived(&c.rec)
	}
}

// serveAt sets the endpoint that works for the request, and moves the request's load to it.
func (c *Cycle) serveAt(ctx runtime.Context[messages.CycleMsg], e *endpoints.Endpoint) {
	c.letGo()
	c.served, c.rec.Served = e, e.ID
	c.load(ctx)
}

// waitAt has the request wait for room at one endpoint, where it counts as what is to be done until it is asked again.
func (c *Cycle) waitAt(e *endpoints.Endpoint) {
	c.unhold()
	c.held.hold = hold{e, c.work(e).Tokens()}
	endpoints.LoadWriter{Endpoint: e}.Hold(c.held.hold.tokens)
	c.wait.asked.Wanted = e.ID
}

// unhold has the request wait for no endpoint.
func (c *Cycle) unhold() {
	if e := c.held.hold.endpoint; e != nil {
		endpoints.LoadWriter{Endpoint: e}.Release(c.held.hold.tokens)
	}
	c.held.hold, c.wait.asked.Wanted = hold{}, messages.EndpointID{}
}

// letGo takes the load back and notes that no endpoint of the pool works for the request.
func (c *Cycle) letGo() {
	c.unload()
	c.served = nil
}

// load adds the request to the load of the endpoint that works for it. A lingering request is no load.
func (c *Cycle) load(ctx runtime.Context[messages.CycleMsg]) {
	if c.served != nil && !c.held.load && c.phase != lingering {
		c.held.pick = endpoints.LoadWriter{Endpoint: c.served}.Add(c.work(c.served), ctx.Now())
		c.loaded(true)
	}
}

// begin notes that the first token has come: the prompt is computed, and no load any more.
func (c *Cycle) begin(ctx runtime.Context[messages.CycleMsg]) {
	c.service.begun = true
	if c.held.load {
		c.held.pick = endpoints.LoadWriter{Endpoint: c.served}.Begin(c.held.pick, ctx.Now())
		c.deps.Bell.RingAt(c.served.ID)
	}
}

// loaded notes that the request is part of the load of an endpoint, or is not any more.
func (c *Cycle) loaded(now bool) {
	c.held.load = now
	switch {
	case !c.wait.gated:
	case now:
		c.wait.traffic.Enter()
	default:
		c.wait.traffic.Leave()
	}
}

// unload takes the load back. It leaves served as it is, for a lingering request may resume.
func (c *Cycle) unload() {
	if c.held.load {
		endpoints.LoadWriter{Endpoint: c.served}.Remove(c.held.pick)
		c.loaded(false)
		c.deps.Bell.RingAt(c.served.ID)
	}
}

// unloadStages takes the load of the stages back.
func (c *Cycle) unloadStages() {
	for _, s := range c.held.stages {
		endpoints.LoadWriter{Endpoint: s.endpoint}.Remove(s.pick)
		c.deps.Bell.RingAt(s.endpoint.ID)
	}
	c.held.stages = nil
}

// placePrompt enters the prompt in the prefix index, provisionally, and drops the cycle's reference to its blocks.
func (c *Cycle) placePrompt(ctx runtime.Context[messages.CycleMsg], stages []schedule.StageEndpoint) {
	if c.req.Blocks.Len() == 0 || c.check {
		return
	}
	var also []messages.EndpointID
	for _, s := range stages {
		if s.Prompt {
			also = append(also, s.ID)
		}
	}
	c.held.prompt, _ = tell[messages.PrefixMsg](c, ctx, c.deps.Prefix, toPrefix, messages.PromptPlaced{
		Request: c.req.ID, Endpoint: c.served.ID, Stages: messages.TakeList(also), Model: c.req.Model,
		Salt: c.req.Salt, Blocks: c.req.Blocks, Sizes: c.plan.Prefixes(),
		Configuration: c.rec.Configuration,
	})
	c.req.Blocks = messages.List[uint64]{}
}

// sentFirst reports whether an address is the one to which the request was sent first.
func (c *Cycle) sentFirst(to messages.Address) bool {
	if len(c.sent) > 0 {
		return c.sent[0].to == to
	}
	return c.served.Spec.Address == to
}

// reached returns the endpoint that a request which was sent to an address reaches; nil = the pool does not have it. Of
// several destinations with that address it is the best one. An endpoint's own address is that of its newest
// incarnation.
func (c *Cycle) reached(to messages.Address) *endpoints.Endpoint {
	for _, s := range c.sent {
		if s.to == to && to != s.endpoint.Spec.Address {
			return s.endpoint
		}
	}
	return c.deps.Pool.Snapshot().ByAddress(to)
}

// move moves the load to the endpoint with an address and returns its id, or the zero id if the pool does not have it.
func (c *Cycle) move(ctx runtime.Context[messages.CycleMsg], to messages.Address) messages.EndpointID {
	if !c.check {
		c.deps.Metrics.elsewhere.Inc()
	}
	if e := c.reached(to); e != nil {
		c.serveAt(ctx, e)
		return e.ID
	}
	c.rec.Elsewhere = to
	return c.servedByNone()
}

// servedByNone notes, also in the record, that no endpoint of the pool works for the request. It returns the zero id.
func (c *Cycle) servedByNone() messages.EndpointID {
	c.letGo()
	c.rec.Served = messages.EndpointID{}
	return messages.EndpointID{}
}

// withdrawPrompt tells the prefix actor that the request has ended. The endpoint is not taken to hold a prompt to which
// no good answer came.
func (c *Cycle) withdrawPrompt(ctx runtime.Context[messages.CycleMsg]) {
	if c.held.prompt {
		c.held.prompt = false
		failed := c.rec.Status >= 400 || c.rec.FirstToken == 0 && !c.proved
		m := messages.PromptEnded{Request: c.req.ID, Failed: failed}
		if usage := &c.rec.Usage; usage.PromptTokens > 0 {
			m.Prompt = messages.ReportedPrompt{
				API: c.req.Form.API, Stream: c.req.Stream,
				PromptTokens: usage.PromptTokens, Media: c.req.Media, CachedTokens: usage.CachedTokens,
				CachedKnown: usage.CachedKnown,
			}
		}
		tell[messages.PrefixMsg](c, ctx, c.deps.Prefix, toPrefix, m)
	}
}

// closeEntry moves the record into the book, counts the request and reports it. The record of a check is dropped.
func (c *Cycle) closeEntry(ctx runtime.Context[messages.CycleMsg]) {
	switch {
	case !c.held.entry:
	case c.check:
		c.deps.Book.Forget(c.req.ID)
	default:
		c.closeRecord(ctx)
		c.countTokens()
		c.forgetStatus()
		c.deps.Book.End(c.rec)
		c.account.ended(&c.rec)
		c.deps.Report(&c.rec)
	}
	c.held.entry = false
}

// offer tells capacity that the request may be ended for one of higher priority, and which endpoint serves it. Only
// requests of negative priority may, and only while their stream can end them.
func (c *Cycle) offer(ctx runtime.Context[messages.CycleMsg]) {
	if !c.evicts() || c.rec.Flow.Priority >= 0 || c.check || c.served == nil {
		return
	}
	c.held.offered = true
	tell[messages.CapacityMsg](c, ctx, c.deps.Bell.To, toCapacity, messages.ServingStarted{
		Request: c.req.ID, Flow: c.rec.Flow, Endpoint: c.served.ID, At: ctx.Now(), Cycle: ctx.Self(),
	})
}

// evicts reports whether the request's configuration has running requests end for waiting ones.
func (c *Cycle) evicts() bool { return c.queueing != nil && len(c.queueing.Evictions) > 0 }

// endOffer tells capacity that the request cannot be ended any more. runsOn says that it has not ended.
func (c *Cycle) endOffer(ctx runtime.Context[messages.CycleMsg], runsOn bool) {
	if c.held.offered {
		c.held.offered = false
		m := messages.ServingEnded{Request: c.req.ID, RunsOn: runsOn}
		tell[messages.CapacityMsg](c, ctx, c.deps.Bell.To, toCapacity, m)
	}
}

// offerAnew follows the request to the endpoint that serves it. A request that no endpoint of the pool serves makes no
// room when it ends.
func (c *Cycle) offerAnew(ctx runtime.Context[messages.CycleMsg]) {
	switch {
	case !c.held.offered:
	case c.served == nil:
		c.endOffer(ctx, true)
	case c.served != c.chosen:
		c.offer(ctx)
	}
}

// lacking returns the endpoints that would do for the request if they had room, as long as others may be ended for it.
func (c *Cycle) lacking(out *schedule.Outcome) messages.List[messages.EndpointID] {
	switch {
	case !c.evicts():
		return messages.List[messages.EndpointID]{}
	case out.Full:
		return c.deps.Scheduler.Lacking()
	}
	return messages.ListOf(out.Ranked[0].ID) // another request took its last place
}
