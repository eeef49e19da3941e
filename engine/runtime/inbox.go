package runtime

import (
	"sync"
	"sync/atomic"
)

// inbox holds what was posted to a loop and has not been taken. Any goroutine posts. The goroutine that drains the loop
// takes everything at once.
//
//	          post               taken from the queue
//	┌──────┐ ──────► ┌──────────┐ ────────────────────► ┌─────────┐
//	│ idle │         │ runnable │                       │ running │ ──┐
//	└──────┘         └──────────┘ ◄──────────────────── └─────────┘   │
//	    ▲                         the budget is spent,                │
//	    │                         or another loop is runnable         │
//	    └─────────────────────────────────────────────────────────────┘
//	                     nothing is posted, and the batch has run
//
// A runnable loop stands in the System's run queue exactly once. A running loop is drained by exactly one goroutine. In
// stepped mode there is no run queue: Step looks at every inbox itself.
type inbox struct {
	mu    sync.Mutex
	items []item // under mu; empty unless awake
	awake bool   // under mu: runnable or running

	left atomic.Int64 // items of the batch that have not run
	kept atomic.Int64 // items in the backlogs of the loop's actors
}

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

// item is what a loop runs. Inboxes hold items by value, so that posting a message allocates nothing for it.
type item struct {
	box  *mailbox // the actor that it is for; nil for itemTimers and itemCall
	msg  any      // by kind: a message, *notice, *watch, *mailbox or func(); nil for itemSpawn and itemTimers
	at   int64    // nanoseconds at which it was posted
	from uint32   // the id of the actor that posted it, in stepped mode; 0 = none
	kind itemKind
}

const (
	smallInbox = 4096 // items; a larger buffer is given back once less than an eighth of it is used
	mostKept   = 1024 // items in one actor's backlog, from which on work for it is refused
)

// post puts an item in the inbox. outside means that the caller is no actor, so that it runs loops afterwards. post
// returns false if the inbox is full and the item may be refused.
func (l *Loop) post(it item, outside bool) bool {
	it.at = l.sys.clock.nanos()
	if poster := l.sys.stepped.loop; poster != nil && it.from == 0 {
		it.from = uint32(poster.hand.box.id)
	}
	in := &l.inbox
	in.mu.Lock()
	full := len(in.items)+int(in.left.Load()+in.kept.Load()) >= l.sys.cfg.HighWater || it.waiting() >= mostKept
	if full && refusable(it) {
		in.mu.Unlock()
		l.stats.refused.Add(1)
		return false
	}
	in.items = append(in.items, it)
	woken := !in.awake
	in.awake = true
	in.mu.Unlock()
	if woken {
		l.sys.makeRunnable(l)
	}
	switch {
	case outside && woken:
		l.sys.drain(l, it.at)
	case outside:
		l.sys.drain(nil, 0)
	}
	return true
}

// waiting returns the size of the backlog of the actor that would handle this item.
func (it item) waiting() int64 {
	switch {
	case it.box == nil:
		return 0
	case it.kind == itemSpawn:
		return it.box.parent.backlog.size.Load()
	}
	return it.box.backlog.size.Load()
}

func refusable(it item) bool {
	m := it.msg
	if it.kind == itemSpawn {
		m = it.box.host.first()
	}
	_, ok := m.(interface{ Refusable() })
	return ok
}

// take makes everything that was posted the batch. It returns false if there is nothing: then the loop is idle.
func (l *Loop) take() bool {
	in, b := &l.inbox, &l.batch
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.items) == 0 {
		in.awake, l.hand.next = false, 0
		return false
	}
	spare := b.items[:0]
	if cap(spare) > smallInbox && len(in.items) < cap(spare)/8 {
		spare = nil
	}
	b.items, in.items, b.pos = in.items, spare, 0
	in.left.Store(int64(len(b.items)))
	return true
}

// size returns how many items wait: posted, and taken but not run.
func (l *Loop) size() int {
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	return len(l.inbox.items) + int(l.inbox.left.Load())
}
