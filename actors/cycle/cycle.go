// Package cycle is the life of one request: wait, pick, serve, release.
//
// A cycle owns all that is known of its request. Nobody else holds any of it, so nothing can be left behind: when the actor
// ends, for whatever reason, Stopped gives back what it held and answers what it owes. It never sees a frame or a
// connection (adapters/extproc does), and never decides (engine/schedule does).
package cycle

import (
	"cmp"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// Limits are the deadlines that a cycle sets. None is zero; no limit is carried as 24 hours.
type Limits struct {
	Queue        time.Duration // from admission asked to dispatched
	Pick         time.Duration // from dispatched to picked, the time in the inbox included
	FirstToken   time.Duration // from the pick to the first byte of the response: then its endpoint is suspected
	ResponseIdle time.Duration // between two signs of life of the response
	Logged       time.Duration // from the end of the stream to the access log's entry
}

// Deps are what the cycles of one loop work with.
type Deps struct {
	Flow      func(messages.FlowKey) messages.Sink[messages.FlowMsg] // the flow shard of a flow
	Prefix    messages.Sink[messages.PrefixMsg]
	Outlier   messages.Sink[messages.OutlierMsg]
	Pool      *endpoints.Pool
	Plan      func() *schedule.Plan // the configuration in force
	Scheduler *schedule.Scheduler   // the loop's
	Book      *records.Book         // the loop's
	Estimates *records.Estimates    // of all loops
	Names     func(runtime.Kind) string
	Status    func(messages.Reason) int // the HTTP status of a refusal
	Limits    Limits
	Metrics   *Families
	Report    func(*messages.Record) // told of each request at its end; must not block or keep the record
}

// Cycle is one request.
type Cycle struct {
	deps *Deps
	plan *schedule.Plan // pinned at birth

	req    messages.Request
	stream messages.Sink[messages.StreamMsg]

	admission bool // the flow shard may hold a place for us
	answered  bool // the stream has its answer, or nobody waits for one
	finished  bool // the cycle came to its end by itself
	begun     bool // the book knows us, and the account is open
	placed    bool // the prefix actor knows our prompt

	served *endpoints.Endpoint // that works for the request; nil = none of the pool
	pick   endpoints.Pick      // what we added to its load
	loaded bool                // we are part of its load; then served is not nil
	trial
	whole bool  // the response's end was told of
	heard pulse // of the access log, once the stream is gone

	after      afterlife
	doubted    time.Time // when the log's entries were last doubted while the stream told all; zero = they were not, or one came since
	parted     time.Time // when a request that lingers gave back what it held; zero while it does not linger
	connection messages.ConnectionID
	check      bool // a conformance checker's: it teaches nothing, and leaves nothing behind

	began      time.Time // the response's headers
	limit      time.Time // of the whole request, as its stream has it
	deadline   time.Time // of all that the cycle may still wait for: limit, or what outlive and the access log make of it
	due        time.Time // of what we wait for now
	armed      time.Time // when the timer fires
	timer      runtime.Timer
	generation uint32

	account account
	rec     messages.Record
	events  [eventSlots]messages.RecordEvent
	count   int
}

const eventSlots = 16

// Role is what the cycles of one loop have in common. Rings number a cycle as its request is numbered.
func Role(deps *Deps) runtime.Role[messages.CycleMsg] {
	return runtime.Role[messages.CycleMsg]{
		Name: "cycle", Policy: runtime.StopOnPanic,
		New: func() runtime.Actor[messages.CycleMsg] { return New(deps) },
		Number: func(first messages.CycleMsg) uint64 {
			arrived, _ := first.(messages.RequestArrived)
			return uint64(arrived.Request.ID)
		},
	}
}

// New is a cycle before its first message.
func New(deps *Deps) *Cycle { return &Cycle{deps: deps, plan: deps.Plan()} }

// Receive follows a request from arrival to end: read it downwards.
func (c *Cycle) Receive(ctx runtime.Context[messages.CycleMsg], m messages.CycleMsg) {
	defer c.handled(ctx, c.note(ctx, m))
	switch m := m.(type) {
	case messages.RequestArrived:
		c.onRequestArrived(ctx, m)
	case messages.Dispatched:
		c.onDispatched(ctx, m)
	case messages.Rejected:
		c.refuse(ctx, messages.PickFailed{Reason: m.Reason, RetryAfter: m.RetryAfter})
	case messages.Evicted:
		c.refuse(ctx, messages.PickFailed{Reason: m.Reason, RetryAfter: m.RetryAfter})
	case messages.Revoked:
		c.revoke(ctx, m.Reason, m.RetryAfter)
	case messages.ResponseStarted:
		c.onResponseStarted(ctx, m)
	case messages.FirstTokenSeen:
		c.onFirstTokenSeen(ctx, m)
	case messages.ErrorSeen:
		c.onErrorSeen(m)
	case messages.ResponseProgressed:
		c.waitFor(ctx, c.deps.Limits.ResponseIdle)
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
		c.onCycleQueried(m)
	}
}

func (c *Cycle) onRequestArrived(ctx runtime.Context[messages.CycleMsg], m messages.RequestArrived) {
	c.req, c.stream, c.connection, c.check = m.Request, m.Stream, m.Connection, m.Check
	c.limit, c.deadline = m.Deadline, m.Deadline
	c.rec = messages.Record{
		Request: m.Request.ID, ClientID: m.Request.ClientID, Model: records.Label(m.Request.Model), Flow: m.Flow, Stream: m.Request.Stream,
		ArrivedAt: m.ArrivedAt, PromptTokens: m.Request.PromptTokens, BodyBytes: m.Request.BodyBytes,
	}
	c.deps.Book.Begin(c.req.ID, ctx.Self())
	c.begun = true
	if c.check {
		c.account = c.deps.Metrics.unseen()
	} else {
		c.account = c.deps.Metrics.arrived(&c.rec)
	}
	c.waitFor(ctx, c.deps.Limits.Queue)
	c.admission = c.deps.Flow(m.Flow).Tell(messages.AdmissionRequested{
		Request: c.req.ID, Flow: m.Flow, Bytes: c.req.BodyBytes, Tokens: c.req.PromptTokens,
		Deadline: ctx.Now().Add(c.deps.Limits.Queue), Subset: c.req.Subset, Cycle: ctx.Self(),
	})
	c.told(ctx, "flow", "AdmissionRequested")
	if !c.admission { // its inbox is full: work may be refused at the door
		c.refuse(ctx, messages.PickFailed{Reason: messages.Overloaded, RetryAfter: time.Second})
	}
}

// onDispatched picks. Pick and load are one step: whoever is next on this loop sees it.
func (c *Cycle) onDispatched(ctx runtime.Context[messages.CycleMsg], m messages.Dispatched) {
	if c.served != nil || c.answered {
		return // told twice
	}
	c.rec.QueueWait = m.Waited
	c.account.onDispatched(m.Waited)
	late := ctx.Arrival().Waited
	if late > c.deps.Limits.Pick {
		c.refuse(ctx, messages.PickFailed{Reason: messages.PickTimeout, RetryAfter: time.Second})
		return
	}
	out := c.deps.Scheduler.Run(c.plan, &c.req, c.deps.Pool.Snapshot(), ctx.Now())
	c.account.onScheduled(out.Took, out.Reason)
	c.rec.Decision = out.Decision
	c.rec.Decided = max(ctx.Now().Add(ctx.Elapsed()).Sub(c.rec.ArrivedAt), 1)
	c.choose(ctx, &out)
	switch {
	case out.Reason != messages.NoReason:
		c.refuse(ctx, messages.PickFailed{Reason: out.Reason, Detail: out.Detail})
		return
	case late+out.Took > c.deps.Limits.Pick:
		c.refuse(ctx, messages.PickFailed{Reason: messages.PickTimeout, RetryAfter: time.Second})
		return
	}
	c.hold(out.Ranked[0])
	if !c.check {
		endpoints.LoadWriter{Endpoint: c.served}.CountPick()
		c.account.onPicked(c.served, out.PrefixBlocks, c.req.Blocks.Len())
	}
	if s := c.served.Sample(); s != nil {
		c.rec.SampleAge = ctx.Now().Sub(s.At)
	}
	c.place(ctx)
	to := make([]messages.Address, len(out.Ranked))
	for i, e := range out.Ranked {
		to[i] = e.Spec.Address
	}
	c.waitFor(ctx, c.patience())
	c.account.onAnswered(c.answer(ctx, messages.PickMade{Destinations: messages.TakeList(to)}))
}

func (c *Cycle) onResponseStarted(ctx runtime.Context[messages.CycleMsg], m messages.ResponseStarted) {
	c.rec.Status, c.rec.Local = m.Status, m.Local
	c.account.responded(&c.rec)
	if m.Status != 0 && !m.At.IsZero() {
		c.rec.Headers = m.At.Sub(c.rec.ArrivedAt)
	}
	c.began = ctx.Now()
	c.patient = c.patient || m.Status >= 400
	c.waitFor(ctx, c.patience())
	if c.served == nil {
		return
	}
	where := c.served.ID
	switch {
	case m.Local != "": // whatever Envoy names is whom it tried
		c.reportLocal(m.Local)
		where = c.servedByNobody()
	case m.Served != "" && m.Served != c.served.Spec.Address:
		where = c.move(m.Served)
		c.reportFailure(c.chosen, messages.ServedElsewhere)
	}
	c.judge(m.Status)
	if c.placed {
		c.deps.Prefix.Tell(messages.PromptServed{Request: c.req.ID, Endpoint: where})
		c.told(ctx, "prefix", "PromptServed")
	}
	if m.Passes {
		c.outlive(ctx)
	}
}

// onFirstTokenSeen keeps when the first token came; an error has none.
func (c *Cycle) onFirstTokenSeen(ctx runtime.Context[messages.CycleMsg], m messages.FirstTokenSeen) {
	c.rec.Bypassed = false // a proxy may be asked to show a body that would have bypassed us
	if c.after == outlived {
		c.beShown()
	}
	if c.rec.Status < 400 && c.bodyStatus == 0 {
		c.rec.FirstToken = m.At.Sub(c.rec.ArrivedAt)
	}
	c.rec.ResponseID = m.ResponseID
	c.patient = true
	c.reportSuccess()
	c.waitFor(ctx, c.deps.Limits.ResponseIdle)
}

func (c *Cycle) onResponseEnded(ctx runtime.Context[messages.CycleMsg], m messages.ResponseEnded) {
	c.parted = time.Time{} // now it is known
	c.rec.Usage, c.rec.ResponseBytes, c.whole = m.Usage, m.ResponseBytes, true
	c.rec.ResponseID = cmp.Or(c.rec.ResponseID, m.ResponseID)
	if m.Logged == (messages.Logged{}) {
		c.reportSuccess()
	} else {
		c.onLogged(ctx, m.Logged)
	}
	c.finish(ctx)
}

func (c *Cycle) onStreamGone(ctx runtime.Context[messages.CycleMsg], m messages.StreamGone) {
	if c.after == outlived && !m.Logged { // its body was about to be shown
		c.beShown()
	}
	if c.after != inStream {
		c.onOutlivedStreamGone(ctx, m.Log)
		return
	}
	if c.served != nil && c.rec.Status == 0 && !m.Logged {
		c.reportFailure(c.chosen, messages.EndedBare)
	}
	if m.Logged && !c.check && c.answered && c.served != nil {
		c.outlive(ctx)
		c.onOutlivedStreamGone(ctx, m.Log)
		return
	}
	if !c.answered {
		c.rec.Reason = messages.ClientGone
	}
	if m.Answered != messages.NoReason {
		c.rec.Reason = m.Answered
	}
	if c.answered && !m.Completed && c.rec.Reason == messages.NoReason {
		c.rec.Reason = messages.ClientGone
	}
	c.rec.ResponseBytes = m.ResponseBytes
	c.answered = true // nobody is left to answer
	c.finish(ctx)
}

func (c *Cycle) refuse(ctx runtime.Context[messages.CycleMsg], m messages.PickFailed) {
	if c.answered {
		return
	}
	c.rec.Reason, c.rec.Status = m.Reason, c.deps.Status(m.Reason)
	c.answer(ctx, m)
	c.finish(ctx)
}

// revoke ends a request that runs.
func (c *Cycle) revoke(ctx runtime.Context[messages.CycleMsg], why messages.Reason, retryAfter time.Duration) {
	if !c.answered {
		c.refuse(ctx, messages.PickFailed{Reason: why, RetryAfter: retryAfter})
		return
	}
	if c.after != inStream { // there is no stream that could end it
		return
	}
	c.rec.Reason = why
	c.tell(ctx, messages.ServingRevoked{Reason: why, RetryAfter: retryAfter})
	c.finish(ctx)
}

func (c *Cycle) finish(ctx runtime.Context[messages.CycleMsg]) {
	c.finished = true
	ctx.Stop()
}

func (c *Cycle) answer(ctx runtime.Context[messages.CycleMsg], m messages.StreamMsg) time.Duration {
	c.answered = true
	return c.tell(ctx, m)
}

// tell tells the stream, which is an actor outside the runtime: ring and record show what it was told. It gives when that was, from
// the request's arrival on.
func (c *Cycle) tell(ctx runtime.Context[messages.CycleMsg], m messages.StreamMsg) time.Duration {
	c.stream.Tell(m)
	kind, elapsed := ctx.Told("stream", uint64(c.req.ID), m)
	at := ctx.Now().Add(elapsed).Sub(c.rec.ArrivedAt)
	c.keep(messages.RecordEvent{Name: c.deps.Names(kind), To: "stream", At: at})
	return at
}
