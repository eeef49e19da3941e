package flow

import "slices"

// band is the requests of one priority that began to wait under the same policies.
//
//	band ─┬─ class ── lines, a heap: the line whose turn it is comes first
//	      └─ flow  ── its lines, one for each class of which it has requests waiting
type band struct {
	priority int
	settings BandSettings
	ids
	classes []*class // of which requests wait
	total   Total
	rank    int64   // of the flow that was served last; 0 before the first
	served  uint64  // dispatches
	due     float64 // dispatches that its priority is owed by its least share, if it leads; 0 to below 2
	guard
}

// flow is one flow of a band, of one fairness id or of all that share one. It keeps its account while nothing of it
// waits.
type flow struct {
	id      string
	account Account
	lines   []*line
	bytes   int64 // of the bodies of its requests that wait
	standing
}

// class is the requests of a band that may use the same endpoints. Its lines are never empty.
type class struct {
	name    Class
	lines   []*line // heap
	waiting int64   // requests
}

// line is the requests of one flow and one class.
type line struct {
	band  *band
	class *class
	flow  *flow
	queue Queue
	head  *Entry // the queue's first
	rank  int64  // the flow's, when head or account changed last
	place int    // in class.lines
}

func newBand(priority int, s BandSettings, flows int) *band {
	return &band{priority: priority, settings: s, ids: newIDs(flows)}
}

// line returns the line of a flow and a class, which may be new and empty.
func (b *band) line(f *flow, name Class) *line {
	for _, l := range f.lines {
		if l.class.name == name {
			return l
		}
	}
	l := &line{band: b, class: b.class(name), flow: f, queue: b.settings.Queue.New(), place: -1}
	f.lines = append(f.lines, l)
	return l
}

// has reports whether requests of a class wait.
func (b *band) has(name Class) bool {
	return slices.ContainsFunc(b.classes, func(c *class) bool { return c.name == name })
}

func (b *band) class(name Class) *class {
	for _, c := range b.classes {
		if c.name == name {
			return c
		}
	}
	c := &class{name: name}
	b.classes = append(b.classes, c)
	return c
}

// enter puts an entry in its line.
func (b *band) enter(q *Queues, e *Entry) {
	f := b.flowOf(q, e.Flow.Fairness)
	l := b.line(f, e.Class)
	e.Handle = Handle{}
	l.queue.Push(e)
	e.line = l
	b.total.add(e)
	if f.account.Requests == 0 {
		b.busy(f)
		q.join(b, f)
	}
	if f == b.shared {
		b.share(e)
	}
	f.account.Requests++
	f.bytes += e.Bytes
	l.class.waiting++
	q.rerank(l)
}

// leave takes an entry out of its line. Lines and classes that are empty go.
func (b *band) leave(q *Queues, e *Entry) {
	l := e.line
	f := l.flow
	e.line = nil
	if f == b.shared {
		b.unshare(e)
	}
	b.total.remove(e)
	f.account.Requests--
	f.bytes -= e.Bytes
	l.class.waiting--
	l.queue.Remove(e)
	if l.queue.Len() > 0 {
		if l.head == e {
			q.rerank(l)
		}
		return
	}
	l.class.remove(l)
	f.lines = without(f.lines, l)
	if len(l.class.lines) == 0 {
		b.classes = without(b.classes, l.class)
	}
	if f.account.Requests == 0 {
		b.rest(f, q.now)
	}
}

// without returns the list without one of its members, in the order that it had.
func without[T comparable](list []T, member T) []T {
	if i := slices.Index(list, member); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// first returns the entry of a band that is dispatched next, of those whose class has room, and the line whose turn it
// is, which by locality may be another one; nil = there is none.
func (q *Queues) first(b *band, room func(*Entry) bool) (e *Entry, turn *line) {
	if by, ok := b.settings.Fairness.(Chooser); ok {
		if e := q.chosen(b, by, room); e != nil {
			return e, e.line
		}
	}
	turn = b.next(room)
	if turn == nil {
		return nil, nil
	}
	if quantum := b.settings.quantum(); quantum > 0 && q.held != nil {
		return q.nearest(b, room, quantum)
	}
	return turn.head, turn
}

// chosen returns the entry that a Chooser chooses; nil = none has room, or it did not choose.
func (q *Queues) chosen(b *band, by Chooser, room func(*Entry) bool) *Entry {
	q.candidates = q.candidates[:0]
	for _, c := range b.classes {
		has := c.room(room)
		for _, l := range c.lines {
			if has(l) {
				q.candidates = append(q.candidates, Candidate{Account: &l.flow.account, Head: l.head})
			}
		}
	}
	defer func() { clear(q.candidates) }()
	if len(q.candidates) > 0 {
		if next := q.choose(b, by, q.candidates); next >= 0 {
			return q.candidates[next].Head
		}
	}
	return nil
}

// next returns the line whose rank is the least, of those whose class has room; nil = there is none.
func (b *band) next(room func(*Entry) bool) (first *line) {
	for _, c := range b.classes {
		l := c.lines[0]
		if (first == nil || l.before(first)) && !room(l.head) && l.flow.crowds() {
			l = c.alone()
		}
		if l != nil && (first == nil || l.before(first)) && room(l.head) {
			first = l
		}
	}
	return first
}

// room returns which lines of a class have room. It asks once for those whose flows crowd, and once for the others.
func (c *class) room(room func(*Entry) bool) func(*line) bool {
	var asked, has [2]bool
	return func(l *line) bool {
		kind := 0
		if l.flow.crowds() {
			kind = 1
		}
		if !asked[kind] {
			asked[kind], has[kind] = true, room(l.head)
		}
		return has[kind]
	}
}

// crowds reports whether the flow has more than one request waiting.
func (f *flow) crowds() bool { return f.account.Requests > 1 }

// alone returns the line whose turn it is of those whose flow has one request waiting; nil = there is none.
func (c *class) alone() (first *line) {
	for _, l := range c.lines {
		if !l.flow.crowds() && (first == nil || l.before(first)) {
			first = l
		}
	}
	return first
}

// mostOf returns the last entry of the flow that has the most, as the displacement says, and how much that is. nil =
// nothing waits.
func (q *Queues) mostOf(b *band) (last *Entry, most float64) {
	for _, c := range b.classes {
		for _, l := range c.lines {
			if l.flow.lines[0] != l {
				continue // the flow is asked about once
			}
			tail := l.flow.last()
			if excess := q.excess(b, &l.flow.account, tail); last == nil || excess > most {
				last, most = tail, excess
			}
		}
	}
	return last, most
}

// last returns the entry of a flow that comes last. One waits.
func (f *flow) last() (last *Entry) {
	for _, l := range f.lines {
		if e := l.queue.Tail(); last == nil || last.Before(e) {
			last = e
		}
	}
	return last
}

// before reports whether it is the turn of l rather than of other.
func (l *line) before(other *line) bool {
	if l.rank != other.rank {
		return l.rank < other.rank
	}
	return l.head.Number < other.head.Number
}

// fix puts a line where it belongs after its rank or its head changed. A line that is new to the heap enters it.
func (c *class) fix(l *line) {
	if l.place < 0 {
		l.place = len(c.lines)
		c.lines = append(c.lines, l)
	}
	c.down(c.up(l.place))
}

func (c *class) remove(l *line) {
	last := len(c.lines) - 1
	at := l.place
	c.swap(at, last)
	c.lines[last] = nil
	c.lines = c.lines[:last]
	if at < last {
		c.down(c.up(at))
	}
	l.place = -1
}

func (c *class) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !c.lines[i].before(c.lines[parent]) {
			break
		}
		c.swap(i, parent)
		i = parent
	}
	return i
}

func (c *class) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(c.lines); child++ {
			if c.lines[child].before(c.lines[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		c.swap(i, least)
		i = least
	}
}

func (c *class) swap(i, j int) {
	c.lines[i], c.lines[j] = c.lines[j], c.lines[i]
	c.lines[i].place, c.lines[j].place = i, j
}
