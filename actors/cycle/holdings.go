package cycle

import (
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// holdings are what others keep for the request. Each is taken at most once at a time and given back once, at the
// latest by Stopped.
type holdings struct {
	place  bool // at the flow shard, in line or to run: once AdmissionRequested was taken, until RequestEnded
	entry  bool // in the book, with an open account: from RequestArrived until the record is whole, or forgotten
	prompt bool // blocks in the prefix index: once PromptPlaced was taken, until PromptEnded
	load   bool // pick is part of the load of the endpoint that served names, which is not nil
	pick   endpoints.Pick
}

// openEntry begins the request in the book, and in the metrics: a check counts in none that is shown.
func (c *Cycle) openEntry(ctx runtime.Context[messages.CycleMsg]) {
	c.deps.Book.Begin(c.req.ID, ctx.Self())
	c.held.entry = true
	if c.check {
		c.account = c.deps.Metrics.unseen()
	} else {
		c.account = c.deps.Metrics.arrived(&c.rec)
	}
}

// serveAt makes an endpoint the one that works for the request, which becomes part of its load, and of no other's.
func (c *Cycle) serveAt(e *endpoints.Endpoint) {
	c.letGo()
	c.served, c.rec.Served = e, e.ID
	c.load()
}

// letGo takes the load back: no endpoint of the pool works for the request.
func (c *Cycle) letGo() {
	c.unload()
	c.served = nil
}

// load adds the request to the load of the endpoint that works for it, unless it lingers.
func (c *Cycle) load() {
	if c.served != nil && !c.held.load && c.phase != lingering {
		c.held.pick, c.held.load = endpoints.LoadWriter{Endpoint: c.served}.Add(c.req.PromptTokens), true
	}
}

// unload takes the load back, and keeps the endpoint that works for the request.
func (c *Cycle) unload() {
	if c.held.load {
		endpoints.LoadWriter{Endpoint: c.served}.Remove(c.held.pick)
		c.held.load = false
	}
}

// placePrompt enters the prompt in the prefix index, provisionally, and drops our copy of its blocks.
func (c *Cycle) placePrompt(ctx runtime.Context[messages.CycleMsg]) {
	if c.req.Blocks.Len() == 0 || c.check {
		return
	}
	c.held.prompt, _ = tell[messages.PrefixMsg](c, ctx, c.deps.Prefix, toPrefix, messages.PromptPlaced{
		Request: c.req.ID, Endpoint: c.served.ID, Model: c.req.Model, Salt: c.req.Salt, Blocks: c.req.Blocks,
	})
	c.req.Blocks = messages.List[uint64]{}
}

// move takes the load to the endpoint that served, and returns its id; the zero id, if the pool does not know it.
func (c *Cycle) move(to messages.Address) messages.EndpointID {
	if !c.check {
		c.deps.Metrics.elsewhere.Inc()
	}
	if e := c.deps.Pool.Snapshot().ByAddress(to); e != nil {
		c.serveAt(e)
		return e.ID
	}
	c.rec.Elsewhere = to
	return c.servedByNone()
}

// servedByNone ends the load: no endpoint of the pool works for the request. It returns the zero id.
func (c *Cycle) servedByNone() messages.EndpointID {
	c.letGo()
	c.rec.Served = messages.EndpointID{}
	return messages.EndpointID{}
}

// leaveFlow gives the place back that the flow shard may hold for the request.
func (c *Cycle) leaveFlow(ctx runtime.Context[messages.CycleMsg]) {
	if c.held.place {
		c.held.place = false
		tell[messages.FlowMsg](c, ctx, c.deps.Flow(c.rec.Flow), toFlow, messages.RequestEnded{Request: c.req.ID})
	}
}

// withdrawPrompt tells the prefix actor that the request has ended: a prompt of which no answer came is no longer at
// its endpoint.
func (c *Cycle) withdrawPrompt(ctx runtime.Context[messages.CycleMsg]) {
	if c.held.prompt {
		c.held.prompt = false
		failed := c.rec.Status >= 400 || c.rec.FirstToken == 0 && !c.proved
		m := messages.PromptEnded{Request: c.req.ID, Failed: failed}
		tell[messages.PrefixMsg](c, ctx, c.deps.Prefix, toPrefix, m)
	}
}

// closeEntry moves the record into the book, counts the request and reports it. A check's is forgotten.
func (c *Cycle) closeEntry(ctx runtime.Context[messages.CycleMsg]) {
	switch {
	case !c.held.entry:
	case c.check:
		c.deps.Book.Forget(c.req.ID)
	default:
		c.closeRecord(ctx)
		c.countTokens()
		c.deps.Book.End(c.rec)
		c.account.ended(&c.rec)
		c.deps.Report(&c.rec)
	}
	c.held.entry = false
}
