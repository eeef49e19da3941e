// Package cycle is the life of one request: wait, pick, serve, release.
//
// A cycle owns the state of its request, and no other actor keeps a copy that could be left behind. When the actor
// ends, for whatever reason, Stopped answers what the cycle owes and gives back what it holds. It never sees a frame or
// a connection (adapters/extproc does), and never decides (engine/schedule does).
package cycle

import (
	"cmp"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// Limits are the deadlines that a cycle sets. None is zero; no limit is carried as 24 hours.
type Limits struct {
	Queue        time.Duration // from RequestArrived to the turn in which it is picked for
	Pick         time.Duration // for the pick, including the time of RequestArrived in the inbox
	FirstToken   time.Duration // from the pick to the first byte of the response's body; longer is a failure
	ResponseIdle time.Duration // between two signs of life of the response
	Logged       time.Duration // from the end of the stream to the access log's first entry
}

// Deps holds what the cycles of one loop work with.
type Deps struct {
	Prefix    messages.Sink[messages.PrefixMsg]
	Memory    messages.Sink[messages.MemoryMsg]
	Outlier   messages.Sink[messages.OutlierMsg]
	Window    messages.Sink[messages.WindowMsg]
	Bell      flow.Bell     // of the line of those who wait, and its owner
	Traffic   *flow.Traffic // of all requests that may have to wait
	Pool      *endpoints.Published
	Scheduler *schedule.Scheduler       // the loop's
	Book      *records.Book             // the loop's
	Estimates *records.Estimates        // of all loops
	Status    func(messages.Reason) int // the HTTP status of a refusal
	Limits    Limits
	Metrics   *Families
	Report    func(*messages.Record) // called with each request at its end; must not block or keep the record

	EmitScores bool // PickMade has scores
}

// Cycle is the actor of one request.
type Cycle struct {
	deps *Deps
	configuration

	phase phase
	arrival
	held holdings
	response
	observation
	log accessLog
	deadlines
	account account
	record

	plugins aftermath
}

// configuration is the one that the request came under, whatever comes into force meanwhile.
type configuration struct {
	plan     *schedule.Plan
	queueing *flow.Settings // nil = the plan has no gate
}

// aftermath is what plugins are owed of a request that was picked for.
type aftermath struct {
	first  bool  // some learn when the first token comes
	due    bool  // some learn how it ends
	values []any // of their private slots
	kept   messages.List[messages.Kept]
}

// arrival is what the first message brought. It is empty only in the phase created.
type arrival struct {
	req        messages.Request // its blocks go once the prefix actor has them
	stream     messages.Sink[messages.StreamMsg]
	connection messages.ConnectionID // on which it came, as the access log's entries name it; 0 = unknown
	check      bool                  // a conformance checker sent it: it leaves no load, record or metric
}

// response is what is known of the model server's response, beside what the record has.
type response struct {
	// served is the endpoint that works for the request. It is nil before the pick, and once it is known that no
	// endpoint of the pool works for it.
	served *endpoints.Endpoint
	sent   []sentTo  // the destinations, if one is not sent to its endpoint's own address; else empty
	began  time.Time // when its headers came; zero before
	whole  bool      // its end was seen; true only in the phase done

	revoked bool // the stream was told to end it
}

// sentTo is a destination, and the address to which the proxy sends the request for it.
type sentTo struct {
	endpoint *endpoints.Endpoint
	to       messages.Address
}

// Role returns the role of the cycles of one loop and one plan. In the rings a cycle has the number of its request.
func Role(deps *Deps, plan *schedule.Plan, queueing *flow.Settings) runtime.Role[messages.CycleMsg] {
	return runtime.Role[messages.CycleMsg]{
		Name: "cycle", Policy: runtime.StopOnPanic,
		New: func() runtime.Actor[messages.CycleMsg] { return New(deps, plan, queueing) },
		Number: func(first messages.CycleMsg) uint64 {
			arrived, _ := first.(messages.RequestArrived)
			return uint64(arrived.Request.ID)
		},
	}
}

// New returns a cycle before its first message. queueing says how requests wait; nil = the plan has no gate.
func New(deps *Deps, plan *schedule.Plan, queueing *flow.Settings) *Cycle {
	return &Cycle{deps: deps, configuration: configuration{plan, queueing}}
}

// Receive follows a request from its arrival to its end. The cases stand in the order of a request's life.
func (c *Cycle) Receive(ctx runtime.Context[messages.CycleMsg], m messages.CycleMsg) {
	defer c.handled(ctx, c.received(ctx, m))
	switch m := m.(type) {
	case messages.RequestArrived:
		c.onRequestArrived(ctx, m)
	case messages.Queued:
		c.onQueued(ctx, m)
	case messages.Dispatched:
		c.onDispatched(ctx, m)
	case messages.Rejected:
		c.onTurnedAway(ctx, messages.PickFailed{Reason: m.Reason, RetryAfter: m.RetryAfter})
	case messages.Evicted:
		c.onTurnedAway(ctx, messages.PickFailed{Reason: m.Reason, RetryAfter: m.RetryAfter})
	case messages.Revoked:
		c.onRevoked(ctx, m)
	case messages.ResponseStarted:
		c.onResponseStarted(ctx, m)
	case messages.FirstTokenSeen:
		c.onFirstTokenSeen(ctx, m)
	case messages.ErrorSeen:
		c.onErrorSeen(m)
	case messages.ResponseProgressed:
		c.waitFor(ctx, c.deps.Limits.ResponseIdle)
		c.chargeSoFar(m.ResponseBytes)
	case messages.ResponseOngoing:
		c.onResponseOngoing(ctx, m)
	case messages.EntriesDoubted:
		c.onEntriesDoubted(ctx, m)
	case messages.ResponseEnded:
		c.onResponseEnded(ctx, m)
	case messages.StreamGone:
		c.onStreamGone(ctx, m)
	case messages.CycleDeadlinePassed:
		c.onCycleDeadlinePassed(ctx, m)
	case messages.CycleQueried:
		c.onCycleQueried(ctx, m)
	}
}

// onRequestArrived opens the record and picks, unless others go first.
func (c *Cycle) onRequestArrived(ctx runtime.Context[messages.CycleMsg], m messages.RequestArrived) {
	c.enter(queued)
	c.arrival = arrival{req: m.Request, stream: m.Stream, connection: m.Connection, check: m.Check}
	c.req.Blocks = c.plan.Counted(&c.req)
	c.limit, c.deadline = m.Deadline, m.Deadline
	c.rec = messages.Record{
		Request: m.Request.ID, Configuration: m.Configuration,
		ClientID: m.Request.ClientID, Model: records.Label(m.Request.Model), Flow: m.Flow,
		Agent: m.Request.Agent, Path: m.Request.Path, API: m.Request.Form.API,
		Stream: m.Request.Stream, ArrivedAt: m.ArrivedAt,
		PromptTokens: m.Request.PromptTokens, BodyBytes: m.Request.BodyBytes,
	}
	c.rec.RewriteLeft = m.Request.Rewrite.Left
	if m.Request.Rewrite.Made {
		c.rec.Model, c.rec.Target = records.Label(m.Request.Rewrite.From), c.rec.Model
	}
	c.openEntry(ctx)
	c.beginWait(ctx, &m)
	if c.wait.gated && c.deps.Bell.Line.HoldsUp(m.Flow.Priority) {
		if c.price(ctx) {
			c.joinLine(ctx)
		}
		return
	}
	c.try(ctx, chance{})
}

// onDispatched picks for a request that has its turn.
func (c *Cycle) onDispatched(ctx runtime.Context[messages.CycleMsg], m messages.Dispatched) {
	if c.phase != queued {
		return // a second Dispatched
	}
	c.chargeTurn(true)
	c.try(ctx, chance{turn: true, waited: m.Waited, share: m.Share})
}

// chance is an attempt at picking for a request.
type chance struct {
	turn   bool          // capacity gave it; false = the request has just come
	waited time.Duration // in the line; 0 = it did not wait
	share  float64       // as in Dispatched
}

// try picks. It adds the load in the same step, so that the next request on this loop sees it. Without room the request
// waits.
func (c *Cycle) try(ctx runtime.Context[messages.CycleMsg], a chance) {
	if c.late(ctx, a, 0) {
		c.refuse(ctx, messages.PickFailed{Reason: messages.PickTimeout, RetryAfter: time.Second})
		return
	}
	c.unhold() // it does not stand in its own way
	c.req.Share = a.share
	out := c.deps.Scheduler.Run(c.plan, &c.req, c.wait.intake, c.deps.Pool.Snapshot(), ctx.Now())
	c.choose(ctx, &out)
	c.wait.saturation = messages.Saturation{Known: c.plan.TellsSaturation(), Full: out.Saturation}
	if out.Full || out.Reason == messages.NoReason && !c.reserve(ctx, &out) {
		c.rec.Decision = out.Decision
		c.waitForRoom(ctx, a, &out)
		return
	}
	c.endWait(ctx, a.waited, messages.OutcomeDispatched)
	c.deps.Scheduler.Prepare(c.plan, &c.req, &out)
	c.account.onScheduled(out.Took, out.Reason)
	c.rec.Decision = out.Decision
	c.rec.Decided = max(ctx.Now().Add(ctx.Elapsed()).Sub(c.rec.ArrivedAt), 1)
	switch {
	case out.Reason != messages.NoReason:
		c.refuse(ctx, messages.PickFailed{Reason: out.Reason, Detail: out.Detail, RetryAfter: out.RetryAfter})
	case c.late(ctx, a, out.Took):
		c.refuse(ctx, messages.PickFailed{Reason: messages.PickTimeout, RetryAfter: time.Second})
	default:
		c.onPicked(ctx, &out)
	}
}

// onPicked takes what else the request holds while it is served, beside its load, and answers its stream.
func (c *Cycle) onPicked(ctx runtime.Context[messages.CycleMsg], out *schedule.Outcome) {
	c.rec.Served, c.wait.picked = c.served.ID, true
	c.expectService()
	if c.wait.gated {
		c.wait.traffic.Dispatch()
	}
	if !c.check {
		endpoints.LoadWriter{Endpoint: c.served}.CountPick()
		c.account.onPicked(c.served, out.PrefixBlocks, c.req.Blocks.Len())
	}
	if s := c.served.Sample(); s != nil {
		c.rec.SampleAge = ctx.Now().Sub(s.At)
	}
	if out.Split != "" {
		c.account.onSplit(split{c.plan.HandlerLabels(), out.Split})
	}
	blocks := c.req.Blocks
	c.placePrompt(ctx, out.Stages)
	c.keep(ctx, out.Kept)
	c.noteDestinations(out)
	c.plugins = aftermath{
		first: c.plan.HasFirstTokens() && !c.check, due: c.plan.HasEnds() && !c.check,
		values: out.Values, kept: out.Kept,
	}
	c.waitFor(ctx, c.patience())
	c.enter(picked)
	c.leaveLine(ctx)
	c.offer(ctx)
	made := messages.PickMade{
		Destinations: messages.ListOf(out.Sent...), Headers: out.Decision.Headers, Responses: out.Responses,
		Queue: c.queueTime(), Engine: c.served.Engine,
	}
	if c.deps.EmitScores {
		made.Scores = c.deps.Scheduler.Scores(&out.Decision)
	}
	c.account.onAnswered(c.answer(ctx, made))
	c.runShadows(ctx, blocks)
}

// keep tells what plugins keep of the pick for later requests. If the message is lost, later requests do without.
func (c *Cycle) keep(ctx runtime.Context[messages.CycleMsg], kept messages.List[messages.Kept]) {
	if kept.Len() > 0 && !c.check {
		tell[messages.MemoryMsg](c, ctx, c.deps.Memory, toMemory, messages.PickKept{
			Request: c.req.ID, Configuration: c.rec.Configuration, Kept: kept,
		})
	}
}

// keepServed has the sessions that are kept at the chosen endpoint follow the request to the one that serves it.
func (c *Cycle) keepServed(ctx runtime.Context[messages.CycleMsg], at messages.EndpointID) {
	var moved []messages.Kept
	for _, k := range c.plugins.kept.All() {
		if k.Table == messages.SessionTable && k.Endpoint == c.chosen.ID && at.Generation > 0 {
			k.Endpoint = at
			moved = append(moved, k)
		}
	}
	c.keep(ctx, messages.TakeList(moved))
}

// runShadows has the shadow profiles pick too, now that the stream has its answer.
func (c *Cycle) runShadows(ctx runtime.Context[messages.CycleMsg], blocks messages.List[uint64]) {
	if !c.plan.HasShadows() || c.check {
		return
	}
	c.req.Blocks = blocks
	c.deps.Scheduler.Shadow(c.plan, &c.req, &c.rec.Decision, ctx.Now())
	c.req.Blocks = messages.List[uint64]{}
}

// noteDestinations keeps where the request is sent, if that does not follow from the endpoints.
func (c *Cycle) noteDestinations(out *schedule.Outcome) {
	elsewhere := false
	for i, e := range out.Ranked {
		elsewhere = elsewhere || out.Sent[i] != e.Spec.Address
	}
	if !elsewhere {
		return
	}
	for i, e := range out.Ranked {
		c.sent = append(c.sent, sentTo{e, out.Sent[i]})
	}
}

// onResponseStarted learns which endpoint serves the request, and moves the request's load and prompt there.
func (c *Cycle) onResponseStarted(ctx runtime.Context[messages.CycleMsg], m messages.ResponseStarted) {
	c.rec.Status, c.rec.Local = m.Status, m.Local
	c.account.responded(&c.rec)
	if m.Status != 0 && !m.At.IsZero() {
		c.rec.Headers = m.At.Sub(c.rec.ArrivedAt)
	}
	c.began = ctx.Now()
	c.patient = c.patient || m.Status >= 400
	c.waitFor(ctx, c.patience())
	if c.phase == picked && !m.Bypasses {
		c.enter(responding)
	}
	if c.served == nil {
		return
	}
	where := c.served.ID
	switch {
	case m.Local != "": // Envoy answered by itself: Served names the endpoint that it tried
		c.reportLocal(m.Local)
		where = c.servedByNone()
	case m.Served != "" && !c.sentFirst(m.Served):
		where = c.move(ctx, m.Served)
		c.keepServed(ctx, where)
		c.reportFailure(c.chosen, messages.ServedElsewhere)
	}
	c.offerAnew(ctx)
	c.judge(m.Status)
	if c.held.prompt {
		m := messages.PromptServed{Request: c.req.ID, Endpoint: where}
		tell[messages.PrefixMsg](c, ctx, c.deps.Prefix, toPrefix, m)
	}
	if c.phase == picked && m.Bypasses {
		c.unloadStages() // the first token will not be seen
		c.detach(ctx)
	}
}

// onFirstTokenSeen notes when the first token came. An error has none.
func (c *Cycle) onFirstTokenSeen(ctx runtime.Context[messages.CycleMsg], m messages.FirstTokenSeen) {
	c.unloadStages()
	c.begin(ctx)
	c.rec.Bypassed = false // the body is visible after all: the stream can ask the proxy to show it
	if c.phase == detached {
		c.attach()
		c.offer(ctx)
	}
	if c.rec.Status < 400 && c.bodyStatus == 0 {
		c.rec.FirstToken = m.At.Sub(c.rec.ArrivedAt)
	}
	c.rec.ResponseID = m.ResponseID
	c.patient = true
	c.reportSuccess(ctx.Now())
	c.timeFirstToken(m.At.Sub(c.picked))
	c.tellFirstToken(ctx, m.At.Sub(c.picked))
	c.waitFor(ctx, c.deps.Limits.ResponseIdle)
}

// onResponseEnded ends the request: the stream saw the end of its response, or the access log tells of it.
func (c *Cycle) onResponseEnded(ctx runtime.Context[messages.CycleMsg], m messages.ResponseEnded) {
	if c.phase == queued { // a response before the pick is a fault of ours
		c.refuse(ctx, messages.PickFailed{Reason: messages.Internal})
		return
	}
	c.log.parted = time.Time{} // it ends now, and not when it began to linger
	c.rec.Usage, c.rec.ResponseBytes, c.whole = m.Usage, m.ResponseBytes, true
	c.rec.ResponseID = cmp.Or(c.rec.ResponseID, m.ResponseID)
	c.account.paced(&c.rec, &m.Pace)
	c.wait.count(&m.Pace)
	if m.Logged == (messages.Logged{}) {
		c.reportSuccess(ctx.Now())
	} else {
		c.onLogged(ctx, m.Logged)
	}
	c.finish(ctx)
}

// onStreamGone ends the request, unless its response may go on and the access log will tell its end.
func (c *Cycle) onStreamGone(ctx runtime.Context[messages.CycleMsg], m messages.StreamGone) {
	if c.phase == detached && !m.Logged { // the proxy had been asked to show its body
		c.attach()
	}
	switch c.phase {
	case created, done: // there is no stream
	case queued:
		c.rec.Reason = messages.ClientGone
		c.onStreamDone(ctx, m)
	case picked, responding:
		if c.served != nil && c.rec.Status == 0 && !m.Logged && m.Answered == messages.NoReason {
			c.reportFailure(c.chosen, messages.EndedBare)
		}
		if m.Logged && !c.check && c.served != nil {
			c.detach(ctx)
			c.onDetachedStreamGone(ctx, m.Log)
			return
		}
		c.onStreamDone(ctx, m)
	case detached, lingering:
		c.onDetachedStreamGone(ctx, m.Log)
	}
}

// onStreamDone ends a request of which nothing further can come.
func (c *Cycle) onStreamDone(ctx runtime.Context[messages.CycleMsg], m messages.StreamGone) {
	if m.Answered != messages.NoReason {
		c.rec.Reason = m.Answered
		c.rec.Status = cmp.Or(c.rec.Status, c.deps.Status(m.Answered))
	}
	if !m.Completed && c.rec.Reason == messages.NoReason {
		c.rec.Reason = messages.ClientGone
	}
	c.rec.Usage, c.rec.ResponseBytes = m.Usage, m.ResponseBytes
	c.finish(ctx)
}

// answer tells the stream, and returns when it did, since the request's arrival.
func (c *Cycle) answer(ctx runtime.Context[messages.CycleMsg], m messages.StreamMsg) time.Duration {
	_, at := tell(c, ctx, c.stream, toStream, m)
	return at
}

// Stopped runs at the end of every cycle, also of one that panicked. It answers what is still owed, and gives back all
// that is still held.
func (c *Cycle) Stopped(ctx runtime.Context[messages.CycleMsg]) {
	if c.phase == queued {
		c.rec.Reason, c.rec.Status = messages.Internal, c.deps.Status(messages.Internal)
		c.answer(ctx, messages.PickFailed{Reason: messages.Internal})
	}
	switch c.phase {
	case created, queued, done:
	case picked, responding: // it crashed, perhaps while the response ran
		c.rec.Reason = messages.Internal
	case detached, lingering: // the proxy gives the client its answer without us
		c.unlogged()
	}
	if c.phase != done {
		c.enter(done)
	}
	c.reportLeave()
	c.endWaitInVain(ctx)
	c.leaveLine(ctx)
	c.giveRoomBack()
	c.endOffer(ctx, false)
	c.withdrawPrompt(ctx)
	c.closeEntry(ctx)
	c.chargeAll()
	c.endService()
	c.tellPlugins(ctx)
}
