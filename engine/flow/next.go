package flow

import (
	"iter"
	"math"
	"time"
)

// first returns the entry of a band that is dispatched next, of those whose class has room, and the line whose turn it
// is, which by locality may be another one; nil = there is none.
func (q *Queues) first(b *band, room func(*Entry) bool) (e *Entry, turn *line) {
	q.freshenAll(b)
	if chooser, ok := b.settings.Fairness.(Chooser); ok {
		if l := q.chosen(b, chooser, room); l != nil {
			return l.head, l
		}
	}
	turn = q.next(b, room)
	if turn == nil {
		return nil, nil
	}
	if quantum := b.settings.quantum(); quantum > 0 && q.held != nil {
		return q.nearest(b, room, quantum)
	}
	return turn.head, turn
}

// points says until when the points of all lines of a band hold.
type points struct {
	until time.Time
	stale bool // they do not
}

// Forever is later than any time at which requests wait.
var Forever = time.Unix(1<<40, 0)

// chosen returns the line that a Chooser chooses; nil = none has room, or it did not choose.
func (q *Queues) chosen(b *band, chooser Chooser, room func(*Entry) bool) *line {
	if b.stale || q.now.After(b.until) {
		q.change(b, func() { q.repoint(b) })
		if _, still := b.settings.Fairness.(Chooser); !still {
			return nil // it panicked too often, and the built-in fairness is in its place
		}
	}
	var few [8]*lines
	open, all := few[:0], box{}
	for h := range q.roomy(b, room) {
		if len(open) == 0 {
			all = h.boxes[0]
		}
		all.widen(&h.boxes[0])
		open = append(open, h)
	}
	if len(open) == 0 {
		return nil
	}
	weights := q.weights(b, chooser)
	s := selection{all.least, Point{
		scale(weights.X, all.most.X-all.least.X), scale(weights.Y, all.most.Y-all.least.Y),
	}, nil, math.Inf(1)}
	for _, h := range open {
		s.search(h)
	}
	return s.best
}

// scale returns what a weight adds to the cost for each unit, of which the points are so many apart at most.
func scale(weight, apart float64) float64 {
	if apart < 1e-290 { // next to nothing, by which no number can be divided
		return 0
	}
	return weight / apart
}

// repoint has the Chooser asked about all lines.
func (q *Queues) repoint(b *band) {
	b.until, b.stale = Forever, false
	for _, h := range b.classes.all(nil) {
		for at := len(h.heap) - 1; at >= 0; at-- {
			q.point(h.heap[at])
			h.box(at)
		}
	}
}

// box is what some lines have.
type box struct{ least, most Point }

func (b *box) widen(other *box) {
	b.least.X = lesser(b.least.X, other.least.X)
	b.least.Y = lesser(b.least.Y, other.least.Y)
	b.most.X = greater(b.most.X, other.most.X)
	b.most.Y = greater(b.most.Y, other.most.Y)
}

// lesser and greater are min and max without what these do for NaN, which takes longer.
func lesser(a, b float64) float64 {
	if b < a {
		return b
	}
	return a
}

func greater(a, b float64) float64 {
	if b > a {
		return b
	}
	return a
}

// rebox works the boxes out anew from a place on to the first.
func (h *lines) rebox(at int) {
	for h.boxed && at < len(h.heap) {
		if h.box(at); at == 0 {
			return
		}
		at = (at - 1) / 2
	}
}

// box works out the box of a line from those below it.
func (h *lines) box(at int) {
	l := h.heap[at]
	h.points[at] = l.point
	b := box{l.point, l.point}
	for child := 2*at + 1; child <= 2*at+2 && child < len(h.heap); child++ {
		b.widen(&h.boxes[child])
	}
	h.boxes[at] = b
}

// selection looks for the line with the least cost. It looks at each, for a band has few flows, and those that have
// waited for long have had more: by their costs they are much alike, and no bound rules many of them out.
type selection struct {
	least, scales Point
	best          *line
	cost          float64 // of it
}

func (s *selection) search(h *lines) {
	least, scales, lowest := s.least, s.scales, s.cost
	for at, p := range h.points {
		cost := float64((p.X-least.X)*scales.X) + float64((p.Y-least.Y)*scales.Y) // not fused: alike everywhere
		if !(cost <= lowest) {
			continue
		}
		if l := h.heap[at]; cost < lowest || s.best != nil && l.head.Number < s.best.head.Number {
			s.best, lowest = l, cost
		}
	}
	s.cost = lowest
}

// next returns the line whose rank is the least, of those whose class has room; nil = there is none.
func (q *Queues) next(b *band, room func(*Entry) bool) (first *line) {
	if q.floored {
		for h := range q.roomy(b, room) {
			if l := h.first(); first == nil || l.before(first) {
				first = l
			}
		}
		return first
	}
	for len(b.classes.open) > 0 {
		if first = b.classes.open[0].first(); room(first.head) {
			return first
		}
		b.classes.close(b.classes.open[0])
	}
	return nil
}

// roomy ranges over the heaps of a band that have room. What is room for a least share alone closes none.
func (q *Queues) roomy(b *band, room func(*Entry) bool) iter.Seq[*lines] {
	return func(yield func(*lines) bool) {
		q.asked = append(q.asked[:0], b.classes.open...)
		if q.floored {
			q.asked = b.classes.all(q.asked[:0])
		}
		for _, h := range q.asked {
			switch {
			case room(h.first().head):
				if !yield(h) {
					return
				}
			case !q.floored:
				b.classes.close(h)
			}
		}
	}
}

// How many flows a decision by locality looks at, of all classes together, those whose turn is nearest; and how many
// requests of each.
const (
	nearFlows    = 16
	nearRequests = 8
)

// Locate says how to find how many lead blocks of a request's prompt an endpoint holds that has room. Without it
// locality does not matter.
func (q *Queues) Locate(held func(*Entry) int) { q.held = held }

// nearest returns which entry is next by locality, and the line whose turn it is: of the flows within a quantum of
// that, the request of whose prompt the most is held where there is room; of equal ones that of the first flow. At
// least one class must have room.
func (q *Queues) nearest(b *band, room func(*Entry) bool, quantum int64) (found *Entry, turn *line) {
	for done := false; !done; { // again, if a queue panicked
		q.change(b, func() {
			turn = q.next(b, room)
			found = turn.head
			if found.over < quantum {
				found = q.search(b, room, found, turn.rank+quantum)
			}
			done = true
		})
	}
	return found, turn
}

// search looks at the requests of the flows whose turn is nearest, up to a rank, for one of whose prompt more is held
// than of that of the first.
func (q *Queues) search(b *band, room func(*Entry) bool, first *Entry, most int64) *Entry {
	found, blocks, near := first, q.held(first), nearest{most: most, next: q.near[:0]}
	for h := range q.roomy(b, room) {
		near.add(h, 0)
	}
	for range nearFlows {
		l := near.take()
		if l == nil {
			break
		}
		list, ok := l.queue.(Lister)
		if !ok {
			continue
		}
		n := nearRequests
		list.List(func(e *Entry) bool {
			if held := q.held(e); held > blocks {
				found, blocks = e, held
			}
			n--
			return n > 0
		})
	}
	q.near = near.next
	return found
}

// nearest gives the lines of some heaps up to a rank, in their order.
type nearest struct {
	most int64
	next []spot // of which each line comes before all that are below it in its heap and were not given
}

// spot is a place in a heap.
type spot struct {
	of *lines
	at int
}

func (s spot) line() *line { return s.of.heap[s.at] }

// add adds a place, if it is one of the heap and its line is not beyond the rank.
func (n *nearest) add(of *lines, at int) {
	if at < len(of.heap) && of.heap[at].rank <= n.most {
		n.next = append(n.next, spot{of, at})
	}
}

// take returns the next line; nil = there is none.
func (n *nearest) take() *line {
	if len(n.next) == 0 {
		return nil
	}
	first := 0
	for i := range n.next {
		if n.next[i].line().before(n.next[first].line()) {
			first = i
		}
	}
	s, last := n.next[first], len(n.next)-1
	n.next[first] = n.next[last]
	n.next = n.next[:last]
	n.add(s.of, 2*s.at+1)
	n.add(s.of, 2*s.at+2)
	return s.line()
}
