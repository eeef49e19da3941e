package flow

import "github.com/signalbox-epp/signalbox/messages"

// Displaced is a request that made way for another one.
type Displaced struct {
	*Entry
	Priority bool // for one of a higher priority; false = for one of another flow
}

// displace makes room for an entry. Unless it returns true, nothing has changed.
func (q *Queues) displace(e *Entry) (displaced []Displaced, ok bool) {
	plan, ok := q.planFor(e)
	if !ok {
		return nil, false
	}
	if plan.peer != nil {
		q.remove(plan.peer)
		displaced = append(displaced, Displaced{Entry: plan.peer})
	}
	return append(displaced, q.dropLowest(plan.lower)...), true
}

// Yield takes out requests so that at least so many bytes of their bodies can be freed for the body of a request that
// does not wait itself: those of the lowest priorities, or one of its own priority that the displacement names.
// If that is not enough, it takes out none.
func (q *Queues) Yield(key messages.FlowKey, bytes int64) []Displaced {
	over := Total{Bytes: bytes}
	if _, lower := q.totals(key.Priority); lower.covers(over) {
		return q.dropLowest(over)
	}
	e := &Entry{Flow: key, Work: Work{Bytes: bytes}, Order: Order{Number: q.arrivals + 1}}
	if peer := q.peer(e, over); peer != nil {
		q.remove(peer)
		return []Displaced{{Entry: peer}}
	}
	return nil
}

// dropLowest takes out the requests of the lowest priorities until at least so much has left.
func (q *Queues) dropLowest(over Total) (dropped []Displaced) {
	for over != (Total{}) {
		v := q.lowest()
		q.remove(v)
		over.Requests = max(over.Requests-1, 0)
		over.Bytes = max(over.Bytes-v.Bytes, 0)
		dropped = append(dropped, Displaced{v, true})
	}
	return dropped
}

// room says what must make way.
type room struct {
	peer  *Entry // one of the same priority; nil = none
	lower Total  // of lower priorities, at least so much
}

// planFor returns what must make way for an entry, or false if nothing helps.
func (q *Queues) planFor(e *Entry) (r room, ok bool) {
	more := Total{1, e.Bytes}
	s := q.settings.band(e.Flow.Priority)
	same, lower := q.totals(e.Flow.Priority)
	if over, exceeded := s.exceeded(same, more); exceeded {
		if r.peer = q.peer(e, over); r.peer == nil {
			return room{}, false
		}
	}
	rest := q.total
	if r.peer != nil {
		rest.remove(r.peer)
	}
	over, exceeded := q.settings.exceeded(rest, more)
	switch {
	case !exceeded:
		return r, true
	case lower.covers(over):
		r.lower = over
		return r, true
	case r.peer == nil:
		r.peer = q.peer(e, over)
	default:
		return room{}, false
	}
	return r, r.peer != nil
}

// totals returns how much waits of a priority, and below it.
func (q *Queues) totals(priority int) (same, lower Total) {
	for _, b := range q.bands {
		sum := &lower
		switch {
		case b.priority > priority:
			continue
		case b.priority == priority:
			sum = &same
		}
		sum.Requests += b.total.Requests
		sum.Bytes += b.total.Bytes
	}
	return same, lower
}

// peer returns the request of the same priority that makes way, as the displacement says: the last one of the flow that
// has the most, if that is still more than the newcomer's flow will have. nil = there is none, or it does not help:
// more must go, as when a limit was lowered.
func (q *Queues) peer(e *Entry, over Total) *Entry {
	b := q.newest(e.Flow.Priority)
	if b == nil || over.Requests > 1 {
		return nil
	}
	last, most := q.last(b)
	if last == nil || last.Bytes < over.Bytes {
		return nil
	}
	if own := b.accountWith(e.Flow.Fairness, q.now); most <= q.excess(b, &own, e) {
		return nil
	}
	return last
}

// lowest returns the request that makes way for one of a higher priority.
func (q *Queues) lowest() *Entry {
	for i := len(q.bands) - 1; i >= 0; i-- {
		if e, _ := q.last(q.bands[i]); e != nil {
			return e
		}
	}
	return nil
}

// lengths holds the flows of a band that have requests waiting by what they have, as the displacement says.
type lengths struct {
	longest heap[*flow]
	changed []*flow // of which that is to be asked again
}

// length is how much a flow has.
type length struct {
	last    *Entry // its last request; nil = the flow is not in the heap
	excess  float64
	at      int // in the heap
	changed bool
}

func (f *flow) seat() *int { return &f.at }

func (f *flow) before(other *flow) bool {
	if f.excess != other.excess {
		return f.excess > other.excess
	}
	return f.last.Number < other.last.Number
}

// measure has the displacement asked about a flow before it decides again.
func (b *band) measure(q *Queues, f *flow) {
	if f.length.changed {
		return
	}
	if len(b.changed) > 2*b.most { // most of them were forgotten
		b.remeasure(q)
	}
	f.length.changed = true
	b.changed = append(b.changed, f)
}

func (b *band) remeasure(q *Queues) {
	for _, f := range b.changed {
		known := f.last != nil
		if f.length.changed = false; f.account.Requests == 0 {
			if known {
				b.longest.remove(f)
			}
			f.last = nil
			continue
		}
		f.last = f.tail()
		f.excess = q.excess(b, &f.account, f.last)
		if known {
			b.longest.fix(f)
		} else {
			b.longest.add(f)
		}
	}
	clear(b.changed)
	b.changed = b.changed[:0]
}

// mostOf returns the last entry of the flow that has the most, as the displacement says, and how much that is. nil =
// nothing waits.
func (q *Queues) mostOf(b *band) (last *Entry, most float64) {
	b.remeasure(q)
	if len(b.longest) == 0 {
		return nil, 0
	}
	return b.longest[0].last, b.longest[0].excess
}

// tail returns the entry of a flow that comes last. One waits.
func (f *flow) tail() (last *Entry) {
	for _, l := range f.lines {
		if e := l.queue.Tail(); last == nil || last.Before(e) {
			last = e
		}
	}
	return last
}
