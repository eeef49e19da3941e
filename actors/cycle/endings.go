package cycle

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// onRevoked ends a request that waits or runs. One that runs has ended once its stream has: it may be too late, and
// then the stream goes on.
func (c *Cycle) onRevoked(ctx runtime.Context[messages.CycleMsg], m messages.Revoked) {
	switch c.phase {
	case created, done:
	case queued:
		c.refuse(ctx, messages.PickFailed{Reason: m.Reason, RetryAfter: m.RetryAfter})
	case picked, responding:
		c.revoke(ctx, m.Reason, m.RetryAfter)
	case detached, lingering: // no stream is left that could end it, and capacity has been told
	}
}

// refuse answers a queued request that it is not served, and ends it.
func (c *Cycle) refuse(ctx runtime.Context[messages.CycleMsg], m messages.PickFailed) {
	if c.phase != queued {
		return
	}
	if ofRoom(m.Reason) && len(c.deps.Pool.Snapshot().Endpoints) == 0 {
		m = messages.PickFailed{Reason: messages.NoEndpoints, RetryAfter: m.RetryAfter}
	}
	c.rec.Reason, c.rec.Status = m.Reason, c.deps.Status(m.Reason)
	c.giveRoomBack()
	c.enter(done)
	c.answer(ctx, m)
	ctx.Stop()
}

// ofRoom reports whether a refusal says that servers have no room, or none in time. Of a pool without any that is not
// what is missing, and a client that has another pool is to turn there.
func ofRoom(why messages.Reason) bool {
	switch why {
	case messages.NoCapacity, messages.TTLExpired, messages.Displaced, messages.QueuePressure, messages.PickTimeout,
		messages.RequestTimeout, messages.NotCached:
		return true
	}
	return false
}

// cut has the stream end a request that was picked for, and ends it here.
func (c *Cycle) cut(ctx runtime.Context[messages.CycleMsg], why messages.Reason, retryAfter time.Duration) {
	c.rec.Reason = why
	c.revoke(ctx, why, retryAfter)
	c.finish(ctx)
}

// revoke has the stream end a request that was picked for, once.
func (c *Cycle) revoke(ctx runtime.Context[messages.CycleMsg], why messages.Reason, retryAfter time.Duration) {
	if !c.revoked {
		c.revoked = true
		c.answer(ctx, messages.ServingRevoked{Reason: why, RetryAfter: retryAfter})
	}
}

// finish ends a request whose stream is owed no answer.
func (c *Cycle) finish(ctx runtime.Context[messages.CycleMsg]) {
	c.enter(done)
	ctx.Stop()
}
