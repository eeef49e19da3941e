package cycle

import (
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// hold makes the request part of an endpoint's load, and of no other's.
func (c *Cycle) hold(e *endpoints.Endpoint) {
	c.letGo()
	c.served, c.rec.Served = e, e.ID
	c.load()
}

func (c *Cycle) letGo() {
	c.unload()
	c.served = nil
}

// load adds the request to the load of the endpoint that works for it.
func (c *Cycle) load() {
	if c.served != nil && !c.loaded {
		c.pick, c.loaded = endpoints.LoadWriter{Endpoint: c.served}.Add(c.req.PromptTokens), true
	}
}

// unload takes the load back, and keeps the endpoint that works for the request.
func (c *Cycle) unload() {
	if c.loaded {
		endpoints.LoadWriter{Endpoint: c.served}.Remove(c.pick)
		c.loaded = false
	}
}

// place enters the prompt in the prefix index, provisionally, and drops our copy of its blocks.
func (c *Cycle) place(ctx runtime.Context[messages.CycleMsg]) {
	if c.req.Blocks.Len() == 0 || c.check {
		return
	}
	c.placed = c.deps.Prefix.Tell(messages.PromptPlaced{
		Request: c.req.ID, Endpoint: c.served.ID, Model: c.req.Model, Salt: c.req.Salt, Blocks: c.req.Blocks,
	})
	c.told(ctx, "prefix", "PromptPlaced")
	c.req.Blocks = messages.List[uint64]{}
}

// move takes the load to the endpoint that served; to nobody, if the pool does not know it.
func (c *Cycle) move(to messages.Address) messages.EndpointID {
	if !c.check {
		c.deps.Metrics.elsewhere.Inc()
	}
	if e := c.deps.Pool.Snapshot().ByAddress(to); e != nil {
		c.hold(e)
		return e.ID
	}
	c.rec.Elsewhere = to
	return c.servedByNobody()
}

// servedByNobody ends the load: no endpoint of the pool works for the request.
func (c *Cycle) servedByNobody() messages.EndpointID {
	c.letGo()
	c.rec.Served = messages.EndpointID{}
	return messages.EndpointID{}
}
