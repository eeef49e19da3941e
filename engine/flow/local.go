package flow

// How many flows a decision by locality looks at, of those whose turn is near, and how many requests of each.
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
			turn = b.next(room)
			found = turn.head
			if found.over < quantum {
				found = q.search(b, room, found, turn.rank+quantum)
			}
			done = true
		})
	}
	return found, turn
}

// search looks at the lines up to a rank.
func (q *Queues) search(b *band, room func(*Entry) bool, first *Entry, most int64) *Entry {
	found, blocks, left := first, q.held(first), nearFlows
	for _, c := range b.classes {
		has := c.room(room)
		c.within(0, most, func(l *line) bool {
			n := nearRequests
			list, ok := l.queue.(Lister)
			if !ok || !has(l) {
				return ok
			}
			list.List(func(e *Entry) bool {
				if held := q.held(e); held > blocks {
					found, blocks = e, held
				}
				n--
				return n > 0
			})
			left--
			return left > 0
		})
	}
	return found
}

// within calls yield with the lines from an index on whose rank is not above most, those before others that come after
// them in the heap, until it returns false.
func (c *class) within(i int, most int64, yield func(*line) bool) bool {
	if i >= len(c.lines) || c.lines[i].rank > most {
		return true
	}
	return yield(c.lines[i]) && c.within(2*i+1, most, yield) && c.within(2*i+2, most, yield)
}
