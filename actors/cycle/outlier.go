package cycle

import (
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// trial is what is learned of endpoints from the request. A probe that was taken is given back once: by a success or a
// failure of chosen that is reported with its incident, or by ProbeAbandoned, at the latest from Stopped.
type trial struct {
	chosen     *endpoints.Endpoint // the first of our list; nil before the pick
	picked     time.Time           // when; zero before
	incident   uint64              // of chosen at the pick, which a good answer to the request ends; 0 = none
	probe      bool                // the request is its probe, and has yet to tell the result; then chosen is set
	patient    bool                // silence was reported, or is no failure any more
	proved     bool                // the body of a good answer came, which was noted
	bodyStatus int                 // HTTP status of the error that an event of the response named; 0 = none did
}

// choose notes the pick, before anything can fail: a probe that was taken has to be given back.
func (c *Cycle) choose(ctx runtime.Context[messages.CycleMsg], out *schedule.Outcome) {
	if len(out.Ranked) == 0 {
		return
	}
	c.chosen, c.picked, c.probe = out.Ranked[0], ctx.Now(), out.Probe
	if s := c.chosen.Outlier(); s != nil && (c.probe || s.Ejected && c.conclusive(ctx, s)) {
		c.incident = s.Incident
	}
}

// conclusive reports whether a good answer to the request shows that an endpoint is healthy again.
func (c *Cycle) conclusive(ctx runtime.Context[messages.CycleMsg], s *outlier.Status) bool {
	return c.req.Shown || !s.Cause.InBody() || s.Due(ctx.Now(), false)
}

// patience returns how long a response may be silent: at first until that is a failure of its endpoint, then until it
// is given up. An answer that is not streamed is silent until it is whole; that is no failure, but others may try the
// endpoint as well.
func (c *Cycle) patience() time.Duration {
	if c.patient || !c.req.Stream && !c.probe {
		return c.deps.Limits.ResponseIdle
	}
	return min(c.deps.Limits.FirstToken, c.deps.Limits.ResponseIdle)
}

// judge takes the status of the endpoint that served. What is the client's fault is no failure of the endpoint.
func (c *Cycle) judge(status int) {
	switch {
	case c.served == nil || c.check: // the pool does not know the server, or none answered
	case status == 503:
		c.reportFailure(c.served, messages.Overload)
	case status >= 500:
		c.reportFailure(c.served, messages.ServerError)
	case status >= 200:
		endpoints.LoadWriter{Endpoint: c.served}.Answered(c.picked)
		if status >= 400 {
			c.reportSuccess()
		}
	}
}

// onErrorSeen judges the endpoint that served by the status that an event of its answer names.
func (c *Cycle) onErrorSeen(m messages.ErrorSeen) {
	c.bodyStatus, c.patient = m.Status, true
	switch {
	case c.served == nil: // the pool does not know the server
	case m.Status < 500: // the client's fault is no failure of the endpoint
	case m.Status == 503:
		c.reportFailure(c.served, messages.OverloadInStream)
	default:
		c.reportFailure(c.served, messages.ErrorInStream)
	}
}

// reportSuccess notes that the body of a good answer came. Headers alone prove nothing, for an engine that hangs sends
// them. It ends the incident of the endpoint that was tried, also if its silence was reported before, or another
// request is the probe.
func (c *Cycle) reportSuccess() {
	if c.check || c.proved || c.bodyStatus >= 500 || c.served == nil || c.rec.Local != "" || c.rec.Status >= 500 {
		return
	}
	c.proved = true
	endpoints.LoadWriter{Endpoint: c.served}.Proved(c.picked, c.req.Shown)
	if c.served == c.chosen && c.incident != 0 {
		c.probe = false
		c.deps.Outlier.Tell(messages.SuccessReported{Endpoint: c.chosen.ID, Incident: c.incident})
	}
}

// reportFailure tells of a failure of an endpoint. Of the chosen one it is the result, also if a
// success was reported before.
func (c *Cycle) reportFailure(e *endpoints.Endpoint, kind messages.FailureKind) {
	if c.check {
		return
	}
	pick := messages.Pick{At: c.picked}
	if e == c.chosen && (c.probe || c.proved) {
		pick.Incident, c.probe = c.incident, false
	}
	if c.proved && kind != messages.NoFirstToken { // it was healthy when it was picked: this is news
		pick.At = time.Time{}
	}
	c.deps.Outlier.Tell(messages.FailureReported{Endpoint: e.ID, Kind: kind, Pick: pick})
}

// reportLocal tells of a failure that Envoy's own answer names: the chosen endpoint could not be reached, or broke
// off. An overflow is Envoy's own limit.
func (c *Cycle) reportLocal(details string) {
	if strings.HasPrefix(details, "upstream_reset") && !strings.Contains(details, "{overflow") {
		c.reportFailure(c.chosen, messages.ConnectionBroken)
	}
}

// onSilence reports an endpoint that was silent for too long, and waits on.
func (c *Cycle) onSilence(ctx runtime.Context[messages.CycleMsg]) {
	waited := c.patience()
	c.reportSilence()
	c.waitFor(ctx, c.deps.Limits.ResponseIdle-waited)
	c.arm(ctx)
}

// reportSilence tells that the endpoint was silent for too long, if its answer is one that should have begun by now.
func (c *Cycle) reportSilence() {
	c.patient = true
	if c.req.Stream {
		c.reportFailure(c.served, messages.NoFirstToken)
		return
	}
	c.abandonProbe()
}

// abandonProbe gives a probe back that has no result.
func (c *Cycle) abandonProbe() {
	if c.probe {
		c.probe = false
		c.deps.Outlier.Tell(messages.ProbeAbandoned{Endpoint: c.chosen.ID, Incident: c.incident})
	}
}
