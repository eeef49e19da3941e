package cycle

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// wait is what a queued request knows of its wait. Under a plan without a gate it never waits.
type wait struct {
	gated      bool
	asked      messages.WaitRequested // what capacity is or was asked; set if it is gated
	turn       time.Duration          // how long it waits at most, from asked.Arrived on
	without    time.Duration          // how long while there is no endpoint
	retryAfter time.Duration          // what its client is told if it waits in vain; at least a second
	saturation messages.Saturation    // at the newest pick, or try
	traffic    *flow.BandTraffic      // of its priority; set if it is gated
	classified uint64                 // version of the endpoints under which asked.Class was found; 0 = it was not
	intake     *schedule.Intake       // what plugins have said of it; nil = nothing is kept, or it waits no more
	charge
	place
}

// beginWait notes how long the request may wait, and what it says of itself should it have to.
func (c *Cycle) beginWait(ctx runtime.Context[messages.CycleMsg], m *messages.RequestArrived) {
	c.wait = wait{
		gated: c.queueing != nil, turn: c.deps.Limits.Queue, without: c.deps.Limits.Queue, retryAfter: time.Second,
	}
	ask := messages.WaitRequested{
		Request: c.req.ID, Flow: m.Flow, Bytes: c.req.BodyBytes, Prompt: c.req.PromptTokens, Arrived: ctx.Now(),
		Cycle: ctx.Self(),
	}
	if c.wait.gated {
		c.rec.Wait.Outcome = messages.OutcomeNotYetFinalized
		c.wait.turn, c.wait.without = c.queueing.Patience(m.Flow.Priority, m.Patience)
		ask.TTFT = m.Request.TTFT
		ask.Output = c.req.OutputTokens
		ask.Model, ask.Objective, ask.Headers = c.req.Model, c.req.Objective, c.headersFor(c.queueing.Headers)
		if c.queueing.Local(m.Flow.Priority) {
			ask.Prefix = messages.Prefix{Model: c.req.Model, Salt: c.req.Salt, Blocks: c.req.Blocks}
		}
		c.wait.traffic = c.deps.Traffic.Of(m.Flow.Priority)
		c.wait.traffic.Arrive()
	}
	c.wait.intake = c.plan.NewIntake()
	c.wait.metered = c.wait.gated && c.queueing.Metered(m.Flow.Priority)
	ask.Deadline = ask.Arrived.Add(c.mayWait())
	c.wait.asked = ask
}

// headersFor returns those of some headers that the request has.
func (c *Cycle) headersFor(names []string) (all messages.List[messages.Header]) {
	if len(names) == 0 || c.req.Headers.Len() == 0 {
		return all
	}
	var list []messages.Header
	for i, name := range c.plan.Layout().Headers() {
		if value := c.req.Headers.At(i); value.Given && slices.Contains(names, name) {
			list = append(list, messages.Header{Name: name, Value: value.Text})
		}
	}
	return messages.TakeList(list)
}

// joinLine asks capacity for a place in the line.
func (c *Cycle) joinLine(ctx runtime.Context[messages.CycleMsg]) {
	c.waitFor(ctx, c.mayWait())
	ask := c.wait.asked
	ask.Saturation = c.wait.saturation
	c.held.wait, _ = tell[messages.CapacityMsg](c, ctx, c.deps.Bell.To, toCapacity, ask)
	if !c.held.wait { // its inbox is full
		c.refuse(ctx, messages.PickFailed{Reason: messages.Overloaded, RetryAfter: time.Second})
	}
}

// price finds out, while others wait, for which endpoint the request waits if that is full, or else its class. One that
// would be refused with room everywhere is refused: then it returns false.
func (c *Cycle) price(ctx runtime.Context[messages.CycleMsg]) bool {
	if !c.plan.Prices() {
		return c.classify(ctx)
	}
	out := c.deps.Scheduler.Run(c.plan, &c.req, c.wait.intake, c.deps.Pool.Snapshot(), ctx.Now())
	switch {
	case out.Full:
		return c.classify(ctx)
	case out.Reason != messages.NoReason:
		c.rec.Decision = out.Decision
		c.refuse(ctx, messages.PickFailed{Reason: out.Reason, Detail: out.Detail, RetryAfter: out.RetryAfter})
		return false
	}
	c.choose(ctx, &out)
	c.waitAt(out.Ranked[0])
	c.abandonProbes()
	c.chosen = nil
	return true
}

// classify finds out which requests wait for room at the same endpoints as this one, unless it has done so since the
// set of endpoints changed last. One that would be refused with room everywhere is refused: then it returns false.
func (c *Cycle) classify(ctx runtime.Context[messages.CycleMsg]) bool {
	snap := c.deps.Pool.Snapshot()
	if c.wait.classified == snap.Version {
		return true
	}
	reach, refused := c.deps.Scheduler.Reach(c.plan, &c.req, c.wait.intake, snap, ctx.Now())
	if refused.Reason != messages.NoReason {
		c.refuse(ctx, messages.PickFailed{
			Reason: refused.Reason, Detail: refused.Detail, RetryAfter: refused.RetryAfter,
		})
		return false
	}
	of := flow.Reach{Pool: snap.Version, Configuration: c.rec.Configuration, Would: reach}
	c.wait.asked.Class, c.wait.classified = uint64(flow.ClassOf(c.req.Model, c.req.Subset, of)), snap.Version
	return true
}

// mayWait returns how long the request may wait, as things are.
func (c *Cycle) mayWait() time.Duration {
	if c.wait.gated && len(c.deps.Pool.Snapshot().Endpoints) == 0 {
		return c.wait.without
	}
	return c.wait.turn
}

// onQueued has the stream wait as long as the request may.
func (c *Cycle) onQueued(ctx runtime.Context[messages.CycleMsg], m messages.Queued) {
	if c.phase != queued {
		return
	}
	c.inLine(ctx, m.Ahead)
	c.wait.retryAfter = max(c.wait.retryAfter, m.RetryAfter)
	due := c.wait.asked.Arrived.Add(max(c.wait.turn, c.wait.without) + c.deps.Limits.Pick)
	c.answer(ctx, messages.AnswerDue{At: due})
}

// onWaitOver refuses a request that was not dispatched in time, unless there is an endpoint again, or none any more,
// and its time for that is not over.
func (c *Cycle) onWaitOver(ctx runtime.Context[messages.CycleMsg], over bool) {
	waited := ctx.Now().Sub(c.wait.asked.Arrived)
	switch left := c.mayWait() - waited; {
	case over:
		c.refuse(ctx, messages.PickFailed{Reason: messages.RequestTimeout})
	case left > 0:
		c.waitFor(ctx, left)
		c.arm(ctx)
	default:
		c.refuse(ctx, messages.PickFailed{Reason: messages.TTLExpired, RetryAfter: c.wait.retryAfter})
	}
}

// reserve makes the request part of the load of all that was picked for it, if there is room at each. If there is not,
// it may hold a part of it.
func (c *Cycle) reserve(ctx runtime.Context[messages.CycleMsg], out *schedule.Outcome) bool {
	room, now := c.plan.Bounds(out.Ceiling), ctx.Now()
	first := room
	if out.Probe {
		first = endpoints.Room{} // a probe needs none
	}
	ahead, before := out.Ranked[0].Ahead(now), out.Ranked[0].Inflight()
	pick, ok := endpoints.LoadWriter{Endpoint: out.Ranked[0]}.Take(c.work(out.Ranked[0]), first, now)
	if !ok {
		return false
	}
	c.served, c.held.pick = out.Ranked[0], pick
	c.service.ahead, c.service.before = int32(min(ahead, math.MaxInt32)), int32(before)
	c.loaded(true)
	if room.Learned {
		room = endpoints.Room{} // windows of stages are not learned from requests
	}
	for _, s := range out.Stages {
		writer := endpoints.LoadWriter{Endpoint: s.Endpoint}
		pick, ok := writer.Take(endpoints.Work{Prompt: c.req.PromptTokens}, room, now)
		if !ok {
			return false
		}
		c.held.stages = append(c.held.stages, stage{s.Endpoint, pick})
	}
	return true
}

// giveRoomBack takes the load of a pick back that the request does not use.
func (c *Cycle) giveRoomBack() {
	c.abandonProbes()
	c.unhold()
	c.unloadStages()
	c.letGo()
}

// waitForRoom has the request wait until there is room for it: at its former place, if it has had its turn.
func (c *Cycle) waitForRoom(ctx runtime.Context[messages.CycleMsg], a chance, out *schedule.Outcome) {
	c.giveRoomBack()
	c.chargeTurn(false)
	prices := c.plan.Prices() && !out.Full
	if prices {
		c.waitAt(out.Ranked[0])
	}
	if c.chosen = nil; !prices && !c.classify(ctx) {
		return
	}
	if !a.turn {
		c.lacks()
		c.joinLine(ctx)
		return
	}
	c.rec.Wait.Failed++
	again := messages.TurnFailed{
		Request: c.req.ID, Class: c.wait.asked.Class, Wanted: c.wait.asked.Wanted, Cycle: ctx.Self(),
		Saturation: c.wait.saturation, Lacking: c.lacking(out),
	}
	tell[messages.CapacityMsg](c, ctx, c.deps.Bell.To, toCapacity, again)
	if c.rec.Wait.Failed > 1 { // the record counts them: its slots are for what differs
		c.forgetMessage()
	}
}

// onTurnedAway refuses a request that the line does not have any more, which need not hear of it.
func (c *Cycle) onTurnedAway(ctx runtime.Context[messages.CycleMsg], why messages.PickFailed) {
	if c.held.wait {
		c.held.wait = false
		c.chargeTurn(false)
	}
	c.refuse(ctx, why)
}

// leaveLine tells capacity that the request waits no more.
func (c *Cycle) leaveLine(ctx runtime.Context[messages.CycleMsg]) {
	if c.held.wait {
		c.held.wait = false
		m := messages.WaitEnded{Request: c.req.ID, Saturation: c.wait.saturation}
		if c.held.load {
			m.Endpoint = c.served.ID
		} else {
			c.chargeTurn(false)
		}
		tell[messages.CapacityMsg](c, ctx, c.deps.Bell.To, toCapacity, m)
	}
}

// charge is what the flow of the request was charged for it, if the fairness of its band goes by that. A request that
// waited is charged for its prompt with its turn. One that did not is charged at its end: capacity is not asked for a
// request that finds room.
type charge struct {
	metered bool
	told    flow.Tokens // that it was charged for
	picked  bool        // an endpoint was picked for it
	events  int64       // of its answer with output; 0 = none, or they are not known
}

// count notes the events with output that a stream had, of which the first one has no time.
func (c *charge) count(pace *messages.Pace) {
	for _, n := range pace.Events {
		c.events += int64(n)
	}
	if c.events > 0 {
		c.events++
	}
}

// chargeTurn notes that capacity charged the request with its turn; given is false if it takes that back.
func (c *Cycle) chargeTurn(given bool) {
	c.wait.told = flow.Tokens{}
	if given {
		c.wait.told.Prompt = flow.DispatchPrompt(c.req.PromptTokens)
	}
}

// chargeSoFar tells what the request has used so far, of whose response so many bytes came. While nothing waits, that
// is of no use before its end.
func (c *Cycle) chargeSoFar(bytes int64) {
	if !c.wait.metered || !c.deps.Bell.Line.Waits() || !c.goodAnswer() {
		return
	}
	c.tellUsed(flow.Tokens{
		Prompt: flow.DispatchPrompt(c.req.PromptTokens), Output: max(c.wait.told.Output, c.outputSeen(bytes)),
	})
}

// outputSeen returns the output of a response that has not told it, by the events or else by the bytes that were seen.
// One that began as an error has none.
func (c *Cycle) outputSeen(bytes int64) int64 {
	if c.rec.Status >= 400 {
		return 0
	}
	a := c.tokensIn(bytes, false)
	if estimate := c.deps.Estimates.Usage(&a); estimate.Source == messages.UsageEstimated {
		return int64(estimate.OutputTokens)
	}
	return cmp.Or(c.wait.events, a.Roughly())
}

// chargeAll corrects at the end of the request what its flow was charged, by what the record says. Output that the
// response did not report is charged by what was seen of it, and never given back. A check used nothing, and neither
// did a request that the proxy answered by itself.
func (c *Cycle) chargeAll() {
	if !c.wait.metered {
		return
	}
	var used flow.Tokens
	if c.wait.picked && c.rec.Local == "" && !c.check {
		u := &c.rec.Usage
		used = flow.Tokens{
			Prompt: cmp.Or(int64(u.PromptTokens), flow.DispatchPrompt(c.req.PromptTokens)),
			Output: int64(u.OutputTokens),
		}
		if u.Source != messages.UsageReported {
			used.Output = max(used.Output, c.wait.told.Output, c.outputSeen(c.rec.ResponseBytes))
		}
	}
	c.tellUsed(used)
}

// tellUsed tells capacity how much more, or less, was used than it knows of. If the message is lost, the flow is served
// a little more, or less.
func (c *Cycle) tellUsed(used flow.Tokens) {
	more := used.Minus(c.wait.told)
	if more == (flow.Tokens{}) {
		return
	}
	c.wait.told = used
	c.deps.Bell.To.Tell(messages.TokensUsed{Flow: c.rec.Flow, Prompt: more.Prompt, Output: more.Output})
}

// place is what is known of a request's place in the line of capacity, beside what its record has.
type place struct {
	in   bool // capacity gave it the place
	over bool // it waits no more: it was dispatched, or has ended
}

// lacks notes why the request has to wait, which has found no room.
func (c *Cycle) lacks() {
	c.rec.Wait.Cause = messages.NoRoom
	if len(c.deps.Pool.Snapshot().Endpoints) == 0 {
		c.rec.Wait.Cause = messages.NoneInPool
	}
}

// inLine notes that the request has its place in the line.
func (c *Cycle) inLine(ctx runtime.Context[messages.CycleMsg], ahead int) {
	c.wait.in = true
	c.rec.Wait.Ahead = ahead
	if c.rec.Wait.Cause == messages.NoCause {
		c.rec.Wait.Cause = messages.OthersWaited
	}
	c.account.joined(&c.rec, ctx.Now().Sub(c.wait.asked.Arrived))
}

// endWait notes how long the request has waited, and how its wait ended. It does so once.
func (c *Cycle) endWait(ctx runtime.Context[messages.CycleMsg], waited time.Duration, how messages.Outcome) {
	if c.wait.over {
		return
	}
	c.wait.over, c.wait.intake = true, nil
	c.rec.QueueWait = waited
	if c.wait.gated {
		c.rec.Wait.Outcome = how
	}
	switch how {
	case messages.OutcomeDispatched:
		c.account.onDispatched(waited)
	case messages.OutcomeRejectedCapacity:
		c.account.enter(how, ctx.Now().Sub(c.wait.asked.Arrived))
	}
	c.account.onLeft(&c.rec)
}

// endWaitInVain ends the wait of a request that ends without having been dispatched, if it has come so far as to wait.
func (c *Cycle) endWaitInVain(ctx runtime.Context[messages.CycleMsg]) {
	if began := c.wait.asked.Arrived; !began.IsZero() {
		c.endWait(ctx, ctx.Now().Sub(began), outcome(c.rec.Reason, c.wait.in))
	}
}

// queueTime returns what the stream is told of the wait of a request that was dispatched.
func (c *Cycle) queueTime() messages.QueueTime {
	if !c.wait.gated {
		return messages.QueueTime{}
	}
	return messages.QueueTime{Gated: true, Took: c.rec.QueueWait}
}

// outcome returns how the wait ended of a request that ended in it. in says that it had a place in the line.
func outcome(why messages.Reason, in bool) messages.Outcome {
	switch {
	case why == messages.ClientGone:
		return messages.OutcomeEvictedContextCancelled
	case in:
		return cmp.Or(evictions[why], messages.OutcomeEvictedOther)
	}
	return cmp.Or(rejections[why], messages.OutcomeRejectedOther)
}

// evictions have the outcomes that reasons give of their own to a request in the line, and rejections to one that was
// not let into it.
var (
	evictions = map[messages.Reason]messages.Outcome{
		messages.TTLExpired: messages.OutcomeEvictedTTL, messages.NoEndpoints: messages.OutcomeEvictedNoEndpoints,
		messages.Displaced:     messages.OutcomeEvictedPriority,
		messages.QueuePressure: messages.OutcomeEvictedQueuePressure,
	}
	rejections = map[messages.Reason]messages.Outcome{
		messages.NoCapacity:  messages.OutcomeRejectedCapacity,
		messages.NoEndpoints: messages.OutcomeRejectedNoEndpoints,
	}
)
