package cycle

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// logGrace is how long the entry of a request may take that ended before its response began: the proxy writes it at
// once, but without the request's id if the client left before our answer was there.
const logGrace = time.Second

// A request counts as lost, its proxy having died perhaps, when so many intermediate entries in a row are missing, and
// for so long; or when none comes for doubtedFor after some proxy's log ended. The shipped files have one every 5 s.
const (
	missedPulses = 4
	missedFor    = 10 * time.Second
	doubtedFor   = 8 * time.Second
)

// lingersFor is how long a request, whose stream is gone and whose proxy has not sent an entry yet, waits for one:
// longer than the interval of intermediate entries in the shipped files.
const lingersFor = 10 * time.Second

// accessLog is what the proxy's access log has told of the request, or fails to tell.
type accessLog struct {
	last    time.Time     // entry; zero = none came since the request was detached
	every   time.Duration // the longest time between two; 0 = unknown
	doubted time.Time     // when entries were last doubted while the stream told all; zero = not since the last one
	parted  time.Time     // when the request began to linger; zero unless it lingers, or ended while it did
}

// detach goes on without a stream: the response bypasses us, and the access log tells its end.
func (c *Cycle) detach(ctx runtime.Context[messages.CycleMsg]) {
	c.enter(detached)
	c.rec.Bypassed = true
	wait := c.deps.Limits.Logged
	if c.rec.Status == 0 {
		wait = min(wait, logGrace)
	}
	c.deadline = ctx.Now().Add(wait) // no stream is left that could be told of another
	c.waitFor(ctx, min(wait, c.deps.Limits.FirstToken))
	if !c.log.doubted.IsZero() && ctx.Now().Sub(c.log.doubted) < doubtedFor {
		c.expect(ctx) // the doubt may have crossed what the stream saw of the log
	}
}

// attach takes a detached request back whose response is visible after all: its stream tells all of it, and its end.
func (c *Cycle) attach() {
	c.enter(responding)
	c.deadline = c.limit
}

// onDetachedStreamGone ends what the request holds, if its proxy has never told of a request's end.
func (c *Cycle) onDetachedStreamGone(ctx runtime.Context[messages.CycleMsg], log messages.LogState) {
	if c.check { // no proxy is there that could tell of it
		c.finish(ctx)
		return
	}
	if c.phase != detached || log == messages.LogSeen || !c.log.last.IsZero() {
		return
	}
	c.linger(ctx)
	if log == messages.LogMissing {
		c.giveUp(ctx)
	}
}

// linger gives back all that the request holds, and waits a moment for an entry.
func (c *Cycle) linger(ctx runtime.Context[messages.CycleMsg]) {
	c.enter(lingering)
	c.log.parted = ctx.Now()
	c.account.leave()
	c.unload()
	c.leaveFlow(ctx)
	if soon := c.log.parted.Add(lingersFor); soon.Before(c.deadline) {
		c.deadline = soon
	}
	c.waitFor(ctx, c.deadline.Sub(c.log.parted))
}

// resume makes a request that lingers part of the load again: its proxy says that it runs.
func (c *Cycle) resume() {
	c.enter(detached)
	c.log.parted = time.Time{}
	c.account.comeBack()
	c.load()
}

// onResponseOngoing takes a sign of life: of the response, and of the proxy that will tell its end.
func (c *Cycle) onResponseOngoing(ctx runtime.Context[messages.CycleMsg], m messages.ResponseOngoing) {
	switch c.phase {
	case created, queued, picked, responding, done: // the stream knows better
		c.log.doubted = time.Time{}
		return
	case lingering:
		c.resume()
	case detached:
	}
	now, wait := ctx.Now(), c.deps.Limits.Logged
	if !c.log.last.IsZero() {
		c.log.every = max(c.log.every, now.Sub(c.log.last))
		wait = min(wait, max(missedPulses*c.log.every, missedFor))
	}
	c.log.last = now
	c.deadline = now.Add(wait)
	c.waitFor(ctx, wait)
	c.weigh(ctx, m.ResponseBytes)
}

// onEntriesDoubted expects an entry soon, or as soon as the stream is gone.
func (c *Cycle) onEntriesDoubted(ctx runtime.Context[messages.CycleMsg], m messages.EntriesDoubted) {
	mine := m.Connection == 0 || m.Connection == c.connection
	switch {
	case !mine:
	case c.phase == detached || c.phase == lingering:
		c.expect(ctx)
	default:
		c.log.doubted = ctx.Now()
	}
}

// expect waits no longer than a proxy that lives would take to tell of the request.
func (c *Cycle) expect(ctx runtime.Context[messages.CycleMsg]) {
	soon := ctx.Now().Add(doubtedFor)
	if c.deadline.Before(soon) {
		return
	}
	c.deadline = soon
	c.waitFor(ctx, min(doubtedFor, c.due.Sub(ctx.Now())))
}

// weigh judges the endpoint by how much of the response's body came.
func (c *Cycle) weigh(ctx runtime.Context[messages.CycleMsg], bytes int64) {
	switch {
	case bytes > 0:
		c.reportSuccess()
	case !c.patient && c.served != nil && !c.began.IsZero() && ctx.Now().Sub(c.began) >= c.deps.Limits.FirstToken:
		c.reportSilence()
	}
}

// onLogged takes what the access log knows and the stream did not see.
func (c *Cycle) onLogged(ctx runtime.Context[messages.CycleMsg], m messages.Logged) {
	switch {
	case c.rec.Status != 0: // the stream told
	case m.Served == "" || m.Broken && m.Headers == 0:
		c.rec.Status = m.Status // of the proxy's own answer
	default:
		c.onResponseStarted(ctx, messages.ResponseStarted{Status: m.Status, Served: m.Served})
	}
	switch {
	case m.Broken && c.served != nil:
		c.reportFailure(c.served, messages.ConnectionBroken)
	case m.ClientLeft:
		c.weigh(ctx, c.rec.ResponseBytes)
	case m.Served != "":
		c.reportSuccess()
	}
	c.rec.Bypassed = true
	if m.Headers > 0 { // of the same clock as what follows
		c.rec.Headers = m.Headers
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

// giveUp ends a cycle whose access log entry never came. Of a proxy that sends none the response's headers have to do
// for an answer.
func (c *Cycle) giveUp(ctx runtime.Context[messages.CycleMsg]) {
	if c.phase == lingering && c.rec.Status != 0 {
		c.reportSuccess()
	}
	c.unlogged()
	c.finish(ctx)
}

// unlogged notes that nothing will tell how the request ended. Before its response began that is a client that left.
func (c *Cycle) unlogged() {
	if c.rec.Status == 0 {
		c.rec.Reason = messages.ClientGone
		return
	}
	c.deps.Metrics.unlogged.Inc()
}
