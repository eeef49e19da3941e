package cycle

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// logGrace is how long the entry of a request may take that ended before its response began: the proxy writes it at once, but
// without the request's id if the client left before our answer was there.
const logGrace = time.Second

// outlive goes on without a stream: the response passes by us, and the access log tells its end.
func (c *Cycle) outlive(ctx runtime.Context[messages.CycleMsg]) {
	c.outlived = true
	wait := c.deps.Limits.Logged
	if c.rec.Status == 0 {
		wait = min(wait, logGrace)
	}
	c.deadline = ctx.Now().Add(wait) // nobody is left who could be told of another
	c.waitFor(ctx, wait)
}

// onLogged takes what the access log knows and the stream did not see.
func (c *Cycle) onLogged(ctx runtime.Context[messages.CycleMsg], m messages.Logged) {
	switch {
	case c.rec.Status != 0: // the stream told
	case m.Served == "" || m.Broken && m.FirstToken == 0:
		c.rec.Status = m.Status // of the proxy's own answer
	default:
		c.onResponseStarted(ctx, messages.ResponseStarted{Status: m.Status, Served: m.Served})
	}
	if m.Broken && c.served != nil {
		c.blame(c.served, messages.ConnectionBroken)
	}
	if m.Status < 400 {
		c.rec.FirstToken = m.FirstToken
	}
	switch {
	case m.ClientLeft:
		c.rec.Reason = messages.ClientGone
	case m.Broken && c.rec.Reason == messages.NoReason:
		c.rec.Reason = messages.ServerGone
	}
}

// giveUp ends a cycle whose access log entry never came.
func (c *Cycle) giveUp(ctx runtime.Context[messages.CycleMsg]) {
	if c.rec.Status == 0 {
		c.rec.Reason = messages.ClientGone
	} else {
		c.deps.Metrics.unlogged.Inc()
	}
	c.finish(ctx)
}
