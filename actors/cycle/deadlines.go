package cycle

import (
	"net/http"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// deadlines say how long the request may take. From the first message on one timer is set. A message of an earlier one
// may still be on its way.
type deadlines struct {
	limit time.Time // of the whole request, as its stream has it
	// deadline bounds every wait: it is limit, or, while the cycle is detached or lingers, the time until which an
	// entry of the access log may come.
	deadline   time.Time
	due        time.Time // when the present wait ends; not after deadline, as that stood when the wait began
	armed      time.Time // when the timer fires; not after due
	timer      runtime.Timer
	wait       wait   // for room
	generation uint32 // of the timer; a message with another generation is stale
}

// waitFor lets the cycle wait for d from now, within deadline. A timer that would fire before then stays as it is, and
// is set again when it fires: most waits are prolonged many times before one of them ends.
func (c *Cycle) waitFor(ctx runtime.Context[messages.CycleMsg], d time.Duration) {
	c.due = ctx.Now().Add(d)
	if c.deadline.Before(c.due) {
		c.due = c.deadline
	}
	if c.timer == nil {
		c.arm(ctx)
		return
	}
	if c.due.Before(c.armed) {
		c.timer.Cancel()
		c.arm(ctx)
	}
}

// late reports whether a pick that takes so long from now comes too late. A request that has waited may be picked for
// as long as its stream waits, however long its turn was on the way.
func (c *Cycle) late(ctx runtime.Context[messages.CycleMsg], a chance, took time.Duration) bool {
	if a.turn {
		return ctx.Now().Add(took).After(c.due.Add(c.deps.Limits.Pick))
	}
	return ctx.Arrival().Waited+took > c.deps.Limits.Pick
}

// arm sets the timer to due.
func (c *Cycle) arm(ctx runtime.Context[messages.CycleMsg]) {
	c.generation++
	c.armed = c.due
	c.timer = ctx.After(c.due.Sub(ctx.Now()), messages.CycleDeadlinePassed{Generation: c.generation})
}

func (c *Cycle) onCycleDeadlinePassed(ctx runtime.Context[messages.CycleMsg], m messages.CycleDeadlinePassed) {
	now := ctx.Now()
	switch {
	case m.Generation != c.generation:
		return
	case now.Before(c.due):
		c.arm(ctx)
		return
	}
	over := !now.Before(c.deadline)
	switch c.phase {
	case created, done: // neither has a timer
	case queued:
		c.onWaitOver(ctx, over)
	case picked, responding:
		c.onResponseOverdue(ctx, over)
	case detached, lingering:
		c.onEntryOverdue(ctx, over)
	}
}

// onResponseOverdue cuts a request that takes too long, or whose response is silent for too long. Silence beyond the
// first-token timeout alone is a failure of the endpoint, and the request runs on. On a WebSocket the server may be
// silent for as long as the client speaks, or both wait.
func (c *Cycle) onResponseOverdue(ctx runtime.Context[messages.CycleMsg], over bool) {
	switch {
	case over:
		c.cut(ctx, messages.RequestTimeout, 0)
	case c.rec.Status == http.StatusSwitchingProtocols:
		c.waitFor(ctx, c.deadline.Sub(ctx.Now()))
		c.arm(ctx)
	case c.served != nil && c.patience() < c.deps.Limits.ResponseIdle && c.silent(ctx) < c.deps.Limits.ResponseIdle:
		c.onSilence(ctx)
	default:
		c.cut(ctx, messages.ResponseIdle, 0)
	}
}

// onEntryOverdue ends a request whose last entry in the access log has not come in time. If the first-token timeout
// passes without any entry, the log does not tell of running responses: then the headers alone count as a success.
func (c *Cycle) onEntryOverdue(ctx runtime.Context[messages.CycleMsg], over bool) {
	if over {
		c.giveUp(ctx)
		return
	}
	if c.log.last.IsZero() {
		c.reportSuccess(time.Time{})
	}
	c.waitFor(ctx, c.deadline.Sub(ctx.Now()))
	c.arm(ctx)
}
