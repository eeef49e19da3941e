package runtime

import (
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// Loop runs the actors that were spawned on it, one item at a time.
type Loop struct {
	sys   *System
	index int

	mu    sync.Mutex
	in    []item
	state loopState
	left  atomic.Int64 // items taken from in and not run yet
	kept  atomic.Int64 // items in the backlogs of its actors

	// All below belongs to whoever drains the loop.
	out      []item
	pos      int
	now      int64 // nanoseconds at which the item in hand began
	begin    int64 // those at which the next one begins, if the clock was read just before; 0 = it was not
	system   []systemItem
	settled  int // of these, how many were taken
	timers   timerHeap
	timerSeq uint64
	armed    int64
	alarm    *time.Timer
	ring     ring
	kinds    [256]seenKind // by address of the type
	rand     *rand.Rand
	hand     *mailbox // whose message is in hand, or who is being spawned
	arrival  Arrival
	props    *actor.Props
	root     *mailbox
	names    []string // of actors that have ended, for those to come
	named    uint64   // names made so far
	stats    loopStats
	bonds    []bond
	ringHash uint64

	watches   int    // of its actors
	overtakes uint64 // stepped mode
	from      uint32 // stepped mode: who posted the item in hand
}

// seenKind is a message type that the loop has seen, and its number.
type seenKind struct {
	of   reflect.Type
	kind Kind
}

type loopState uint8

const (
	idle    loopState = iota
	ready             // has items, waits for somebody who drains
	running           // somebody drains it
)

type itemKind uint8

const (
	itemUser itemKind = iota
	itemSpawn
	itemWatch
	itemUnwatch
	itemNotice
	itemTimers
	itemCall
)

// item is one place in an inbox, by value: a message costs no allocation of ours.
type item struct {
	box  *mailbox
	msg  any
	at   int64  // nanoseconds at which it was posted
	from uint32 // who posted it, in stepped mode; 0 = nobody on a loop
	kind itemKind
}

// systemItem is a message of protoactor's own. They come only from the loop itself, and are settled before the next item.
type systemItem struct {
	box *mailbox
	msg any
}

type loopStats struct {
	messages, dropped, panics, refused, handoffs, waitedNanos atomic.Uint64
}

const (
	smallInbox = 4096 // items; a larger buffer is given back once it is mostly empty
	mostKept   = 1024 // items that wait for one actor's supervisor, from which on work for it is refused
)

// post puts an item in the inbox; outside says that the caller is no actor, and drains. False means that the inbox is full.
func (l *Loop) post(it item, outside bool) bool {
	it.at = l.sys.clock.nanos()
	if at := l.sys.stepping; at != nil && it.from == 0 {
		it.from = uint32(at.hand.id)
	}
	l.mu.Lock()
	if (len(l.in)+int(l.left.Load()+l.kept.Load()) >= l.sys.cfg.HighWater || it.waiting() >= mostKept) && refusable(it) {
		l.mu.Unlock()
		l.stats.refused.Add(1)
		return false
	}
	l.in = append(l.in, it)
	woken := l.state == idle
	if woken {
		l.state = ready
	}
	l.mu.Unlock()
	if woken {
		l.sys.makeReady(l)
	}
	switch {
	case outside && woken:
		l.sys.drain(l, it.at)
	case outside:
		l.sys.drain(nil, 0)
	}
	return true
}

// waiting is how many items wait for the supervisor of whoever would handle this one.
func (it item) waiting() int64 {
	switch {
	case it.box == nil:
		return 0
	case it.kind == itemSpawn:
		return it.box.parent.kept.Load()
	}
	return it.box.kept.Load()
}

func refusable(it item) bool {
	m := it.msg
	if it.kind == itemSpawn {
		m = it.box.host.first()
	}
	_, ok := m.(interface{ Refusable() })
	return ok
}

// take makes the inbox the batch in hand. False means that there is nothing, and the loop is idle.
func (l *Loop) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.in) == 0 {
		l.state, l.begin = idle, 0
		return false
	}
	spare := l.out[:0]
	if cap(spare) > smallInbox && len(l.in) < cap(spare)/8 {
		spare = nil
	}
	l.out, l.in, l.pos = l.in, spare, 0
	l.left.Store(int64(len(l.out)))
	l.state = running
	return true
}

// step runs one item. False means that there is none, and the loop is idle.
func (l *Loop) step() bool {
	if l.pos == len(l.out) && !l.take() {
		return false
	}
	it := l.out[l.pos]
	l.out[l.pos] = item{}
	l.pos++
	l.left.Store(int64(len(l.out) - l.pos))
	l.run(it)
	return true
}

func (l *Loop) run(it item) {
	l.from = it.from
	if l.begin == 0 {
		l.now = l.sys.clock.nanos()
	} else { // it may have been posted since
		l.now, l.begin = max(l.now, l.begin, it.at), 0
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

// settle handles what protoactor told its own actors meanwhile: starts, stops, failures. What it handles may settle, too: an
// actor that resumes spawns the children that waited for it. The inner run takes all that is left, in order.
func (l *Loop) settle() {
	for l.settled < len(l.system) {
		s := l.system[l.settled]
		l.system[l.settled] = systemItem{}
		l.settled++
		s.box.invokeSystem(s.msg)
	}
	l.system, l.settled = l.system[:0], 0
}

// user gives one message to its actor and notes it in the ring.
func (l *Loop) user(box *mailbox, msg any, posted int64) {
	if box.closed.Load() {
		l.stats.dropped.Add(1)
		return
	}
	if box.suspended || box.inv == nil {
		box.keep(item{kind: itemUser, box: box, msg: msg, at: posted, from: l.from})
		return
	}
	waited := l.now - posted
	l.arrival = Arrival{Kind: l.kindOf(msg), Waited: time.Duration(waited), Messages: l.stats.messages.Load()}
	kind := l.arrival.Kind
	ok := box.invokeUser(msg)
	if l.ring.events != nil {
		end := l.sys.clock.nanos()
		took := end - l.now
		begin := l.now
		l.now = end
		if len(l.system) == 0 && !l.sys.clock.virtual { // nothing comes between this item and the next
			l.begin = end
		}
		if !ok {
			took = -took - 1
		}
		l.note(Event{Begin: begin, Waited: waited, Took: took, Actor: box.number, Message: kind, Kind: box.kind})
	}
	l.stats.messages.Add(1)
	l.stats.waitedNanos.Add(uint64(max(waited, 0)))
}

// note puts an event in the ring, and in stepped mode in the digest of the run.
func (l *Loop) note(e Event) {
	l.ring.add(e)
	if l.sys.clock.virtual {
		l.ringHash = foldEvent(l.ringHash, l.index, e)
	}
}

func (l *Loop) spawn(it item) {
	child := it.box
	parent := child.parent
	if parent.closed.Load() || child.closed.Load() || child.bound && child.under != parent.fallen.Load() {
		child.gone()
		l.stats.dropped.Add(1)
		return
	}
	if parent.suspended || parent.inv == nil {
		parent.keep(it)
		return
	}
	l.hand = child
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

// again puts items before all that the loop has to run.
func (l *Loop) again(items []item) {
	l.out = append(items, l.out[l.pos:]...)
	l.pos = 0
	l.left.Store(int64(len(l.out)))
}
