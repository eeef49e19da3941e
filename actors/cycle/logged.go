package cycle

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// logGrace is how long the entry of a request may take that ended before its response began: the proxy writes it at once, but
// without the request's id if the client left before our answer was there.
const logGrace = time.Second

// A request counts as lost, its proxy having died perhaps, when so many intermediate entries in a row are missing, and for so long; or when
// none comes for doubtedFor after some proxy's log ended. The shipped files have one every 5 s.
const (
	missedPulses = 4
	missedFor    = 10 * time.Second
	doubtedFor   = 8 * time.Second
)

// lingersFor is how long a request, whose stream is gone and whose proxy has not sent an entry yet, waits for one: longer than the interval
// of intermediate entries in the shipped files.
const lingersFor = 10 * time.Second

// afterlife is where a request is whose response passes by its stream.
//
//	in stream ──the response passes, or the stream ends──► outlived ──its entry, a doubt, its deadline──► ended
//	    ▲                                                   ▲ │  │
//	    └── its body is shown: the proxy was asked for it ──┼─┘  │
//	                                                        │    │
//	                              an entry says that it runs │    │ the stream ends, and its proxy has sent no entry yet
//	                                                        │    ▼
//	                                                       lingering ──its entry, 10 s; at once if its proxy sends none──► ended
type afterlife uint8

const (
	// inStream is a request whose stream tells all that there is to know.
	inStream afterlife = iota
	// outlived is a request whose response passes by: it is load, and the access log tells its end.
	outlived
	// lingering is a request whose proxy may have no access log: it is no load, but its record waits a moment for an entry. One that
	// says that it runs makes it outlived.
	lingering
)

// pulse is what a proxy tells of responses that run: an entry every few seconds, if it is set up for that.
type pulse struct {
	last  time.Time     // entry; zero = none came
	every time.Duration // the longest time between two; 0 = unknown
}

// outlive goes on without a stream: the response passes by us, and the access log tells its end.
func (c *Cycle) outlive(ctx runtime.Context[messages.CycleMsg]) {
	c.after, c.rec.Bypassed = outlived, true
	c.deps.Metrics.outlived.Add(1)
	wait := c.deps.Limits.Logged
	if c.rec.Status == 0 {
		wait = min(wait, logGrace)
	}
	c.deadline = ctx.Now().Add(wait) // nobody is left who could be told of another
	c.waitFor(ctx, min(wait, c.deps.Limits.FirstToken))
	if !c.doubted.IsZero() && ctx.Now().Sub(c.doubted) < doubtedFor { // it may have crossed what the stream saw of the log
		c.expect(ctx)
	}
}

// beShown takes a request back whose response was thought to pass by: its stream tells all of it, and its end.
func (c *Cycle) beShown() {
	c.after, c.deadline = inStream, c.limit
	c.deps.Metrics.outlived.Add(-1)
}

// onOutlivedStreamGone ends what the request holds, if its proxy has never told of a request's end.
func (c *Cycle) onOutlivedStreamGone(ctx runtime.Context[messages.CycleMsg], log messages.LogState) {
	if c.check { // no proxy is there that could tell of it
		c.finish(ctx)
		return
	}
	if c.after != outlived || log == messages.LogSeen || !c.heard.last.IsZero() {
		return
	}
	c.linger(ctx)
	if log == messages.LogMissing {
		c.giveUp(ctx)
	}
}

// linger gives back all that the request holds, and waits a moment for an entry.
func (c *Cycle) linger(ctx runtime.Context[messages.CycleMsg]) {
	c.after, c.parted = lingering, ctx.Now()
	c.deps.Metrics.outlived.Add(-1)
	c.account.leave()
	c.unload()
	c.leaveFlow(ctx)
	if soon := c.parted.Add(lingersFor); soon.Before(c.deadline) {
		c.deadline = soon
	}
	c.waitFor(ctx, c.deadline.Sub(c.parted))
}

// resume makes a request that lingers part of the load again: its proxy says that it runs.
func (c *Cycle) resume() {
	c.after, c.parted = outlived, time.Time{}
	c.deps.Metrics.outlived.Add(1)
	c.account.comeBack()
	c.load()
}

// settleForHeaders takes the response's headers for an answer, if the access log is silent while the response runs.
func (c *Cycle) settleForHeaders(ctx runtime.Context[messages.CycleMsg]) {
	if c.heard.last.IsZero() {
		c.reportSuccess()
	}
	c.waitFor(ctx, c.deadline.Sub(ctx.Now()))
	c.arm(ctx)
}

// onResponseOngoing takes a sign of life: of the response, and of the proxy that will tell its end.
func (c *Cycle) onResponseOngoing(ctx runtime.Context[messages.CycleMsg], m messages.ResponseOngoing) {
	switch c.after {
	case inStream: // the stream knows better
		c.doubted = time.Time{}
		return
	case lingering:
		c.resume()
	case outlived:
	}
	now, wait := ctx.Now(), c.deps.Limits.Logged
	if !c.heard.last.IsZero() {
		c.heard.every = max(c.heard.every, now.Sub(c.heard.last))
		wait = min(wait, max(missedPulses*c.heard.every, missedFor))
	}
	c.heard.last = now
	c.deadline = now.Add(wait)
	c.waitFor(ctx, wait)
	c.weigh(ctx, m.ResponseBytes)
}

// onEntriesDoubted expects an entry soon, or as soon as the stream is gone.
func (c *Cycle) onEntriesDoubted(ctx runtime.Context[messages.CycleMsg], m messages.EntriesDoubted) {
	mine := m.Connection == 0 || m.Connection == c.connection
	switch {
	case !mine:
	case c.after == inStream:
		c.doubted = ctx.Now()
	default:
		c.expect(ctx)
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

// giveUp ends a cycle whose access log entry never came. Of a proxy that sends none the response's headers have to do for an answer.
func (c *Cycle) giveUp(ctx runtime.Context[messages.CycleMsg]) {
	if c.after == lingering && c.rec.Status != 0 {
		c.reportSuccess()
	}
	c.unlogged()
	c.finish(ctx)
}

// unlogged is the end of a request of which nobody will tell how it ended.
func (c *Cycle) unlogged() {
	if c.rec.Status == 0 {
		c.rec.Reason = messages.ClientGone
		return
	}
	c.deps.Metrics.unlogged.Inc()
}
