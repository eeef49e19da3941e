package flow

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// Queues holds what waits. The actor that owns it is the only one that calls it.
type Queues struct {
	settings Settings
	bands    []*band // highest priority first; of one priority those of older settings first
	entries  map[messages.RequestID]*Entry
	total    Total
	arrivals uint64
	faults
	version int // of the settings that new requests wait under
	now     time.Time
	limiting
	floors
	changes
	looks
}

// faults are what policies did wrong.
type faults struct {
	builtIn map[int]bool // priorities whose policies panicked too often under the settings in force
	caught  *Caught
}

// looks is what serves to decide who is next.
type looks struct {
	held  func(*Entry) int // as Locate has it; nil = locality does not matter
	near  []spot           // the buffer of search
	asked []*lines         // the buffer of roomy
}

// changes are those of what waits, for others to follow.
type changes struct {
	waiting []int  // priorities of which more or less waits than when Changed was called last, each once
	shown   uint64 // how often priorities have changed that the usage limit is shown
}

// limiting is what serves to ask the usage limit.
type limiting struct {
	limitFaults int // panics in a row
	usage       Usage
	shares      []float64
	ceilings    []Ceiling
	levels      []int
	paces       map[int]*pace // by priority
}

// New returns queues that hold nothing.
func New(s Settings) *Queues {
	q := &Queues{settings: s, entries: map[messages.RequestID]*Entry{}}
	q.builtIn, q.caught = map[int]bool{}, NewCaught(nil)
	q.paces = map[int]*pace{}
	return q
}

// Configure brings other settings in force. What waits stays where it is, in its order, also if it is more than new
// limits allow: bands of older policies are served before the newer one of their priority. A band in which nothing
// waits goes, and its accounts with it, unless its policies stay the same and requests may still have its priority.
// Least shares are the new ones at once.
func (q *Queues) Configure(s Settings) {
	q.settings = s
	q.version++
	q.shown++
	clear(q.builtIn)
	q.limitFaults = 0
	var kept []*band
	for i, b := range q.bands {
		now, newest := s.band(b.priority), i+1 == len(q.bands) || q.bands[i+1].priority != b.priority
		known := len(s.Priorities) == 0 || slices.Contains(s.Priorities, b.priority)
		if (b.total != Total{}) || newest && known && b.settings.orderedAs(&now) {
			b.settings.MinShare = now.MinShare
			kept = append(kept, b)
		}
	}
	q.bands = kept
	for _, b := range q.bands {
		q.note(b)
	}
}

// note notes that more or less of a band waits.
func (q *Queues) note(b *band) {
	if !slices.Contains(q.waiting, b.priority) {
		q.waiting = append(q.waiting, b.priority)
	}
	if b.total.Requests <= 1 && !slices.Contains(q.settings.Priorities, b.priority) {
		q.shown++ // it may be the first one, or may have been the last
	}
}

// Advance says what time it is. Decisions that depend on it are as of then.
func (q *Queues) Advance(now time.Time) { q.now = now }

// Total returns how much waits.
func (q *Queues) Total() Total { return q.total }

// Caught returns the panics of policies.
func (q *Queues) Caught() *Caught { return q.caught }

// TellPanics has panics of policies be told from now on, and counted anew.
func (q *Queues) TellPanics(tell func(Panic)) { q.caught = NewCaught(tell) }

// Push has a request wait. If a limit is reached, requests that matter less make way, and leave with their reasons:
// those of lower priority first, or one of its own priority that the displacement names. If that does not help, nothing
// changes and Push returns false.
func (q *Queues) Push(e *Entry) (displaced []Displaced, ok bool) {
	e.Number = q.arrivals + 1
	displaced, ok = q.displace(e)
	if !ok {
		return nil, false
	}
	q.arrivals++
	q.put(e)
	if !e.Crowds() {
		q.paceOf(e.Flow.Priority).alone++
	}
	return displaced, true
}

// Return has a request wait again that was dispatched in vain. It has its former place, its flow is not charged for
// it and keeps its turn, and no limit holds for it.
func (q *Queues) Return(e *Entry) {
	q.Undo(e)
	q.put(e)
}

// put enters a request that has a number.
func (q *Queues) put(e *Entry) {
	b := q.band(e.Flow.Priority)
	if len(b.classes.list) >= mostClasses && b.classes.named[e.Class] == nil {
		e.Class %= sharedClasses
	}
	q.order(b, e)
	q.entries[e.Request] = e
	q.total.add(e)
	e.band = b
	q.change(b, func() { b.enter(q, e) })
	q.note(b)
}

// Next takes out the request that is dispatched next, of those whose class has room, and charges its flow for the
// prompt; nil = there is none. Room is asked about one request of a class, for each band anew: a class that has no
// room in one band must have none in lower ones. If there is none for a request that crowds, it is asked about one of
// the class that does not. A class without room is not asked about again in the band, but by a least share, until Open
// names it, or other flows of it wait.
func (q *Queues) Next(room func(*Entry) bool) *Entry {
	q.settle()
	owed := false
	for i, b := range q.bands {
		if q.leads(i) {
			owed = b.due >= 1-1e-9 // shares add up to 1 but for rounding
		}
		if !owed {
			continue
		}
		q.floored = true
		if e := q.nextOf(b, room); e != nil {
			return e
		}
	}
	q.floored = false
	for _, b := range q.bands {
		if e := q.nextOf(b, room); e != nil {
			return e
		}
	}
	return nil
}

// nextOf takes out the request of a band that is dispatched next; nil = there is none.
func (q *Queues) nextOf(b *band, room func(*Entry) bool) *Entry {
	e, turn := q.first(b, room)
	if e == nil {
		return nil
	}
	if turn.head != e {
		turn.head.over += DispatchPrompt(e.Prompt)
	}
	f := e.line.flow
	e.crowd = f.crowds()
	b.rank = turn.rank
	b.served++
	q.dispatched = e
	q.remove(e)
	e.before, e.dispatch = f.account.Served, b.served
	f.account.Served = b.served
	e.payer = f
	q.charge(b, f, Tokens{Prompt: DispatchPrompt(e.Prompt)})
	return e
}

// floors is what serves to keep to the least shares of bands.
type floors struct {
	floored    bool   // the band under way is asked ahead of higher priorities
	dispatched *Entry // last, and not in vain as far as is known; nil = none that is to be counted
}

// Floored reports whether the request under way is served by the least share of its band: it goes ahead of higher
// priorities, and whatever they may fill is room for it. Under way is one that Next asks about, or that it has
// returned.
func (q *Queues) Floored() bool { return q.floored }

// First returns the highest priority of those that wait, behind whose requests a request of the same or a lower one has
// to wait; all have to while a least share may bring one of a lower priority forward.
func (q *Queues) First() int {
	first := math.MinInt
	for _, b := range q.bands {
		switch {
		case b.total == Total{}:
		case b.settings.MinShare > 0:
			return math.MaxInt
		default:
			first = max(first, b.priority)
		}
	}
	return first
}

// leads reports whether a band is the first of its priority, which has what the priority is owed.
func (q *Queues) leads(i int) bool { return i == 0 || q.bands[i-1].priority != q.bands[i].priority }

// settle counts the last dispatch, if it was not in vain: for its id, and for what bands are owed.
func (q *Queues) settle() {
	e := q.dispatched
	if q.dispatched = nil; e == nil {
		return
	}
	q.settleFloors(e)
	q.prove(e.band, e.Flow.Fairness)
}

// settleFloors counts a dispatch: each priority that waits is owed its least share of one, and the one that was served
// has had one. What a priority is owed does not grow while it finds no room, or has nothing waiting. The first of its
// bands has it.
func (q *Queues) settleFloors(e *Entry) {
	for i, b := range q.bands {
		if !q.leads(i) {
			b.due = 0
			continue
		}
		if b.due += b.settings.MinShare; b.priority == e.Flow.Priority {
			b.due--
		}
		if b.due = min(max(b.due, 0), 1+b.settings.MinShare); (b.total == Total{}) {
			b.due = 0
		}
	}
}

// Remove takes out a request that waits, and returns its entry; nil = it does not wait.
func (q *Queues) Remove(id messages.RequestID) *Entry {
	e := q.entries[id]
	if e != nil {
		q.remove(e)
	}
	return e
}

func (q *Queues) remove(e *Entry) {
	b := e.band
	delete(q.entries, e.Request)
	q.total.remove(e)
	q.change(b, func() { b.leave(q, e) })
	q.note(b)
	if (b.total == Total{}) && b != q.newest(b.priority) {
		q.bands = without(q.bands, b)
	}
}

// All returns what waits in the order of arrival.
func (q *Queues) All() []*Entry {
	all := make([]*Entry, 0, len(q.entries))
	for _, e := range q.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *Entry) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// band returns the band in which requests of a priority begin to wait.
func (q *Queues) band(priority int) *band {
	newest := q.newest(priority)
	if newest != nil && newest.version == q.version {
		return newest
	}
	s := q.settings.band(priority)
	if q.builtIn[priority] {
		s.Policies = q.settings.BuiltIn
	}
	if newest != nil && newest.settings.orderedAs(&s) {
		newest.version = q.version
		return newest
	}
	at, _ := slices.BinarySearchFunc(q.bands, priority, func(b *band, priority int) int {
		if b.priority >= priority {
			return -1
		}
		return 1
	})
	b := newBand(priority, s, cmp.Or(q.settings.Flows, DefaultFlows))
	b.version = q.version
	q.bands = slices.Insert(q.bands, at, b)
	return b
}

// newest returns the band of a priority that is served last of those that it has; nil = there is none.
func (q *Queues) newest(priority int) *band {
	if same := q.same(priority); len(same) > 0 {
		return same[len(same)-1]
	}
	return nil
}

// same returns the bands of a priority.
func (q *Queues) same(priority int) []*band {
	from, _ := slices.BinarySearchFunc(q.bands, priority, func(b *band, priority int) int {
		return cmp.Compare(priority, b.priority)
	})
	to := from
	for to < len(q.bands) && q.bands[to].priority == priority {
		to++
	}
	return q.bands[from:to]
}

// rerank brings a line to where it belongs, after its head changed.
func (q *Queues) rerank(l *line) {
	l.head = l.queue.Head()
	q.reaccount(l)
}

// reaccount does so after the account of its flow changed.
func (q *Queues) reaccount(l *line) {
	l.stale = false
	l.rank = q.rank(l.band, &l.flow.account, l.head)
	q.point(l)
	l.class.settle(l)
}

func (q *Queues) rerankAll(f *flow) {
	for _, l := range f.lines {
		q.rerank(l)
	}
}
