package cycle

import (
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// choose notes who was chosen, and whether we try it, before anything can fail: a probe that was taken has to be given back.
func (c *Cycle) choose(ctx runtime.Context[messages.CycleMsg], out *schedule.Outcome) {
	if len(out.Ranked) == 0 {
		return
	}
	c.chosen, c.picked, c.probe = out.Ranked[0], ctx.Now(), out.Probe
	if h := c.chosen.Health(); h != nil && (c.probe || h.Suspended && c.mayJudge(ctx, h)) {
		c.tried = h.Since
	}
}

// mayJudge says that a good answer of ours shows that an endpoint is well.
func (c *Cycle) mayJudge(ctx runtime.Context[messages.CycleMsg], h *endpoints.Health) bool {
	return c.req.Shown || !h.Why.InBody() || h.Due(ctx.Now(), false)
}

// patience is how long a response may be silent: at first until its endpoint is suspected, then until it is given up. An answer that
// is not streamed is silent until it is whole; by that nobody is suspected, but others may try the endpoint as well.
func (c *Cycle) patience() time.Duration {
	if c.patient || !c.req.Stream && !c.probe {
		return c.deps.Limits.ResponseIdle
	}
	return min(c.deps.Limits.FirstToken, c.deps.Limits.ResponseIdle)
}

// judge takes the status of whoever served: the endpoint is well so far, or is to blame. What is the client's fault is no evidence.
func (c *Cycle) judge(status int) {
	switch {
	case c.served == nil: // the pool does not know who it was
	case status == 503:
		c.blame(c.served, messages.Overload)
	case status >= 500:
		c.blame(c.served, messages.ServerError)
	case status >= 200:
		c.served.Answered(c.picked)
		if status >= 400 {
			c.prove()
		}
	}
}

// onErrorSeen judges whoever served by the status that an event of its answer names.
func (c *Cycle) onErrorSeen(m messages.ErrorSeen) {
	c.said, c.patient = m.Status, true
	switch {
	case c.served == nil: // the pool does not know who it was
	case m.Status < 500: // the client's fault is no evidence
	case m.Status == 503:
		c.blame(c.served, messages.OverloadInStream)
	default:
		c.blame(c.served, messages.ErrorInStream)
	}
}

// prove says that whoever served is well: its answer's body came. Headers alone are no proof, for an engine that hangs sends them.
// Who was tried is well again, also if silence was held against it before, or another request had the probe.
func (c *Cycle) prove() {
	if c.proved || c.said >= 500 || c.served == nil || c.rec.Local != "" || c.rec.Status >= 500 {
		return
	}
	c.proved = true
	c.served.Proved(c.picked, c.req.Shown)
	if c.served == c.chosen && !c.tried.IsZero() {
		c.probe = false
		c.deps.Health.Tell(messages.ProbeEnded{Endpoint: c.chosen.ID, Since: c.tried, Answered: true})
	}
}

// blame tells of evidence against an endpoint; if we try it, that was the answer, also if we found it well before.
func (c *Cycle) blame(e *endpoints.Endpoint, what messages.Evidence) {
	if e == c.chosen && (c.probe || c.proved && !c.tried.IsZero()) {
		c.probe = false
		c.deps.Health.Tell(messages.ProbeEnded{Endpoint: e.ID, Since: c.tried, Evidence: what})
		return
	}
	seen := messages.EvidenceSeen{Endpoint: e.ID, Evidence: what, Picked: c.picked}
	if c.proved && what != messages.NoFirstToken { // it was well when it was picked: this is news
		seen.Picked = time.Time{}
	}
	c.deps.Health.Tell(seen)
}

// blameLocal tells of evidence in Envoy's own answer: the chosen endpoint could not be reached, or broke off. An overflow is Envoy's own limit.
func (c *Cycle) blameLocal(details string) {
	if strings.HasPrefix(details, "upstream_reset") && !strings.Contains(details, "{overflow") {
		c.blame(c.chosen, messages.ConnectionBroken)
	}
}

// doubt suspects the endpoint that was silent for too long, and waits on.
func (c *Cycle) doubt(ctx runtime.Context[messages.CycleMsg]) {
	waited := c.patience()
	c.accuse()
	c.waitFor(ctx, c.deps.Limits.ResponseIdle-waited)
	c.arm(ctx)
}

// accuse says that the endpoint was silent for too long, if its answer is one that it would have begun by now.
func (c *Cycle) accuse() {
	c.patient = true
	if c.req.Stream {
		c.blame(c.served, messages.NoFirstToken)
		return
	}
	c.endProbe()
}

// endProbe gives a probe back of which nothing came yet.
func (c *Cycle) endProbe() {
	if c.probe {
		c.probe = false
		c.deps.Health.Tell(messages.ProbeEnded{Endpoint: c.chosen.ID, Since: c.tried})
	}
}
