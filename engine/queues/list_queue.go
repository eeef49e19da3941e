package queues

import "github.com/signalbox-epp/signalbox/engine/flow"

// ListQueue keeps requests in the order of their arrival. A request that was put back has its former place. Every
// operation takes the same time however many wait, except that putting back takes longer the more are before it.
type ListQueue struct{}

// Validate returns nil: there are no parameters.
func (*ListQueue) Validate() error { return nil }

// Can returns what the queue can do.
func (*ListQueue) Can() flow.Ability {
	return flow.ArrivalOrder | flow.Removal | flow.TailPeek | flow.Listing
}

// New returns an empty queue.
func (*ListQueue) New() flow.Queue { return new(list) }

// list links entries in both directions: Links[0] is the one before, Links[1] the one behind.
type list struct {
	head, tail *flow.Entry
	n          int
}

func (l *list) Head() *flow.Entry { return l.head }
func (l *list) Tail() *flow.Entry { return l.tail }
func (l *list) Len() int          { return l.n }

// List calls yield with the entries in their order.
func (l *list) List(yield func(*flow.Entry) bool) {
	for e := l.head; e != nil && yield(e); e = e.Links[1] {
	}
}

// Push enters an entry before the first one that arrived later. Those that were put back are older than nearly all, so
// the search begins at the head for them, and at the tail for newcomers.
func (l *list) Push(e *flow.Entry) {
	l.n++
	if l.tail == nil || l.tail.Number < e.Number {
		l.insert(l.tail, e, nil)
		return
	}
	behind := l.head
	for behind.Number < e.Number {
		behind = behind.Links[1]
	}
	l.insert(behind.Links[0], e, behind)
}

func (l *list) insert(before, e, behind *flow.Entry) {
	e.Links = [2]*flow.Entry{before, behind}
	l.link(before, e)
	l.link(e, behind)
}

// link makes two entries neighbours; nil = the end of the list.
func (l *list) link(before, behind *flow.Entry) {
	if before == nil {
		l.head = behind
	} else {
		before.Links[1] = behind
	}
	if behind == nil {
		l.tail = before
	} else {
		behind.Links[0] = before
	}
}

func (l *list) Remove(e *flow.Entry) {
	l.n--
	l.link(e.Links[0], e.Links[1])
	e.Links = [2]*flow.Entry{}
}
