package cycle

import (
	"slices"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// observation is what the request shows of its endpoint. A probe that was taken is given back once: by a success or a
// failure of chosen that is reported with its incident, or by ProbeAbandoned, at the latest from Stopped.
type observation struct {
	chosen     *endpoints.Endpoint // the first destination; nil before the pick
	picked     time.Time           // when chosen was picked; zero before
	incident   uint64              // of chosen at the pick, which a good answer to the request ends; 0 = none
	probe      bool                // the request is the probe of chosen, which is set, and has not reported its result
	patient    bool                // silence is no failure (any more): it was reported, or the response has come so far
	proved     bool                // the body of a good answer began, and that was noted at the endpoint
	bodyStatus int                 // HTTP status of the error that an event of the response named; 0 = none did
	tried      []tried             // what works before chosen, and may show that it serves again
	service    service
}

// tried is an endpoint beside chosen that a good answer to the request shows to serve again. The proxy does not ask it:
// the answer's outcome, behind a metrics page that can be read, is all that can be known of it. A probe is given back
// once, like that of chosen.
type tried struct {
	endpoint *endpoints.Endpoint
	incident uint64 // of the endpoint at the pick
	probe    bool
}

// service is what the request shows of how much work its endpoint takes.
type service struct {
	cached int32 // tokens of the prompt that chosen was taken to hold at the pick; -1 = no index was asked
	ahead  int32 // tokens of other prompts that it had to compute then
	before int32 // requests that it had in flight then
	due    bool  // the window actor is to be told
	begun  bool  // the first token has come
}

// choose notes the pick before anything can fail, because a probe that was taken has to be given back.
func (c *Cycle) choose(ctx runtime.Context[messages.CycleMsg], out *schedule.Outcome) {
	if len(out.Ranked) == 0 {
		return
	}
	c.chosen, c.picked, c.probe, c.incident, c.tried = out.Ranked[0], ctx.Now(), out.Probe, 0, nil
	c.service.cached = int32(max(out.PrefixBlocks*blockindex.BlockTokens, -1))
	if s := c.chosen.Outlier(); s != nil && (c.probe || s.Ejected && c.conclusive(ctx, s)) {
		c.incident = s.Incident
	}
	for _, of := range out.Stages {
		if s := of.Outlier(); s != nil && (of.Probe || s.Ejected && c.conclusive(ctx, s)) {
			c.tried = append(c.tried, tried{of.Endpoint, s.Incident, of.Probe})
		}
	}
}

// conclusive reports whether a good answer to the request shows that an endpoint is healthy again.
func (c *Cycle) conclusive(ctx runtime.Context[messages.CycleMsg], s *outlier.Status) bool {
	return c.req.Visible || !s.Cause.InBody() || s.Due(ctx.Now(), false)
}

// patience returns how long a response may be silent: first until silence is a failure of its endpoint, and later until
// the request is cut. An answer that is not streamed is silent until it is whole, which is no failure. If such a
// request is the probe, it gives the probe back after the first-token timeout, so that another one can try.
func (c *Cycle) patience() time.Duration {
	if c.patient || !c.req.Stream && !c.probes() {
		return c.deps.Limits.ResponseIdle
	}
	return min(c.deps.Limits.FirstToken, c.deps.Limits.ResponseIdle)
}

// probes reports whether the request is a probe, of the endpoint that serves or of what works before it.
func (c *Cycle) probes() bool {
	return c.probe || slices.ContainsFunc(c.tried, func(t tried) bool { return t.probe })
}

// judge reports what a response's status says of the endpoint that served. A client's error (4xx) is no failure of it.
func (c *Cycle) judge(status int) {
	if status >= 500 {
		c.failStages(messages.ServerError)
	}
	switch {
	case c.served == nil || c.check: // the pool does not have the server, or none answered
	case (status == 502 || status == 504) && c.rec.Decision.Stages.Len() > 0:
		// Its sidecar could not reach a stage, or its own engine: scrapes tell which.
	case status == 503:
		c.reportFailure(c.served, messages.Overload)
	case status >= 500:
		c.reportFailure(c.served, messages.ServerError)
	case status >= 200:
		endpoints.LoadWriter{Endpoint: c.served}.Answered(c.picked)
		if status >= 400 {
			c.reportSuccess(time.Time{})
		}
	}
}

// onErrorSeen judges the endpoint that served by the status that an event of its answer names.
func (c *Cycle) onErrorSeen(m messages.ErrorSeen) {
	c.bodyStatus, c.patient = m.Status, true
	if m.Status >= 500 {
		c.failStages(messages.ErrorInStream)
	}
	switch {
	case c.served == nil: // the pool does not have the server
	case m.Status < 500: // a client's error is no failure of the endpoint
	case m.Status == 503:
		c.reportFailure(c.served, messages.OverloadInStream)
	default:
		c.reportFailure(c.served, messages.ErrorInStream)
	}
}

// reportSuccess notes that the body of a good answer came. Headers alone prove nothing, for an engine that hangs sends
// them. The success ends the incident of the chosen endpoint, even if this request reported its silence before, or
// another request is the probe. at is when the endpoint gave something of the answer; zero = that was not seen. It ends
// an incident of silence whenever the request was picked.
func (c *Cycle) reportSuccess(at time.Time) {
	if c.check || c.proved || c.bodyStatus >= 500 || c.served == nil || c.rec.Local != "" || c.rec.Status >= 500 {
		return
	}
	c.proved = true
	endpoints.LoadWriter{Endpoint: c.served}.Proved(c.prompt(), c.picked, at, c.req.Visible)
	for _, t := range c.tried {
		c.deps.Outlier.Tell(messages.SuccessReported{Endpoint: t.endpoint.ID, Incident: t.incident})
	}
	c.tried = nil
	s := c.served.Outlier()
	switch {
	case c.served == c.chosen && c.incident != 0:
		c.probe = false
		c.deps.Outlier.Tell(messages.SuccessReported{Endpoint: c.chosen.ID, Incident: c.incident})
	case s != nil && s.Cause.Silent() && at.After(s.Since):
		c.deps.Outlier.Tell(messages.SuccessReported{Endpoint: c.served.ID, Incident: s.Incident})
	}
}

// reportFailure reports a failure of an endpoint. A failure of the chosen one is the result of the probe, even after a
// success was reported.
func (c *Cycle) reportFailure(e *endpoints.Endpoint, kind messages.FailureKind) {
	if c.check {
		return
	}
	pick := messages.Pick{At: c.picked}
	if e == c.chosen && (c.probe || c.proved) {
		pick.Incident, c.probe = c.incident, false
	}
	if c.proved && kind != messages.NoFirstToken { // it answered well after the pick: the failure is newer than that
		pick.At = time.Time{}
	}
	c.deps.Outlier.Tell(messages.FailureReported{Endpoint: e.ID, Kind: kind, Pick: pick})
}

// failStages reports the failure of the probes of what works before chosen. Whose fault it was is not known, but only a
// good answer shows that they serve again. Without a probe it is no failure of theirs.
func (c *Cycle) failStages(kind messages.FailureKind) {
	if c.check {
		return
	}
	for _, t := range c.tried {
		if t.probe {
			c.deps.Outlier.Tell(messages.FailureReported{
				Endpoint: t.endpoint.ID, Kind: kind, Pick: messages.Pick{At: c.picked, Incident: t.incident},
			})
		}
	}
	c.tried = nil
}

// reportLocal reports a failure that Envoy's own answer names: the chosen endpoint could not be reached, or closed the
// connection. An overflow is a limit of Envoy's, and no failure of the endpoint.
func (c *Cycle) reportLocal(details string) {
	if strings.HasPrefix(details, "upstream_reset") && !strings.Contains(details, "{overflow") {
		c.reportFailure(c.chosen, messages.ConnectionBroken)
	}
}

// onSilence reports an endpoint that was silent for longer than the first-token timeout, and waits on. An endpoint that
// gives first tokens to others is busy, and is asked again when its newest one is that old.
func (c *Cycle) onSilence(ctx runtime.Context[messages.CycleMsg]) {
	left := c.deps.Limits.ResponseIdle - c.silent(ctx)
	if busy := c.busyFor(ctx); busy > 0 {
		left = min(left, busy)
	} else {
		c.reportSilence()
	}
	c.waitFor(ctx, left)
	c.arm(ctx)
}

// silent returns for how long the response has been silent that has not begun, or of which only the headers have come.
func (c *Cycle) silent(ctx runtime.Context[messages.CycleMsg]) time.Duration {
	if c.began.IsZero() {
		return ctx.Now().Sub(c.picked)
	}
	return ctx.Now().Sub(c.began)
}

// busyFor returns for how long the endpoint counts as one that answers; 0 = no request had a first token from it for
// the first-token timeout. For an answer that is not streamed the endpoint is not in doubt.
func (c *Cycle) busyFor(ctx runtime.Context[messages.CycleMsg]) time.Duration {
	if !c.req.Stream {
		return 0
	}
	return max(0, c.deps.Limits.FirstToken-ctx.Now().Sub(c.served.LastToken()))
}

// reportSilence reports a failure if the answer is streamed, and so should have begun by now. Otherwise it only gives
// back the probes.
func (c *Cycle) reportSilence() {
	c.patient = true
	if c.req.Stream {
		c.reportFailure(c.served, messages.NoFirstToken)
		c.failStages(messages.NoFirstToken)
		return
	}
	c.abandonProbes()
}

// reportLeave reports a client that left before the first token of a streamed answer. What that says of the endpoint
// depends on others.
func (c *Cycle) reportLeave() {
	r := &c.rec
	if r.Reason != messages.ClientGone || c.check || c.chosen == nil || c.served != c.chosen || r.Local != "" {
		return // it did not leave, or another endpoint serves
	}
	if !r.Stream || c.proved || c.patient || r.FirstToken > 0 || r.ResponseBytes > 0 || r.Status >= 400 ||
		r.Decision.Stages.Len() > 0 {
		return // something came, silence was reported, or the wait may have been for a stage
	}
	client := r.Flow.Fairness
	if client == messages.DefaultFairness {
		client = ""
	}
	c.deps.Outlier.Tell(messages.FailureReported{
		Endpoint: c.chosen.ID, Kind: messages.ClientsLeft, Pick: messages.Pick{At: c.picked}, Client: client,
		Prompt: c.prompt(),
	})
}

// prompt returns how long the prompt is. What another endpoint than the chosen one holds of it is not known.
func (c *Cycle) prompt() messages.Prompt {
	p := messages.Prompt{Tokens: c.req.PromptTokens, Computed: c.req.PromptTokens}
	if c.served == c.chosen {
		p.Computed = max(p.Tokens-max(int(c.service.cached), 0), 0)
	}
	return p
}

// abandonProbes gives the probes that the request has back without a result. A good answer that comes later still shows
// that the endpoints serve again.
func (c *Cycle) abandonProbes() {
	for i := range c.tried {
		if t := &c.tried[i]; t.probe {
			t.probe = false
			c.deps.Outlier.Tell(messages.ProbeAbandoned{Endpoint: t.endpoint.ID, Incident: t.incident})
		}
	}
	if c.probe {
		c.probe = false
		c.deps.Outlier.Tell(messages.ProbeAbandoned{Endpoint: c.chosen.ID, Incident: c.incident})
	}
}

// expectService notes the pick. The window of another endpoint than the chosen one learns nothing from the request.
func (c *Cycle) expectService() { c.service.due = c.plan.Learns() && !c.check }

// work returns what the request adds to the load of an endpoint. What another one than the chosen one holds of the
// prompt is not known.
func (c *Cycle) work(at *endpoints.Endpoint) endpoints.Work {
	cached := int(c.service.cached)
	if at != c.chosen {
		cached = min(cached, 0)
	}
	w := c.plan.Work(&c.req, cached)
	w.Unseen = !c.req.Stream || !c.req.Visible
	if c.service.begun {
		return w.Begun()
	}
	return w
}

// timeFirstToken tells how long the endpoint took to the first token. Of an answer that is not streamed, the first
// byte comes with the last, and one with stages may have waited elsewhere.
func (c *Cycle) timeFirstToken(took time.Duration) {
	if !c.service.due || !c.times(took) {
		return
	}
	c.service.due = false
	c.deps.Window.Tell(messages.FirstTokenTimed{
		Endpoint: c.chosen.ID, Picked: c.picked, Took: took,
		Prompt: c.prompt().Computed,
		Ahead:  int(c.service.ahead),
		Before: int(c.service.before),
	})
}

// times reports whether the time of a first token is that of the chosen endpoint alone.
func (c *Cycle) times(took time.Duration) bool {
	return c.rec.Served == c.chosen.ID && c.req.Stream && took > 0 && c.rec.Decision.Stages.Len() == 0 &&
		c.rec.Status < 400 && c.bodyStatus == 0
}

// tellFirstToken has plugins learn, once, how long the endpoint took.
func (c *Cycle) tellFirstToken(ctx runtime.Context[messages.CycleMsg], took time.Duration) {
	if c.plugins.first && c.times(took) {
		c.plugins.first = false
		c.keep(ctx, c.deps.Scheduler.FirstToken(c.plan, c.chosen.ID, took, c.plugins.values))
	}
}

// endService tells that the request has ended at its endpoint, unless its first token was told. The access log may know
// when that came.
func (c *Cycle) endService() {
	if !c.service.due {
		return
	}
	if c.rec.FirstToken > 0 {
		c.timeFirstToken(c.rec.FirstToken - c.rec.Decided)
	}
	if !c.service.due || c.rec.Served != c.chosen.ID {
		return // another one served
	}
	c.service.due = false
	own := c.rec.Local == ""
	c.deps.Window.Tell(messages.ServiceEnded{
		Endpoint: c.chosen.ID, Served: own && c.whole && c.rec.Status < 400,
		Refused: own && (c.rec.Status == 429 || c.rec.Status == 503),
	})
}

// tellPlugins comes last, when nothing is held any more, for a plugin may panic.
func (c *Cycle) tellPlugins(ctx runtime.Context[messages.CycleMsg]) {
	if c.plugins.first && c.rec.FirstToken > 0 { // as the access log has it
		c.tellFirstToken(ctx, c.rec.FirstToken-c.rec.Decided)
	}
	if c.plugins.due {
		c.keep(ctx, c.deps.Scheduler.End(c.plan, &c.req, &c.rec, c.plugins.values))
	}
}
