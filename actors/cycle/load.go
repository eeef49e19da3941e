package cycle

import (
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// hold makes the request part of an endpoint's load, and of no other's.
func (c *Cycle) hold(e *endpoints.Endpoint) {
	c.letGo()
	c.served, c.pick = e, e.Load().Add(c.req.PromptTokens)
	c.rec.Served = e.ID
}

func (c *Cycle) letGo() {
	if c.served != nil {
		c.served.Load().Remove(c.pick)
		c.served = nil
	}
}

// place enters the prompt in the prefix index, provisionally, and drops our copy of its blocks.
func (c *Cycle) place(ctx runtime.Context[messages.CycleMsg]) {
	if c.req.Blocks.Len() == 0 {
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
	c.deps.Metrics.elsewhere.Inc()
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
