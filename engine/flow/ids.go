package flow

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// ids says which fairness ids of a band have a flow of their own. All others share one flow, and so one share, however
// many they are.
//
//	                     waits, while a place is open
//	(not known) ─────────────────────────────────────────────► newcomer ──┐
//	     │                                                        ▲       │ knownAfter dispatches
//	     │ dispatched from the shared flow                        │       ├──────────────────────► known
//	     └──────────────────────────────────► stranger ───────────┤       │
//	                                              │  waits, while a place is open
//	                                              └───────────────────────┘
//
// A newcomer and a known id have a flow of their own, a stranger has none. There are few places for newcomers, and one
// opens only when a newcomer becomes known, or has not been seen for long: so a client that makes up an id for each
// request takes the shared flow's turns and no others, and tenants are told apart from their first request on, unless
// very many come at once. Of the ids that have nothing waiting, strangers are forgotten first and known ones last.
type ids struct {
	most    int              // ids that are remembered
	flows   map[string]*flow // by id, at most most
	shared  *flow
	sharing map[string]map[*Entry]struct{} // what waits in the shared flow, by id; none is empty
	idle    [stages]idleFlows              // ids of which nothing waits in a flow of their own
	fresh   int                            // newcomers
}

// stage is what a band knows of an id.
type stage int

const (
	// stranger is an id whose requests wait in the shared flow. It is always listed as idle.
	stranger stage = iota
	// newcomer is an id that has a flow of its own although it is not known.
	newcomer
	// known is an id of which knownAfter requests were dispatched, or that has a weight.
	known
	stages
)

const (
	// newcomers is how many there may be at a time.
	newcomers = 64
	// knownAfter is after how many dispatches an id is known.
	knownAfter = 16
	// newcomerFor is after which time a newcomer's place is open to others if nothing of it waits.
	newcomerFor = 10 * time.Minute
)

// standing is what a band keeps of an id beside its account.
type standing struct {
	stage       stage
	turns       int // dispatches; counted until it is known
	older, next *flow
	idle        bool      // it is in the list of its stage
	since       time.Time // when it entered the list
}

func newIDs(most int) ids {
	return ids{
		most: most, flows: map[string]*flow{}, shared: &flow{account: Account{Weight: 1}},
		sharing: map[string]map[*Entry]struct{}{},
	}
}

// flowOf returns the flow in which a request of an id begins to wait. If the id has one of its own from now on, its
// requests that wait in the shared flow have moved there.
func (b *band) flowOf(q *Queues, id string) *flow {
	f := b.flows[id]
	switch {
	case f != nil && f.stage != stranger:
		return f
	case !b.open(id, q.now):
		return b.shared
	case f == nil:
		if f = b.remember(id, q.now, 0); f == nil {
			return b.shared
		}
	}
	if f.stage == stranger {
		if b.fresh >= newcomers {
			b.forget(b.idle[newcomer].first)
		}
		b.part(q, f, newcomer)
	}
	return f
}

// payer returns the flow that is charged for requests of an id.
func (b *band) payer(id string, now time.Time) *flow {
	f := b.flows[id]
	if f == nil && b.open(id, now) {
		f = b.remember(id, now, 0)
	}
	if f == nil || f.stage == stranger && !b.open(id, now) {
		return b.shared
	}
	if f.idle { // it is not the one that was seen longest ago any more
		b.busy(f)
		b.rest(f, now)
	}
	return f
}

// accountWith returns what the account of the flow in which a request of an id would wait is with that request.
func (b *band) accountWith(id string, now time.Time) Account {
	f := b.flows[id]
	var a Account
	switch apart := f != nil && f.stage != stranger; {
	case !apart && (!b.open(id, now) || f == nil && len(b.flows) >= b.most && b.oldest(now, 0) == nil):
		a = b.shared.account
	case f != nil:
		a = f.account
		a.Requests += len(b.sharing[id])
	default:
		a = Account{Weight: cmp.Or(b.settings.Weights[id], 1), Requests: len(b.sharing[id])}
	}
	a.Requests++
	return a
}

// open reports whether there is a place for an id that has no flow of its own.
func (b *band) open(id string, now time.Time) bool {
	_, weighs := b.settings.Weights[id]
	oldest := b.idle[newcomer].first
	return weighs || b.fresh < newcomers || oldest != nil && now.Sub(oldest.since) >= newcomerFor
}

// remember returns what is to be known of an id that is not remembered; nil = there are so many ids that none can be
// forgotten for it, as oldest has it.
func (b *band) remember(id string, now time.Time, unseen time.Duration) *flow {
	if len(b.flows) >= b.most {
		oldest := b.oldest(now, unseen)
		if oldest == nil {
			return nil
		}
		b.forget(oldest)
	}
	f := &flow{id: id, account: Account{Weight: 1}}
	if w, ok := b.settings.Weights[id]; ok {
		f.account.Weight, f.stage = w, known
	}
	b.flows[id] = f
	b.rest(f, now)
	return f
}

// oldest returns the id that is forgotten next: a stranger, or one that was not seen for so long; nil = there is none.
func (b *ids) oldest(now time.Time, unseen time.Duration) *flow {
	for i := range b.idle {
		if f := b.idle[i].first; f != nil && (f.stage == stranger || now.Sub(f.since) >= unseen) {
			return f
		}
	}
	return nil
}

// forget drops what is known of an id of which nothing waits in a flow of its own.
func (b *ids) forget(f *flow) {
	b.busy(f)
	delete(b.flows, f.id)
	if f.stage == newcomer {
		b.fresh--
	}
}

// prove counts a dispatch for an id, which may make it known.
func (q *Queues) prove(b *band, id string) {
	f := b.flows[id]
	if f == nil {
		f = b.remember(id, q.now, newcomerFor) // else each dispatch from the shared flow would open a place
	}
	if f == nil || f.stage == known {
		return
	}
	if f.turns++; f.turns >= knownAfter {
		q.change(b, func() { b.part(q, f, known) })
	} else if f.idle {
		b.busy(f)
		b.rest(f, q.now)
	}
}

// part brings an id to a stage in which it has a flow of its own, and there what waits of it in the shared flow.
func (b *band) part(q *Queues, f *flow, next stage) {
	idle := f.idle
	b.busy(f)
	if f.stage == newcomer {
		b.fresh--
	}
	if f.stage = next; next == newcomer {
		b.fresh++
	}
	if idle {
		b.rest(f, q.now)
	}
	byArrival := func(x, y *Entry) int { return cmp.Compare(x.Number, y.Number) }
	for _, e := range slices.SortedFunc(maps.Keys(b.sharing[f.id]), byArrival) {
		b.leave(q, e)
		b.enter(q, e)
	}
}

// share and unshare note what waits in the shared flow.
func (b *ids) share(e *Entry) {
	same := b.sharing[e.Flow.Fairness]
	if same == nil {
		same = map[*Entry]struct{}{}
		b.sharing[e.Flow.Fairness] = same
	}
	same[e] = struct{}{}
}

func (b *ids) unshare(e *Entry) {
	same := b.sharing[e.Flow.Fairness]
	if delete(same, e); len(same) == 0 {
		delete(b.sharing, e.Flow.Fairness)
	}
}

// rest lists an id as idle, and busy takes it out of the list.
func (b *ids) rest(f *flow, now time.Time) {
	if f == b.shared {
		return
	}
	l := &b.idle[f.stage]
	f.idle, f.since, f.older, f.next = true, now, l.last, nil
	if l.last == nil {
		l.first = f
	} else {
		l.last.next = f
	}
	l.last = f
}

func (b *ids) busy(f *flow) {
	if !f.idle {
		return
	}
	l := &b.idle[f.stage]
	if f.older == nil {
		l.first = f.next
	} else {
		f.older.next = f.next
	}
	if f.next == nil {
		l.last = f.older
	} else {
		f.next.older = f.older
	}
	f.idle, f.older, f.next = false, nil, nil
}

// restAll lists the ids as idle of which nothing waits, after the lines were made anew.
func (b *ids) restAll(now time.Time) {
	for _, id := range slices.Sorted(maps.Keys(b.flows)) {
		if f := b.flows[id]; f.account.Requests == 0 && !f.idle {
			b.rest(f, now)
		}
	}
}

// idleFlows lists ids, the one that has been idle for the longest time first.
type idleFlows struct{ first, last *flow }
