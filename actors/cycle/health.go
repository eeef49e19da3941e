package cycle

import (
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// patience is how long a response may be silent: at first until its endpoint is suspected, then until it is given up.
func (c *Cycle) patience() time.Duration {
	if c.rec.FirstToken > 0 || c.doubts {
		return c.deps.Limits.ResponseIdle
	}
	return min(c.deps.Limits.FirstToken, c.deps.Limits.ResponseIdle)
}

// judge takes the status of whoever served: the endpoint is well, or is to blame. What is the client's fault is no evidence.
func (c *Cycle) judge(ctx runtime.Context[messages.CycleMsg], status int) {
	switch {
	case c.served == nil: // the pool does not know who it was
	case status == 503:
		c.blame(c.served, messages.Overload)
	case status >= 500:
		c.blame(c.served, messages.ServerError)
	case status >= 200:
		c.served.Answered(ctx.Now())
		if c.probe && c.served == c.chosen {
			c.probe = false
			c.deps.Health.Tell(messages.ProbeEnded{Endpoint: c.chosen.ID, Answered: true})
		}
	}
}

// blame tells of evidence against an endpoint; if we try it, that was the answer.
func (c *Cycle) blame(e *endpoints.Endpoint, what messages.Evidence) {
	if c.probe && e == c.chosen {
		c.probe = false
		c.deps.Health.Tell(messages.ProbeEnded{Endpoint: e.ID, Evidence: what})
		return
	}
	c.deps.Health.Tell(messages.EvidenceSeen{Endpoint: e.ID, Evidence: what})
}

// blameLocal tells of evidence in Envoy's own answer: the chosen endpoint could not be reached, or broke off.
func (c *Cycle) blameLocal(details string) {
	if strings.HasPrefix(details, "upstream_reset") {
		c.blame(c.chosen, messages.ConnectionBroken)
	}
}

// doubt suspects the endpoint that was silent for too long, and waits on.
func (c *Cycle) doubt(ctx runtime.Context[messages.CycleMsg]) {
	waited := c.patience()
	c.doubts = true
	c.blame(c.served, messages.NoFirstToken)
	c.waitFor(ctx, c.deps.Limits.ResponseIdle-waited)
	c.arm(ctx)
}

// endProbe gives a probe back of which nothing came.
func (c *Cycle) endProbe() {
	if c.probe {
		c.probe = false
		c.deps.Health.Tell(messages.ProbeEnded{Endpoint: c.chosen.ID})
	}
}
