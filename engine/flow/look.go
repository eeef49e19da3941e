package flow

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// Fill is how much of one priority waits, and how much may.
type Fill struct {
	Priority int
	Waiting  Total
	Most     Limits
}

// Fills ranges over the priorities of which requests wait, or have waited, the highest first.
func (q *Queues) Fills() iter.Seq[Fill] {
	return func(yield func(Fill) bool) {
		for i := range q.bands {
			if q.leads(i) && !yield(q.fill(q.bands[i].priority)) {
				return
			}
		}
	}
}

// Changed ranges over the priorities of which more or less waits than when it was called last, or whose limits may be
// others.
func (q *Queues) Changed() iter.Seq[Fill] {
	return func(yield func(Fill) bool) {
		changed := q.waiting
		q.waiting = q.waiting[:0]
		for _, priority := range changed {
			if !yield(q.fill(priority)) {
				return
			}
		}
	}
}

// Levels returns a number that is another one once the usage limit is shown other priorities, or is another one itself.
func (q *Queues) Levels() uint64 { return q.shown }

func (q *Queues) fill(priority int) Fill {
	f := Fill{Priority: priority, Most: q.settings.band(priority).Limits}
	for _, b := range q.same(priority) {
		f.Waiting.Requests += b.total.Requests
		f.Waiting.Bytes += b.total.Bytes
	}
	return f
}

// Configured returns the priorities that the settings in force name, the lowest first, without what waits.
func (q *Queues) Configured() (all []Fill) {
	for _, priority := range slices.Sorted(maps.Keys(q.settings.Bands)) {
		all = append(all, Fill{Priority: priority, Most: q.settings.Bands[priority].Limits})
	}
	return all
}

// LimitedBy returns the type of the usage limit; "" = there is none.
func (q *Queues) LimitedBy() string { return q.settings.LimitedBy }

// Limits returns those of all bands together.
func (q *Queues) Limits() Limits { return q.settings.Limits }

// Look returns what waits, by band, with at most so many flows of each. room says of which classes there may be room.
func (q *Queues) Look(now time.Time, most int, room func(*Entry) bool) []messages.BandState {
	firsts := q.firsts()
	all := make([]messages.BandState, 0, len(q.bands))
	for _, b := range q.bands {
		state := messages.BandState{
			Priority: b.priority, Older: b != q.newest(b.priority), Waiting: messages.Held(b.total),
			Limits:   messages.Held(q.settings.band(b.priority).Limits),
			Policies: b.settings.Names, Served: b.served,
		}
		state.Policies.BuiltIn = b.builtIn
		if e, _ := q.first(b, room); e != nil {
			state.Next = messages.NextTurn{Request: e.Request, Flow: e.line.flow.id}
		}
		flows := make([]messages.FlowState, 0, len(b.flows)+1)
		for _, f := range b.flows {
			flows = append(flows, f.state(now, firsts))
		}
		if b.shared.account != (Account{Weight: 1}) {
			shared := b.shared.state(now, firsts)
			shared.Shared = true
			flows = append(flows, shared)
		}
		for i := range flows {
			state.Service += flows[i].Service
			state.Oldest = max(state.Oldest, flows[i].Oldest)
		}
		slices.SortFunc(flows, longer)
		state.Known = len(flows)
		state.Flows = messages.ListOf(flows[:min(len(flows), max(most, 0))]...)
		all = append(all, state)
	}
	return all
}

// longer orders flows: by what waits of them, then by what they were given.
func longer(a, b messages.FlowState) int {
	return cmp.Or(
		cmp.Compare(b.Waiting.Requests, a.Waiting.Requests), cmp.Compare(b.Service, a.Service),
		cmp.Compare(a.Served, b.Served), cmp.Compare(a.Fairness, b.Fairness),
	)
}

// mostLooked is how many waiting requests are looked at one by one.
const mostLooked = 10_000

// firsts returns when the oldest request came of each flow whose queues are not in the order of arrival. There are none
// if so much waits that it would take long to look.
func (q *Queues) firsts() map[*flow]time.Time {
	firsts := map[*flow]time.Time{}
	sorted := func(b *band) bool { return b.settings.Queue.Can().Has(ArrivalOrder) }
	if len(q.entries) > mostLooked || !slices.ContainsFunc(q.bands, func(b *band) bool { return !sorted(b) }) {
		return firsts
	}
	for _, e := range q.entries {
		f := e.line.flow
		if first, ok := firsts[f]; !sorted(e.band) && (!ok || e.Arrived.Before(first)) {
			firsts[f] = e.Arrived
		}
	}
	return firsts
}

// state returns what is known of a flow.
func (f *flow) state(now time.Time, firsts map[*flow]time.Time) messages.FlowState {
	a := &f.account
	state := messages.FlowState{
		Fairness: f.id, Weight: a.Weight, Service: a.Service, Served: a.Served,
		Waiting: messages.Held{Requests: int64(a.Requests), Bytes: f.bytes},
	}
	if first, ok := firsts[f]; ok {
		state.Oldest = max(now.Sub(first), 0)
		return state
	}
	for _, l := range f.lines {
		if l.band.settings.Queue.Can().Has(ArrivalOrder) {
			state.Oldest = max(state.Oldest, now.Sub(l.head.Arrived))
		}
	}
	return state
}

// Classes returns what waits of some classes, the least first.
func (q *Queues) Classes(names []Class) []messages.ClassState {
	states := make([]messages.ClassState, 0, len(names))
	for _, name := range slices.Sorted(slices.Values(names)) {
		s := messages.ClassState{Class: uint64(name)}
		for _, b := range q.bands {
			q.add(b, &s)
		}
		states = append(states, s)
	}
	return states
}

// add adds what waits of a class.
func (q *Queues) add(b *band, s *messages.ClassState) {
	if c := b.classes.named[Class(s.Class)]; c != nil {
		q.change(b, func() {
			q.freshen(&c.heaps[0])
			q.freshen(&c.heaps[1])
		})
	}
	if c := b.classes.named[Class(s.Class)]; c != nil { // a queue that panicked may have had it built again
		s.Next = cmp.Or(s.Next, c.first().head.Request)
		s.Waiting += c.waiting
	}
}
