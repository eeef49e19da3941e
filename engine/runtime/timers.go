package runtime

import (
	"container/heap"
	"time"
)

// timer is a message that is due later. Only its loop touches it.
type timer struct {
	at    int64    // nanoseconds since the start at which it is due
	seq   uint64   // orders timers that are due at the same time by when they were set
	box   *mailbox // the actor that set it
	msg   any      // for the actor; or a func() of the runtime
	index int      // in the heap; -1 = not there
	next  *timer   // in box.timers
	prev  *timer   // in box.timers
}

// Cancel takes the message back. Only the actor that set the timer may call it.
func (t *timer) Cancel() bool {
	if t.index < 0 {
		return false
	}
	heap.Remove(&t.box.loop.timers.heap, t.index)
	t.box.unlink(t)
	return true
}

// timers holds the timers of a loop's actors. While there are any, the alarm is armed for no later than the first of
// them is due.
type timers struct {
	heap  timerHeap
	seq   uint64      // of the newest timer
	alarm *time.Timer // posts itemTimers; nil before the first
	armed int64       // nanoseconds at which the alarm goes off; 0 = it does not
}

type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}

// after sets a timer of an actor. It is called on the actor's loop only.
func (l *Loop) after(box *mailbox, d time.Duration, msg any) *timer {
	l.timers.seq++
	t := &timer{at: l.hand.now + max(int64(d), 0), seq: l.timers.seq, box: box, msg: msg}
	heap.Push(&l.timers.heap, t)
	box.link(t)
	if l.timers.heap[0] == t {
		l.arm(t.at)
	}
	return t
}

// arm has the alarm go off no later than at. One that goes off before any timer is due is armed again by fire.
func (l *Loop) arm(at int64) {
	if l.sys.clock.virtual || l.timers.armed != 0 && l.timers.armed <= at {
		return
	}
	l.timers.armed = at
	d := time.Duration(at - l.sys.clock.nanos())
	if l.timers.alarm == nil {
		l.timers.alarm = time.AfterFunc(d, func() { l.post(item{kind: itemTimers}, true) })
		return
	}
	l.timers.alarm.Reset(d)
}

// fire runs the first timer that is due. If another one is due, it posts a further item for it, so that the budget
// counts each of them.
func (l *Loop) fire() {
	l.timers.armed = 0
	if len(l.timers.heap) > 0 && l.timers.heap[0].at <= l.hand.now {
		due := heap.Pop(&l.timers.heap).(*timer)
		msg := due.msg
		due.box.unlink(due)
		if call, ok := msg.(func()); ok {
			call()
		} else {
			l.user(due.box, msg, due.at)
		}
		l.settle()
	}
	switch {
	case len(l.timers.heap) == 0:
	case l.timers.heap[0].at <= l.sys.clock.nanos():
		l.post(item{kind: itemTimers}, false)
	default:
		l.arm(l.timers.heap[0].at)
	}
}

func (m *mailbox) link(t *timer) {
	t.next = m.timers
	if m.timers != nil {
		m.timers.prev = t
	}
	m.timers = t
}

func (m *mailbox) unlink(t *timer) {
	if t.prev != nil {
		t.prev.next = t.next
	} else if m.timers == t {
		m.timers = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	}
	t.next, t.prev, t.msg = nil, nil, nil // a timer that an actor keeps holds nothing
}

func (m *mailbox) cancelTimers() {
	for m.timers != nil {
		t := m.timers
		if t.index >= 0 {
			heap.Remove(&m.loop.timers.heap, t.index)
		}
		m.unlink(t)
	}
}
