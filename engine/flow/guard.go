package flow

import "math"

// The policies of a band whose panics are counted apart.
const (
	ordering = iota
	fairness
	charging // of a Meter
	pointing // of a Chooser
	choosing // likewise
	displacing
	queue
	policies
)

// guard is what a band knows of the panics of its policies.
type guard struct {
	faults  [policies]int // panics, in a row but for those of queues
	broken  bool          // there were too many: built-in policies come next
	builtIn bool          // built-in policies are in force
}

// mostPanics is how many calls of an ordering or a fairness may panic in a row, and how many of queues in all, before
// the band goes on with the built-in policies.
const mostPanics = 3

// order gives an entry its key by the ordering of a band, unless it has one. If that panics, the request has its place
// by its arrival.
func (q *Queues) order(b *band, e *Entry) {
	if e.orderedBy == b && e.builtIn == b.builtIn {
		return
	}
	e.orderedBy, e.builtIn, e.Key = b, b.builtIn, e.Arrived.UnixNano()
	defer func() {
		if value := recover(); value != nil {
			q.panicked(b, ordering, value)
		}
	}()
	e.Key = b.settings.Ordering.Key(e)
	b.faults[ordering] = 0
}

// rank asks the fairness. If it panics, the flow has its turn by the arrival of its first request; without one, the
// band stays where it is.
func (q *Queues) rank(b *band, a *Account, head *Entry) (rank int64) {
	defer func() {
		if value := recover(); value != nil {
			if rank = b.rank; head != nil {
				rank = int64(head.Number)
			}
			q.panicked(b, fairness, value)
		}
	}()
	rank = b.settings.Fairness.Rank(a, head)
	b.faults[fairness] = 0
	return rank
}

// join has the fairness ready the account of a flow that begins to wait. If it panics, the account stays as it is.
func (q *Queues) join(b *band, f *flow) {
	defer func() {
		if value := recover(); value != nil {
			q.panicked(b, fairness, value)
		}
	}()
	b.settings.Fairness.Join(&f.account, b.rank)
}

// point asks the Chooser, if there is one, where a flow stands. If it panics or says no number, the flow has nothing,
// and all are asked about anew at the next decision.
func (q *Queues) point(l *line) {
	b := l.band
	chooser, ok := b.settings.Fairness.(Chooser)
	if !ok || b.broken {
		return
	}
	defer func() {
		if value := recover(); value != nil {
			l.point, b.stale = Point{}, true
			q.panicked(b, pointing, value)
		}
	}()
	p, until := chooser.Point(q.now, &l.flow.account, l.head)
	if p.X-p.X != 0 || p.Y-p.Y != 0 {
		panic("no number")
	}
	l.point = p
	if until.Before(b.until) {
		b.until = until
	}
	b.faults[pointing] = 0
}

// weights asks the Chooser for its weights. If it panics, none is chosen.
func (q *Queues) weights(b *band, chooser Chooser) (weights Point) {
	defer func() {
		if value := recover(); value != nil {
			weights.X = math.NaN()
			q.panicked(b, choosing, value)
		}
	}()
	weights = chooser.Weights()
	b.faults[choosing] = 0
	return weights
}

// excess asks the displacement. If it panics, the flow has as much as it has requests waiting.
func (q *Queues) excess(b *band, a *Account, last *Entry) (excess float64) {
	defer func() {
		if value := recover(); value != nil {
			excess = float64(a.Requests)
			q.panicked(b, displacing, value)
		}
	}()
	excess = b.settings.Displacement.Excess(a, last)
	b.faults[displacing] = 0
	if math.IsNaN(excess) {
		return math.Inf(-1)
	}
	return excess
}

// kind returns how a policy is called whose panics are counted apart, and its type.
func (b *band) kind(policy int) (kind, typ string) {
	names := &b.settings.Names
	switch policy {
	case ordering:
		return "ordering policy", names.Ordering
	case displacing:
		return "displacement policy", names.Displacement
	case queue:
		return "queue", names.Queue
	}
	return "fairness policy", names.Fairness
}

// panicked counts, and has the band go on with the built-in policies once it is enough.
func (q *Queues) panicked(b *band, policy int, value any) {
	kind, typ := b.kind(policy)
	q.caught.Note(kind, typ, value)
	b.faults[policy]++
	if b.faults[policy] >= mostPanics {
		q.builtIn[b.priority] = true
		q.version++
		b.broken = true
	}
}

// change runs a change of a band's lines, which calls its queues. Queues.entries says already what waits afterwards.
// If a queue panics, no line of the band can be relied on: they are built again.
func (q *Queues) change(b *band, change func()) {
	if !q.survives(b, change) {
		for !q.survives(b, func() { q.rebuild(b) }) {
		}
	}
	if b.broken {
		b.fallBack(q.settings.BuiltIn)
		q.rebuild(b)
	}
}

// fallBack brings the built-in policies in force.
func (b *band) fallBack(p Policies) { b.broken, b.builtIn, b.settings.Policies = false, true, p }

// last returns the entry of a band that goes first if one must, and how much its flow has; nil = nothing waits in it.
func (q *Queues) last(b *band) (e *Entry, excess float64) {
	for e == nil && b.total != (Total{}) { // again, if a queue panicked
		q.change(b, func() { e, excess = q.mostOf(b) })
	}
	return e, excess
}

// survives reports whether a change was made. Panics of the built-in policies are ours, and are not caught.
func (q *Queues) survives(b *band, change func()) (survived bool) {
	defer func() {
		if survived || b.builtIn {
			return
		}
		q.panicked(b, queue, recover())
		if b.broken {
			b.fallBack(q.settings.BuiltIn)
		}
	}()
	change()
	return true
}

// rebuild makes the lines of a band anew, from what waits in it. Accounts stay.
func (q *Queues) rebuild(b *band) {
	for _, f := range b.flows {
		f.clear()
	}
	b.shared.clear()
	clear(b.sharing)
	b.lengths = lengths{}
	b.classes, b.total = newClasses(), Total{}
	for _, e := range q.All() {
		if e.band == b {
			q.order(b, e)
			b.enter(q, e)
		}
	}
	b.restAll(q.now)
}

// clear has nothing of the flow wait.
func (f *flow) clear() { f.lines, f.account.Requests, f.bytes, f.length = nil, 0, 0, length{} }
