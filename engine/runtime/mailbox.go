package runtime

import (
	"runtime/debug"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// mailbox is an actor's place in its loop: it implements actor.Mailbox, but the loop's inbox is its queue. What is
// atomic may be read by any goroutine; the rest belongs to the loop.
type mailbox struct {
	loop   *Loop
	parent *mailbox
	inv    actor.MessageInvoker // nil before the actor is born
	host   host
	policy Policy
	identity
	life
	birth   birth
	backlog backlog
	watches watches
	timers  *timer // a list through next
	onEnd   []chan struct{}
}

// identity is what an actor is called.
type identity struct {
	id     uint64
	number uint64 // in rings: the id, or what the actor is about
	name   string // in protoactor's registry, under its parent's; "" = it is not there
	kind   uint16
}

// life is how far an actor has come.
//
//	             its item is run              it panics
//	┌──────────┐ ───────────────► ┌───────┐ ────────────────────► ┌───────────┐
//	│ accepted │                  │ alive │                       │ suspended │
//	└──────────┘                  └───────┘ ◄──────────────────── └───────────┘
//	      │                           │      its supervisor begins an   │
//	      │ its parent ended          │      incarnation anew           │ StopOnPanic,
//	      │ or fell                   │ Stop, End, or its               │ or its parent ends
//	      ▼                           ▼ parent ends                     ▼
//	┌─────────────────────────────────────────────────────────────────────────┐
//	│ ended                                                                   │
//	└─────────────────────────────────────────────────────────────────────────┘
//
// What comes for an actor that is accepted or suspended goes to its backlog; what comes for one that is closed is
// dropped. An actor is closed from the moment at which its end is certain, until it has ended.
type life struct {
	closed    atomic.Bool   // takes no message any more; set with ended, or before
	ended     bool          // Stopped has run for the last time
	suspended bool          // a panic waits for its supervisor
	fallen    atomic.Uint32 // incarnations that have ended
	failures  int           // panics since the last message that was handled well
}

// birth is the condition of an actor's first incarnation.
type birth struct {
	bound bool   // an actor asked for this one: it is born only under the incarnation that asked
	under uint32 // fallen of the parent, when it was asked for
}

// backlog is what came while the actor was suspended, or before it was born: messages, and children to spawn.
type backlog struct {
	items []item
	size  atomic.Int64 // of items, read by whatever posts
}

// watches are the notices of deaths, in both directions.
type watches struct {
	by map[*mailbox]*notice  // the actors that are told of this one's death, and what
	of map[*mailbox]struct{} // the actors whose deaths this one waits for
}

type watch struct {
	by     *mailbox
	notice *notice
}

type notice struct {
	from *mailbox
	to   uint32 // incarnations of the watcher that had ended when it asked
	msg  any
}

// PostUserMessage is for protoactor; our own messages never pass it.
func (m *mailbox) PostUserMessage(x any) { m.loop.post(item{box: m, msg: x}, false) }

// PostSystemMessage comes from the loop itself only: parents and children share a loop.
func (m *mailbox) PostSystemMessage(x any) {
	m.loop.system.items = append(m.loop.system.items, systemItem{box: m, msg: x})
}
func (m *mailbox) RegisterHandlers(inv actor.MessageInvoker, _ actor.Dispatcher) { m.inv = inv }
func (m *mailbox) Start()                                                        {}
func (m *mailbox) UserMessageCount() int                                         { return len(m.backlog.items) }

// invokeUser reports false if the handler panicked.
func (m *mailbox) invokeUser(msg any) (ok bool) {
	defer m.guard(msg)
	l := m.loop
	_, spawned := msg.(*mailbox)
	if !spawned {
		l.hand.box = m
	}
	m.inv.InvokeUserMessage(msg)
	if !spawned {
		m.failures = 0
	}
	return true
}

func (m *mailbox) invokeSystem(msg any) {
	defer m.guard(msg)
	switch msg.(type) {
	case *actor.SuspendMailbox:
		m.suspended = true
	case *actor.ResumeMailbox:
		m.suspended = false
		m.release()
	default:
		if m.inv != nil {
			m.loop.hand.box = m
			m.inv.InvokeSystemMessage(msg)
		}
	}
}

// guard turns a panic into a failure for the supervisor. The actor is suspended at once: nothing reaches a broken one.
func (m *mailbox) guard(msg any) {
	r := recover()
	if r == nil {
		return
	}
	m.suspended = true
	m.failures++
	m.cancelTimers() // the next incarnation did not set them
	if m.policy == StopOnPanic {
		m.closed.Store(true)
	}
	m.report(typeName(msg), r)
	m.inv.EscalateFailure(r, m)
}

// report counts a panic and tells OnPanic of it, on the goroutine that panicked.
func (m *mailbox) report(message string, value any) {
	l := m.loop
	l.stats.panics.Add(1)
	if l.sys.cfg.OnPanic != nil {
		l.sys.cfg.OnPanic(Panic{
			Actor: l.sys.ActorName(m.kind), ID: m.number, Message: message, Value: value, Stack: debug.Stack(),
			Recent: l.record.ring.newest(recentEvents),
		})
	}
}

// keep holds what came while the actor waits for its supervisor, or for its parent to give birth to it.
func (m *mailbox) keep(it item) {
	m.backlog.items = append(m.backlog.items, it)
	m.backlog.size.Add(1)
	m.loop.inbox.kept.Add(1)
}

// release puts what was kept before all that the loop has to run: in order, and each an item that the budget counts.
func (m *mailbox) release() {
	if len(m.backlog.items) == 0 {
		return
	}
	m.loop.again(m.drop())
}

// drop returns what was kept, which is kept no longer.
func (m *mailbox) drop() []item {
	kept := m.backlog.items
	if len(kept) == 0 {
		return nil
	}
	m.backlog.items = nil
	m.backlog.size.Store(0)
	m.loop.inbox.kept.Add(-int64(len(kept)))
	return kept
}

// stop ends the actor once the item in hand is done.
func (m *mailbox) stop() {
	if m.closed.Swap(true) && m.ended {
		return
	}
	if m.inv != nil {
		m.PostSystemMessage(stopMessage)
	}
}

var stopMessage = &actor.Stop{}

func (m *mailbox) addWatcher(w *watch) {
	if m.ended {
		m.notify(w.by, w.notice)
		return
	}
	if m.watches.by == nil {
		m.watches.by = map[*mailbox]*notice{}
	}
	if _, again := m.watches.by[w.by]; !again {
		m.loop.actors.watches++
	}
	m.watches.by[w.by] = w.notice
}

func (m *mailbox) dropWatcher(by *mailbox) {
	if _, ok := m.watches.by[by]; ok {
		m.loop.actors.watches--
		delete(m.watches.by, by)
	}
}

func (m *mailbox) notify(by *mailbox, n *notice) {
	by.loop.post(item{kind: itemNotice, box: by, msg: n, from: uint32(m.id)}, false)
}

// notice gives the actor a notice of a death, if the incarnation that asked is still there.
func (m *mailbox) notice(n *notice, posted int64) {
	if _, waits := m.watches.of[n.from]; !waits || n.to != m.fallen.Load() || m.suspended {
		return
	}
	delete(m.watches.of, n.from)
	m.loop.user(m, n.msg, posted)
}

// incarnationEnded tells the watchers and drops what the incarnation had asked for.
func (m *mailbox) incarnationEnded() {
	m.fallen.Add(1)
	m.cancelTimers()
	for _, by := range sortedBoxes(m.watches.by) {
		m.notify(by, m.watches.by[by])
	}
	m.loop.actors.watches -= len(m.watches.by)
	m.watches.by = nil
	for _, watched := range sortedBoxes(m.watches.of) {
		watched.loop.post(item{kind: itemUnwatch, box: watched, msg: m}, false)
	}
	m.watches.of = nil
}

// gone runs when there will be no further incarnation.
func (m *mailbox) gone() {
	m.closed.Store(true)
	m.ended = true
	if m.name != "" {
		m.loop.actors.names = append(m.loop.actors.names, m.name)
		m.name = ""
	}
	for _, it := range m.drop() {
		if it.kind == itemSpawn {
			it.box.gone() // a child that waited to be born
		}
	}
	m.incarnationEnded()
	for _, c := range m.onEnd {
		close(c)
	}
	m.onEnd = nil
}
