package cycle

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// waitFor sets the deadline of what the cycle waits for now, within that of the whole request. The timer is moved only when
// it fires: most deadlines are put off many times before one passes.
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
	switch now := ctx.Now(); {
	case m.Generation != c.generation:
	case now.Before(c.due):
		c.arm(ctx)
	case c.after != inStream && now.Before(c.deadline):
		c.settleForHeaders(ctx)
	case c.after != inStream:
		c.giveUp(ctx)
	case !now.Before(c.deadline):
		c.revoke(ctx, messages.RequestTimeout, 0)
	case !c.answered:
		c.refuse(ctx, messages.PickFailed{Reason: c.whyWaited(), RetryAfter: time.Second})
	case c.served != nil && c.patience() < c.deps.Limits.ResponseIdle:
		c.onSilence(ctx)
	default:
		c.revoke(ctx, messages.ResponseIdle, 0)
	}
}

// whyWaited is why a request was not dispatched in time: there was nothing to run it on, or others went first.
func (c *Cycle) whyWaited() messages.Reason {
	if len(c.deps.Pool.Snapshot().Endpoints) == 0 {
		return messages.NoEndpoints
	}
	return messages.TTLExpired
}

// note keeps the message in hand as an event, and gives its slot; -1 = it has none.
func (c *Cycle) note(ctx runtime.Context[messages.CycleMsg], m messages.CycleMsg) int {
	if is[messages.ResponseProgressed](m) || is[messages.ResponseOngoing](m) || is[messages.EntriesDoubted](m) || is[messages.CycleQueried](m) {
		return -1 // there are many, and they say nothing new
	}
	if first, ok := m.(messages.RequestArrived); ok {
		c.rec.ArrivedAt = first.ArrivedAt
	}
	a := ctx.Arrival()
	return c.keep(messages.RecordEvent{Name: c.deps.Names(a.Kind), At: ctx.Now().Sub(c.rec.ArrivedAt), Waited: a.Waited})
}

func is[T messages.CycleMsg](m messages.CycleMsg) bool {
	_, ok := m.(T)
	return ok
}

// handled says how long the message in hand took, also when its handler panicked.
func (c *Cycle) handled(ctx runtime.Context[messages.CycleMsg], slot int) {
	if slot >= 0 {
		c.events[slot].Took = ctx.Elapsed()
	}
}

// keep keeps an event and gives its slot. What finds none is counted.
func (c *Cycle) keep(e messages.RecordEvent) int {
	if c.count == eventSlots {
		c.rec.Dropped++
		return -1
	}
	c.events[c.count] = e
	c.count++
	return c.count - 1
}

// told keeps what was told to another actor of the tree, whose loop has it in its ring. Its time is that of the message in hand.
func (c *Cycle) told(ctx runtime.Context[messages.CycleMsg], whom, message string) {
	c.keep(messages.RecordEvent{Name: message, To: whom, At: ctx.Now().Sub(c.rec.ArrivedAt)})
}

// countTokens learns from a response that said how many tokens it has, and estimates them for one that did not, or was cut, or
// passed by us. An error has none.
func (c *Cycle) countTokens() {
	r := &c.rec
	if r.Status < 200 || r.Status >= 400 || r.Local != "" || c.bodyStatus != 0 {
		return
	}
	a := records.Answer{
		Model: r.Model, Form: c.req.Form, Usage: c.req.Usage, Bytes: r.ResponseBytes,
		Whole: c.whole && (r.Reason == messages.NoReason),
	}
	if r.Usage.Source == messages.UsageReported {
		c.deps.Estimates.Learn(&a, &r.Usage)
		return
	}
	r.Usage = c.deps.Estimates.Usage(&a)
	if a.Whole && !r.Bypassed && r.Usage.Source == messages.UsageNotLearned {
		r.Usage.Source = messages.UsageNotReported
	}
}

func (c *Cycle) onCycleQueried(m messages.CycleQueried) {
	rec := c.rec
	rec.Running = true
	rec.Ended = 0
	rec.Events = messages.ListOf(c.events[:c.count]...)
	m.Recorder.Tell(messages.RecordsFound{Query: m.Query, Records: messages.ListOf(rec)})
}

// Stopped is the only place that gives anything back, and the last chance to answer: a panic ends here too.
func (c *Cycle) Stopped(ctx runtime.Context[messages.CycleMsg]) {
	if c.stream != nil && !c.answered {
		c.rec.Reason, c.rec.Status = messages.Internal, c.deps.Status(messages.Internal)
		c.answer(ctx, messages.PickFailed{Reason: messages.Internal})
	}
	switch {
	case c.finished:
	case c.after != inStream: // by us too: its client has the answer, or will
		c.unlogged()
	default: // it crashed, perhaps while the response ran
		c.rec.Reason = messages.Internal
	}
	if c.after == outlived {
		c.deps.Metrics.outlived.Add(-1)
	}
	c.leaveFlow(ctx)
	c.abandonProbe()
	c.letGo()
	if c.placed {
		failed := c.rec.Status >= 400 || c.rec.FirstToken == 0 && !c.proved
		c.deps.Prefix.Tell(messages.PromptEnded{Request: c.req.ID, Failed: failed})
		c.told(ctx, "prefix", "PromptEnded")
	}
	if c.begun && c.check {
		c.deps.Book.Forget(c.req.ID)
	} else if c.begun {
		// What the proxy tells counts from the request's first byte, which came a little before our clock starts.
		c.rec.Ended = max(c.endedAt(ctx).Sub(c.rec.ArrivedAt), c.rec.Headers, c.rec.FirstToken)
		c.rec.Events = messages.ListOf(c.events[:c.count]...)
		c.countTokens()
		c.deps.Book.End(c.rec)
		c.account.ended(&c.rec)
		c.deps.Report(&c.rec)
	}
}

// leaveFlow gives the place back that the flow shard may hold for us.
func (c *Cycle) leaveFlow(ctx runtime.Context[messages.CycleMsg]) {
	if c.admission {
		c.admission = false
		c.deps.Flow(c.rec.Flow).Tell(messages.RequestEnded{Request: c.req.ID})
		c.told(ctx, "flow", "RequestEnded")
	}
}

// endedAt returns when the request ended, as far as is known: one that lingered in vain ended with its stream.
func (c *Cycle) endedAt(ctx runtime.Context[messages.CycleMsg]) time.Time {
	if c.parted.IsZero() {
		return ctx.Now()
	}
	return c.parted
}
