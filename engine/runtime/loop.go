package runtime

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Loop runs the actors that were spawned on it, one item at a time. Any goroutine may post to its inbox and read its
// stats. The other fields belong to the one goroutine that drains it.
type Loop struct {
	sys    *System
	index  int
	inbox  inbox
	stats  loopStats
	batch  batch
	hand   hand
	system systemQueue
	timers timers
	actors population
	record record
	rand   *rand.Rand
}

// batch holds the items that were taken from the inbox. 0 <= pos <= len(items); those before pos have run and are zero.
type batch struct {
	items     []item
	pos       int
	overtakes uint64 // stepped mode: items that ran before older ones
}

func (b *batch) left() int { return len(b.items) - b.pos }

// hand says what the loop has in hand: the item that runs.
type hand struct {
	now     int64    // nanoseconds at which it began
	next    int64    // nanoseconds at which the next item begins, if the clock was just read; 0 = read it then
	box     *mailbox // the actor that handles it, or that it spawns
	from    uint32   // item.from
	arrival Arrival  // of the message
}

// systemQueue holds messages of protoactor's own. They come only from the loop itself, and all of them are handled
// before the next item.
type systemQueue struct {
	items   []systemItem
	settled int // 0 <= settled <= len(items); those before it were handled and are zero
}

type systemItem struct {
	box *mailbox
	msg any
}

// loopStats counts since the start.
type loopStats struct {
	messages, dropped, panics, refused, handoffs, waitedNanos atomic.Uint64
}

// step runs one item. It returns false if there is none: then the loop is idle.
func (l *Loop) step() bool {
	b := &l.batch
	if b.pos == len(b.items) && !l.take() {
		return false
	}
	it := b.items[b.pos]
	b.items[b.pos] = item{}
	b.pos++
	l.inbox.left.Store(int64(b.left()))
	l.run(it)
	return true
}

func (l *Loop) run(it item) {
	h := &l.hand
	h.from = it.from
	if h.next == 0 {
		h.now = l.sys.clock.nanos()
	} else { // the item may have been posted after the clock was read
		h.now, h.next = max(h.now, h.next, it.at), 0
	}
	switch it.kind {
	case itemUser:
		l.user(it.box, it.msg, it.at)
	case itemSpawn:
		l.spawn(it)
	case itemNotice:
		it.box.notice(it.msg.(*notice), it.at)
	case itemWatch:
		it.box.addWatcher(it.msg.(*watch))
	case itemUnwatch:
		it.box.dropWatcher(it.msg.(*mailbox))
	case itemTimers:
		l.fire()
	case itemCall:
		it.msg.(func())()
	}
	l.settle()
}

// settle handles the system messages that have come meanwhile: starts, stops, failures. It may be called while it runs,
// by what it handles: the inner call then handles all that is left, in order.
func (l *Loop) settle() {
	q := &l.system
	for q.settled < len(q.items) {
		s := q.items[q.settled]
		q.items[q.settled] = systemItem{}
		q.settled++
		s.box.invokeSystem(s.msg)
	}
	q.items, q.settled = q.items[:0], 0
}

// user gives one message to its actor and notes it in the ring.
func (l *Loop) user(box *mailbox, msg any, posted int64) {
	if box.closed.Load() {
		l.stats.dropped.Add(1)
		return
	}
	if box.suspended || box.inv == nil {
		box.keep(item{kind: itemUser, box: box, msg: msg, at: posted, from: l.hand.from})
		return
	}
	h := &l.hand
	waited := h.now - posted
	kind := l.record.kindOf(l.sys.names, msg)
	h.arrival = Arrival{Kind: kind, Waited: time.Duration(waited), Messages: l.stats.messages.Load()}
	ok := box.invokeUser(msg)
	if l.record.ring.events != nil {
		end := l.sys.clock.nanos()
		took, began := end-h.now, h.now
		h.now = end
		if len(l.system.items) == 0 && !l.sys.clock.virtual { // nothing comes between this item and the next
			h.next = end
		}
		if !ok {
			took = -took - 1
		}
		l.note(Event{Begin: began, Waited: waited, Took: took, Actor: box.number, Message: kind, Kind: box.kind})
	}
	l.stats.messages.Add(1)
	l.stats.waitedNanos.Add(uint64(max(waited, 0)))
}

// note puts an event in the ring, and in stepped mode in the digest of the run.
func (l *Loop) note(e Event) {
	l.record.ring.add(e)
	if l.sys.clock.virtual {
		l.record.hash = foldEvent(l.record.hash, l.index, e)
	}
}

// spawn begins an actor, and gives it its first message. If its parent has ended, or a bound actor's parent has
// panicked since, it ends the actor before it begins.
func (l *Loop) spawn(it item) {
	child := it.box
	parent := child.parent
	if parent.closed.Load() || child.closed.Load() || child.birth.bound && child.birth.under != parent.fallen.Load() {
		child.gone()
		l.stats.dropped.Add(1)
		return
	}
	if parent.suspended || parent.inv == nil {
		parent.keep(it)
		return
	}
	l.hand.box = child
	if !parent.invokeUser(child) {
		child.gone()
		return
	}
	l.settle()
	l.user(child, child.host.first(), it.at)
	if !child.suspended {
		child.release()
	}
}

// prepend puts items before all others that the loop has to run.
func (l *Loop) prepend(items []item) {
	b := &l.batch
	b.items, b.pos = append(items, b.items[b.pos:]...), 0
	l.inbox.left.Store(int64(len(b.items)))
}
