package cycle

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// logGrace is how long the cycle waits for the entry of a request that ended before its response began. The proxy
// writes it at once, but without the request's id if the client left before our answer came: then none can be matched.
const logGrace = time.Second

// A cycle gives up a detached request, whose proxy may have died, once missedEntries intermediate entries in a row have
// not come and missedFor has passed; or once none has come for doubtedFor after a proxy's log or the request's
// connection ended. The shipped Envoy files have an intermediate entry every 5 s.
const (
	missedEntries = 4
	missedFor     = 10 * time.Second
	doubtedFor    = 8 * time.Second
)

// lingersFor is how long a request lingers: longer than the interval of intermediate entries in the shipped files.
const lingersFor = 10 * time.Second

// accessLog is what the proxy's access log has told of the request.
type accessLog struct {
	last    time.Time     // when the newest entry came; zero = none has since the request was detached
	every   time.Duration // the longest time between two entries so far; 0 = unknown
	doubted time.Time     // when entries were last doubted while not detached; zero = not since an entry came
	parted  time.Time     // when the request began to linger; zero unless it lingers, or ended while it did
}

// detach lets the request go on without its stream: the response bypasses us, and the access log tells its end.
func (c *Cycle) detach(ctx runtime.Context[messages.CycleMsg]) {
	c.enter(detached)
	c.endOffer(ctx, true)
	c.rec.Bypassed = true
	wait := c.deps.Limits.Logged
	if c.rec.Status == 0 {
		wait = min(wait, logGrace)
	}
	c.deadline = ctx.Now().Add(wait) // limit no longer counts: no stream is left to cut the request
	c.waitFor(ctx, min(wait, c.deps.Limits.FirstToken))
	if !c.log.doubted.IsZero() && ctx.Now().Sub(c.log.doubted) < doubtedFor {
		c.expect(ctx) // the doubt may concern the log on which the stream relied
	}
}

// attach takes back a detached request whose response is visible after all: its stream tells its progress and its end.
func (c *Cycle) attach() {
	c.enter(responding)
	c.deadline = c.limit
}

// onDetachedStreamGone has the request linger, if its proxy has not sent an entry so far.
func (c *Cycle) onDetachedStreamGone(ctx runtime.Context[messages.CycleMsg], log messages.LogState) {
	if c.check { // a conformance checker has no access log
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

// linger gives back the request's load, and waits for an entry for a while.
func (c *Cycle) linger(ctx runtime.Context[messages.CycleMsg]) {
	c.enter(lingering)
	c.log.parted = ctx.Now()
	c.account.leave()
	c.unloadStages()
	c.unload()
	if soon := c.log.parted.Add(lingersFor); soon.Before(c.deadline) {
		c.deadline = soon
	}
	c.waitFor(ctx, c.deadline.Sub(c.log.parted))
}

// resume makes a lingering request part of the load again, for its proxy says that it runs.
func (c *Cycle) resume(ctx runtime.Context[messages.CycleMsg]) {
	c.enter(detached)
	c.log.parted = time.Time{}
	c.account.comeBack()
	c.load(ctx)
}

// onResponseOngoing notes that the response runs, and that its proxy has a log that will tell its end.
func (c *Cycle) onResponseOngoing(ctx runtime.Context[messages.CycleMsg], m messages.ResponseOngoing) {
	switch c.phase {
	case created, queued, picked, responding, done: // the stream knows better
		c.log.doubted = time.Time{}
		return
	case lingering:
		c.resume(ctx)
	case detached:
	}
	now, wait := ctx.Now(), c.deps.Limits.Logged
	if !c.log.last.IsZero() {
		c.log.every = max(c.log.every, now.Sub(c.log.last))
		wait = max(missedEntries*c.log.every, missedFor)
	}
	c.log.last = now
	c.deadline = now.Add(wait)
	c.waitFor(ctx, wait)
	c.judgeBody(ctx, m.ResponseBytes, now)
	c.chargeSoFar(m.ResponseBytes)
}

// onEntriesDoubted shortens the wait for an entry, now or once the request is detached.
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

// expect shortens the wait for an entry to what a live proxy takes to send one.
func (c *Cycle) expect(ctx runtime.Context[messages.CycleMsg]) {
	soon := ctx.Now().Add(doubtedFor)
	if c.deadline.Before(soon) {
		return
	}
	c.deadline = soon
	c.waitFor(ctx, min(doubtedFor, c.due.Sub(ctx.Now())))
}

// judgeBody judges the endpoint by the bytes of the response's body that have come, the newest of them at a time.
func (c *Cycle) judgeBody(ctx runtime.Context[messages.CycleMsg], bytes int64, at time.Time) {
	switch {
	case bytes > 0:
		c.reportSuccess(at)
	case c.patient || c.served == nil || c.began.IsZero() || c.silent(ctx) < c.deps.Limits.FirstToken:
	case c.busyFor(ctx) == 0:
		c.reportSilence()
	}
}

// onLogged takes from the access log's last entry what the stream did not see.
func (c *Cycle) onLogged(ctx runtime.Context[messages.CycleMsg], m messages.Logged) {
	switch {
	case c.rec.Status != 0: // the stream saw the headers
	case m.Served == "" || m.Broken && m.Headers == 0:
		c.rec.Status = m.Status // of the proxy's own answer
	default:
		c.onResponseStarted(ctx, messages.ResponseStarted{Status: m.Status, Served: m.Served})
	}
	switch {
	case m.Broken && c.served != nil:
		c.reportFailure(c.served, messages.ConnectionBroken)
	case m.ClientLeft: // maybe long after the newest byte
		c.judgeBody(ctx, c.rec.ResponseBytes, c.rec.ArrivedAt.Add(m.FirstToken))
	case m.Served != "":
		c.reportSuccess(ctx.Now())
	}
	c.rec.Bypassed = true
	if m.Headers > 0 { // the proxy's clock, as for FirstToken below
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

// giveUp ends a request whose last entry in the access log never came. If its proxy sends no entries at all, the
// response's headers alone count as a success.
func (c *Cycle) giveUp(ctx runtime.Context[messages.CycleMsg]) {
	if c.phase == lingering && c.rec.Status != 0 {
		c.reportSuccess(time.Time{})
	}
	c.unlogged()
	c.finish(ctx)
}

// unlogged notes that nothing will tell how the request ended. If its response had not begun, its client has left. A
// proxy that sends no entries at all has one that lingers count as served, any other is lost.
func (c *Cycle) unlogged() {
	if c.rec.Status == 0 {
		c.rec.Reason = messages.ClientGone
		return
	}
	if c.phase == detached {
		c.rec.Reason = messages.Lost
	}
	c.deps.Metrics.unlogged.Inc()
}
