package cycle

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// deadlines are how long the request may take. From the first message on one timer is set; of older ones a message may
// be on its way.
type deadlines struct {
	limit time.Time // of the whole request, as its stream has it
	// deadline is of all that the cycle may still wait for: limit, or, while it is detached or lingers, until when an
	// entry of the access log may come.
	deadline   time.Time
	due        time.Time // of what it waits for now; not after deadline as that was when the wait began
	armed      time.Time // when the timer fires; not after due
	timer      runtime.Timer
	generation uint32 // of the timer: a message of another one is void
}

// waitFor sets the deadline of what the cycle waits for now, within that of the whole request. The timer is moved only
// when it fires: most deadlines are put off many times before one passes.
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

// onWaitOver refuses a request that was not dispatched in time: others went first, or there was nothing to run it on.
// Over means that the time of the whole request is.
func (c *Cycle) onWaitOver(ctx runtime.Context[messages.CycleMsg], over bool) {
	switch {
	case over:
		c.refuse(ctx, messages.PickFailed{Reason: messages.RequestTimeout})
	case len(c.deps.Pool.Snapshot().Endpoints) == 0:
		c.refuse(ctx, messages.PickFailed{Reason: messages.NoEndpoints, RetryAfter: time.Second})
	default:
		c.refuse(ctx, messages.PickFailed{Reason: messages.TTLExpired, RetryAfter: time.Second})
	}
}

// onResponseOverdue cuts a response that takes too long, or was silent for too long. The first silence is its
// endpoint's failure only.
func (c *Cycle) onResponseOverdue(ctx runtime.Context[messages.CycleMsg], over bool) {
	switch {
	case over:
		c.cut(ctx, messages.RequestTimeout, 0)
	case c.served != nil && c.patience() < c.deps.Limits.ResponseIdle:
		c.onSilence(ctx)
	default:
		c.cut(ctx, messages.ResponseIdle, 0)
	}
}

// onEntryOverdue ends a request of whose end the access log has not told in time. Before that the response's headers
// have to do for an answer, if the log is silent while the response runs.
func (c *Cycle) onEntryOverdue(ctx runtime.Context[messages.CycleMsg], over bool) {
	if over {
		c.giveUp(ctx)
		return
	}
	if c.log.last.IsZero() {
		c.reportSuccess()
	}
	c.waitFor(ctx, c.deadline.Sub(ctx.Now()))
	c.arm(ctx)
}
