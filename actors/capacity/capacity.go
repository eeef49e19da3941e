// Package capacity holds the requests that wait for room, and gives them turns. Whether an endpoint has room is for the
// pick to find: the request whose turn it is tries to be picked for, and either leaves the line, or says that there was
// no room, and is put back where it stood. The actor never looks at an endpoint, and never picks.
//
//	          WaitRequested            turn: Dispatched
//	(cycle) ───────────────► waiting ────────────────────► trying ─── WaitEnded ───► (picked, or ended)
//	   ▲                       │  ▲                          │
//	   │ Rejected: no place    │  └──────── TurnFailed ──────┘
//	   │ Evicted: made way     │
//	   └───────────────────────┘
//
// A request that finds room asks nothing of it: it comes here if there was none, or if others wait that go before it.
// At most one request is trying at a time, so the order of the line holds exactly, over all loops. A class of requests
// for which a turn has failed is passed over until an endpoint's room has changed, or the line was empty.
package capacity

import (
	"maps"
	"math"
	"time"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// turnWithin is how long the line waits for the answer to a turn. It covers the time that a pick may take, and the way
// there.
const turnWithin = 2 * time.Second

// Deps is what the actor works with.
type Deps struct {
	Line     *flow.Line // of which it is the only writer, as of Ceilings
	Ceilings *flow.Ceilings
	Traffic  *flow.Traffic         // of all requests that may have to wait
	Settings func() *flow.Settings // in force
	Prefixes Matcher
	Metrics  *Metrics
	Panicked func(flow.Panic) // called with panics of policies, as flow.Caught says; nil = not called
}

// Capacity is the actor.
type Capacity struct {
	deps   Deps
	line   flow.LineWriter
	queues *flow.Queues
	turn   turn
	late   map[messages.RequestID]lateTurn // of requests that have not answered in time, and neither wait nor try
	full   map[flow.Class]failure          // the newest turn that has failed since room changed, by class
	prices prices
	drain  drain

	ceilings ceilings
	places   places
	reclaim  reclaiming
	hand     messages.Sink[messages.CycleMsg] // of the request that the message in hand is about; nil = none
}

// turn is the request that is trying.
type turn struct {
	number  uint64                // of the turn, from 1; a timer of an older one is void
	entry   *flow.Entry           // nil = none is trying
	changed []messages.EndpointID // where room has changed since the turn began; zero = anywhere
	timer   runtime.Timer
}

// lateTurn is a turn that was taken back.
type lateTurn struct {
	number uint64
	entry  *flow.Entry
}

// New returns an incarnation, at which nothing waits.
func New(deps Deps) *Capacity {
	a := &Capacity{
		deps: deps, line: flow.LineWriter{Line: deps.Line}, queues: flow.New(*deps.Settings()),
		late: map[messages.RequestID]lateTurn{}, full: map[flow.Class]failure{},
		ceilings: ceilings{CeilingsWriter: flow.CeilingsWriter{Ceilings: deps.Ceilings}},
		places:   places{free: map[messages.EndpointID]int{}},
		prices:   prices{full: map[flow.Class]failure{}},
	}
	a.queues.Locate(a.held)
	a.queues.TellPanics(deps.Panicked)
	a.reclaim = newReclaiming(a.queues.Caught())
	return a
}

// Receive has requests wait, and gives turns.
func (a *Capacity) Receive(ctx runtime.Context[messages.CapacityMsg], m messages.CapacityMsg) {
	a.queues.Advance(ctx.Now())
	a.drain.now = ctx.Now()
	switch m := m.(type) {
	case messages.CapacityStarted:
		a.deps.Metrics.configure(a.queues)
	case messages.WaitRequested:
		a.hand = m.Cycle
		a.seen(m.Saturation)
		a.onWaitRequested(m)
	case messages.WaitEnded:
		a.seen(m.Saturation)
		a.onWaitEnded(m)
	case messages.TurnFailed:
		a.hand = m.Cycle
		a.seen(m.Saturation)
		a.onTurnFailed(ctx, m)
	case messages.ServingStarted:
		a.onServingStarted(m)
	case messages.ServingEnded:
		a.onServingEnded(ctx, m)
	case messages.MemoryRequested:
		a.onMemoryRequested(m)
	case messages.RoomChanged:
		a.places.made(m.Endpoint)
		a.onRoomChanged(m.Endpoint)
	case messages.TokensUsed:
		a.queues.Charge(m.Flow, flow.Tokens{Prompt: m.Prompt, Output: m.Output})
	case messages.FlowsQueried:
		a.onFlowsQueried(ctx, m)
	case messages.QueueingReplaced:
		a.queues.Configure(*a.deps.Settings())
		a.deps.Metrics.configure(a.queues)
		a.onRoomChanged(messages.EndpointID{}) // flows that crowd may fill more, and bands have other shares
	case messages.LineClosed:
		a.onLineClosed()
	case messages.CeilingsDue:
		a.ceilings.timer = nil
	case messages.ReclaimDue:
		a.onReclaimDue(m)
	case messages.PricesDue:
		a.onPricesDue()
	case messages.TurnOverdue:
		a.onTurnOverdue(ctx, m)
	}
	a.hand = nil
	a.limit(ctx)
	a.next(ctx)
	a.deps.Metrics.show(a.queues)
	a.deps.Metrics.pending.Set(float64(len(a.reclaim.revoked)))
}

func (a *Capacity) onWaitRequested(m messages.WaitRequested) {
	e := &flow.Entry{
		Request: m.Request, Flow: m.Flow, Class: classOf(m.Class, m.Wanted), Wanted: m.Wanted, Cycle: m.Cycle,
		Wait:   flow.Wait{Arrived: m.Arrived, Deadline: m.Deadline, TTFT: m.TTFT},
		Work:   flow.Work{Bytes: m.Bytes, Prompt: m.Prompt, Output: m.Output},
		Prefix: blockindex.Prompt{Model: m.Prefix.Model, Salt: m.Prefix.Salt, Blocks: m.Prefix.Blocks},
		Asked:  flow.Asked{Model: m.Model, Objective: m.Objective, Headers: m.Headers},
	}
	ahead := int(a.queues.Total().Requests)
	displaced, ok := a.queues.Push(e)
	a.evict(displaced)
	if !ok {
		m.Cycle.Tell(messages.Rejected{Reason: messages.NoCapacity, RetryAfter: a.drain.whole(int64(ahead))})
		return
	}
	a.count() // before the first try: what makes room from now on rings
	ahead = max(ahead-len(displaced), 0)
	m.Cycle.Tell(messages.Queued{Ahead: ahead, RetryAfter: a.drain.whole(int64(ahead))})
}

// evict tells requests that they made way.
func (a *Capacity) evict(displaced []flow.Displaced) {
	for _, d := range displaced {
		why := messages.QueuePressure
		if d.Priority {
			why = messages.Displaced
		}
		d.Cycle.Tell(messages.Evicted{Reason: why, RetryAfter: a.drain.whole(a.queues.Total().Requests)})
	}
}

// onMemoryRequested has requests make way for the body of one that has not come whole.
func (a *Capacity) onMemoryRequested(m messages.MemoryRequested) {
	displaced := a.queues.Yield(m.Flow, m.Bytes)
	a.evict(displaced)
	m.Stream.Tell(messages.MemoryYielded{
		Enough: len(displaced) > 0, RetryAfter: a.drain.whole(a.queues.Total().Requests),
	})
}

func (a *Capacity) onWaitEnded(m messages.WaitEnded) {
	e, late := a.tried(m.Request)
	switch {
	case e == nil:
		a.queues.Remove(m.Request)
		return
	case !late:
		a.answered()
	}
	if m.Endpoint == (messages.EndpointID{}) {
		a.queues.Undo(e) // its turn came to nothing
		return
	}
	a.drain.dispatched()
	a.places.taken(m.Endpoint)
}

// tried returns the entry of a request that answers to its turn, which may be late; nil = it has none. One that was
// late is so no more.
func (a *Capacity) tried(id messages.RequestID) (e *flow.Entry, late bool) {
	if e = a.turn.entry; e != nil && e.Request == id {
		return e, false
	}
	l, late := a.late[id]
	delete(a.late, id)
	return l.entry, late
}

func (a *Capacity) onTurnFailed(ctx runtime.Context[messages.CapacityMsg], m messages.TurnFailed) {
	e, late := a.tried(m.Request)
	if e == nil { // an earlier incarnation gave the turn
		m.Cycle.Tell(messages.Evicted{Reason: messages.Internal})
		return
	}
	a.deps.Metrics.failed.Inc()
	if !late {
		defer a.answered()
	}
	if a.line.Closed() {
		a.queues.Undo(e)
		m.Cycle.Tell(closing)
		return
	}
	if m.Class > 0 || m.Wanted != (messages.EndpointID{}) {
		e.Class, e.Wanted = classOf(m.Class, m.Wanted), m.Wanted
	}
	crowded := e.Crowds() && !a.queues.Floored() // at its turn: the others of its flow may have left
	a.queues.Return(e)
	if !late && !a.turn.hasChanged(e) {
		a.fails(e, failure{a.rank(e), crowded})
		clear(a.places.free)
		a.reclaimFor(ctx, e, m.Lacking)
	}
}

// classOf returns the class of a request: that of the endpoint that it waits for, if it waits for one.
func classOf(class uint64, wanted messages.EndpointID) flow.Class {
	if wanted != (messages.EndpointID{}) {
		return flow.ClassAt(wanted)
	}
	return flow.Class(class)
}

// failure is a turn that has failed.
type failure struct {
	priority int
	crowded  bool // of a request of a flow that had more waiting
}

// hasRoom reports whether there may be room for a request that Next asks about.
func (a *Capacity) hasRoom(e *flow.Entry) bool { return a.hasRoomUpTo(e, a.rank(e)) }

// hasRoomUpTo reports whether there may be room for a request up to the ceiling of a priority: no turn has failed since
// room changed, of its class and that priority or a higher one, or only one that crowds, which this one does not.
func (a *Capacity) hasRoomUpTo(e *flow.Entry, priority int) bool {
	failed, full := a.failure(e.Class)
	return !full || priority > failed.priority || a.line.Closed() ||
		priority == failed.priority && failed.crowded && !e.Crowds()
}

// rank returns the priority up to whose ceiling a request finds room: its own, or by its band's least share the
// highest.
func (a *Capacity) rank(e *flow.Entry) int {
	if a.queues.Floored() {
		return math.MaxInt
	}
	return e.Flow.Priority
}

// closing ends the wait of a request because this process ends.
var closing = messages.Evicted{Reason: messages.ShuttingDown, RetryAfter: time.Second}

// onLineClosed answers all requests that wait.
func (a *Capacity) onLineClosed() {
	a.line.Close()
	for _, e := range a.queues.All() {
		a.queues.Remove(e.Request)
		e.Cycle.Tell(closing)
	}
}

// onTurnOverdue has others go on while a request has not answered: its loop hangs. It may still be picked for, or come
// back to its former place. Until then it has no other turn, or those of one loop would hold up the line again and
// again. If its time is over and it has not answered, no answer comes.
func (a *Capacity) onTurnOverdue(ctx runtime.Context[messages.CapacityMsg], m messages.TurnOverdue) {
	if e := a.turn.entry; e != nil && m.Turn == a.turn.number {
		a.deps.Metrics.overdue.Inc()
		a.late[e.Request] = lateTurn{m.Turn, e}
		a.answered()
		ctx.After(e.Deadline.Sub(ctx.Now())+turnWithin, m)
		return
	}
	maps.DeleteFunc(a.late, func(_ messages.RequestID, l lateTurn) bool { return l.number == m.Turn })
}

// answered ends the turn.
func (a *Capacity) answered() {
	a.turn.timer.Cancel()
	a.turn.entry, a.turn.timer = nil, nil
}

// next gives the next turn, unless a request is trying or no class may have room.
func (a *Capacity) next(ctx runtime.Context[messages.CapacityMsg]) {
	if a.turn.entry == nil && a.queues.Total().Requests > 0 {
		began := ctx.Elapsed()
		defer func() { a.deps.Metrics.chose(ctx.Elapsed() - began) }()
	}
	for a.turn.entry == nil {
		e := a.queues.Next(a.hasRoom)
		if e == nil {
			break
		}
		turn := messages.Dispatched{Waited: ctx.Now().Sub(e.Arrived)}
		switch {
		case a.queues.Floored():
			turn.Share = a.ceilings.Of(math.MaxInt) / a.ceilings.Of(e.Flow.Priority)
		case e.Crowds():
			turn.Share = a.queues.CrowdShare(e)
		}
		if !e.Cycle.Tell(turn) {
			a.queues.Undo(e)
			continue // it has ended, and tells so
		}
		a.deps.Metrics.turns.Inc()
		a.turn.number++
		a.turn.entry, a.turn.changed = e, a.turn.changed[:0]
		a.turn.timer = ctx.After(turnWithin, messages.TurnOverdue{Turn: a.turn.number})
	}
	a.price(ctx)
	a.count()
}

// count says in the line how many requests wait or try. While there are none, no message tells that room has
// changed, so no class is known to be full.
func (a *Capacity) count() {
	n, first := a.queues.Total().Requests+int64(len(a.late)), a.queues.First()
	if e := a.turn.entry; e != nil {
		n++
		first = max(first, e.Flow.Priority)
	}
	for _, l := range a.late {
		first = max(first, l.entry.Flow.Priority)
	}
	if n == 0 {
		clear(a.full)
		a.prices.clear()
	}
	a.drain.waits(n > 0)
	a.line.Set(n, first)
}

// Stopped answers all requests that wait. One that has a turn needs no answer: either it is picked for, or TurnFailed
// finds that it is not known.
func (a *Capacity) Stopped(runtime.Context[messages.CapacityMsg]) {
	failed := messages.Evicted{Reason: messages.Internal}
	if a.hand != nil {
		a.hand.Tell(failed)
	}
	for _, e := range a.queues.All() {
		e.Cycle.Tell(failed)
	}
	a.line.Set(0, math.MinInt)
	a.deps.Metrics.clear()
}
