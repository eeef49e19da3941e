package flow

import "slices"

// band is the requests of one priority that began to wait under the same policies.
//
//	band ─┬─ class ── two heaps of lines, of flows that crowd and of others: the line whose turn it is comes first
//	      └─ flow  ── its lines, one for each class of which it has requests waiting
type band struct {
	priority int
	settings BandSettings
	version  int // of Queues, as of which requests begin to wait here
	ids
	classes classes
	lengths
	points
	total  Total
	rank   int64   // of the flow that was served last; 0 before the first
	served uint64  // dispatches
	due    float64 // dispatches that its priority is owed by its least share, if it leads; 0 to below 2
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
	length
}

// line is the requests of one flow and one class.
type line struct {
	band  *band
	class *class
	flow  *flow
	queue Queue
	head  *Entry // the queue's first
	rank  int64  // the flow's, when head or account changed last
	point Point  // likewise, if the fairness is a Chooser
	in    *lines // nil = it is new
	place int    // in it
	stale bool   // the flow's account has changed since rank was asked for
}

func newBand(priority int, s BandSettings, flows int) *band {
	return &band{priority: priority, settings: s, ids: newIDs(flows), classes: newClasses()}
}

// line returns the line of a flow and a class, which may be new and empty.
func (b *band) line(f *flow, name Class) *line {
	_, boxed := b.settings.Fairness.(Chooser)
	c := b.classes.of(name, boxed)
	if l := c.of(f); l != nil {
		return l
	}
	l := &line{band: b, class: c, flow: f, queue: b.settings.Queue.New()}
	f.lines = append(f.lines, l)
	return l
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
	b.measure(q, f)
	if f.account.Requests == 2 {
		q.rerankAll(f)
	} else {
		q.rerank(l)
	}
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
	b.measure(q, f)
	l.queue.Remove(e)
	if l.queue.Len() == 0 {
		l.in.remove(l)
		f.lines = without(f.lines, l)
		if l.class.waiting == 0 {
			b.classes.remove(l.class)
		}
	}
	switch {
	case f.account.Requests == 1:
		q.rerankAll(f)
	case l.head == e && l.queue.Len() > 0:
		q.rerank(l)
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

// crowds reports whether the flow has more than one request waiting.
func (f *flow) crowds() bool { return f.account.Requests > 1 }

// settle puts a line where it belongs after its rank, its head or its flow changed.
func (c *class) settle(l *line) {
	target := &c.heaps[0]
	if l.flow.crowds() {
		target = &c.heaps[1]
	}
	if l.in != target {
		if l.in != nil {
			l.in.remove(l)
		}
		l.in = target
		target.add(l)
		l.band.classes.reopen(c)
		return
	}
	target.fix(l)
}

// before reports whether it is the turn of l rather than of other.
func (l *line) before(other *line) bool {
	if l.rank != other.rank {
		return l.rank < other.rank
	}
	return l.head.Number < other.head.Number
}

func (l *line) seat() *int { return &l.place }

// lines is a heap of lines. If the fairness is a Chooser it knows of each the point, and what the lines below it have.
type lines struct {
	heap   heap[*line]
	place  int     // in classes.open; closed = it is not there
	stale  []*line // those that became stale while it was closed
	boxed  bool
	points []Point // by place; if boxed
	boxes  []box   // of each line with those below it; likewise
}

func (h *lines) first() *line {
	if len(h.heap) == 0 {
		return nil
	}
	return h.heap[0]
}

func (h *lines) add(l *line) {
	if h.boxed {
		h.points, h.boxes = append(h.points, Point{}), append(h.boxes, box{})
	}
	h.rebox(h.heap.add(l))
	l.band.classes.changed(h)
}

func (h *lines) fix(l *line) {
	h.rebox(h.heap.fix(l))
	l.band.classes.changed(h)
}

func (h *lines) remove(l *line) {
	l.stale = false
	changed := h.heap.remove(l)
	last := len(h.heap)
	if h.boxed {
		h.points, h.boxes = h.points[:last], h.boxes[:last]
	}
	h.rebox(changed)
	h.rebox((last - 1) / 2)
	l.band.classes.changed(h)
}

// ordered is what a heap holds. Each knows its place there.
type ordered[T any] interface {
	before(other T) bool
	seat() *int
}

// heap holds the one first that is before all others. Of a change it returns the place farthest from the first whose
// member changed: all other such places are on the way from there to the first.
type heap[T ordered[T]] []T

func (h *heap[T]) add(x T) (changed int) {
	*x.seat() = len(*h)
	*h = append(*h, x)
	h.up(len(*h) - 1)
	return len(*h) - 1
}

// fix puts a member where it belongs after it changed.
func (h *heap[T]) fix(x T) (changed int) {
	at := *x.seat()
	if h.up(at) < at {
		return at
	}
	return h.down(at)
}

// remove takes a member out. The last place goes, beside the change that it returns.
func (h *heap[T]) remove(x T) (changed int) {
	at, last := *x.seat(), len(*h)-1
	h.swap(at, last)
	clear((*h)[last:])
	*h = (*h)[:last]
	if at == last {
		return at
	}
	return h.fix((*h)[at])
}

func (h *heap[T]) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !(*h)[i].before((*h)[parent]) {
			break
		}
		h.swap(i, parent)
		i = parent
	}
	return i
}

func (h *heap[T]) down(i int) int {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(*h); child++ {
			if (*h)[child].before((*h)[least]) {
				least = child
			}
		}
		if least == i {
			return i
		}
		h.swap(i, least)
		i = least
	}
}

func (h *heap[T]) swap(i, j int) {
	list := *h
	list[i], list[j] = list[j], list[i]
	*list[i].seat(), *list[j].seat() = i, j
}
