package runtime

import (
	"runtime/debug"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// mailbox is an actor's place in its loop. It implements actor.Mailbox, but the loop's inbox is its queue. Any
// goroutine may read what is atomic; the rest belongs to the loop.
type mailbox struct {
	loop   *Loop
	parent *mailbox             // nil for the loop's root
	inv    actor.MessageInvoker // nil before the actor has begun
	host   host
	policy Policy
	identity
	life
	birth   birth
	backlog backlog
	watches watches
	timers  *timer          // those that are set: a list through next
	onEnd   []chan struct{} // closed when the actor has ended
}

// identity is what an actor is called.
type identity struct {
	id     uint64
	number uint64 // in rings: what Role.Number returned, or the id
	name   string // in protoactor's registry, below its parent's; "" = it is not there
	kind   uint16 // number of the role's name
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
	closed    atomic.Bool   // it takes no message any more; set with ended, or before
	ended     bool          // there will be no further incarnation
	suspended bool          // it has panicked, and its supervisor has not yet resumed or stopped it
	fallen    atomic.Uint32 // number of incarnations that have ended
	failures  int           // panics since the last message that was handled without one
}

// birth is the condition under which an actor begins.
type birth struct {
	bound bool   // another actor asked for it by Spawn: it begins only under the incarnation that asked
	under uint32 // fallen of the parent at that time; meaningful if bound
}

// backlog holds the messages, and the children to spawn, that came while the actor was suspended or had not begun.
type backlog struct {
	items []item
	size  atomic.Int64 // len(items), for goroutines that post
}

// watches holds an actor's watches, in both directions.
type watches struct {
	by map[*mailbox]*notice  // the actors that watch this one, each with the notice that it gets
	of map[*mailbox]struct{} // the actors that this one watches
}

// watch asks to be told of the end of an incarnation.
type watch struct {
	by     *mailbox
	notice *notice
}

// notice says that an incarnation of a watched actor has ended.
type notice struct {
	from *mailbox // the watched actor
	to   uint32   // fallen of the watcher when it asked: a later incarnation is not told
	msg  any      // what the watcher is told
}

// PostUserMessage is part of actor.Mailbox. Our own messages do not pass through it.
func (m *mailbox) PostUserMessage(x any) { m.loop.post(item{box: m, msg: x}, false) }

// PostSystemMessage is called on the loop only, because parents and children share a loop.
func (m *mailbox) PostSystemMessage(x any) {
	m.loop.system.items = append(m.loop.system.items, systemItem{box: m, msg: x})
}
func (m *mailbox) RegisterHandlers(inv actor.MessageInvoker, _ actor.Dispatcher) { m.inv = inv }
func (m *mailbox) Start()                                                        {}
func (m *mailbox) UserMessageCount() int                                         { return len(m.backlog.items) }

// invokeUser has the actor handle a message, and returns false if the handler panicked.
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

// guard turns a panic into a failure for the supervisor. It suspends the actor at once, so that no message reaches it
// in the state that the panic left.
func (m *mailbox) guard(msg any) {
	r := recover()
	if r == nil {
		return
	}
	m.suspended = true
	m.failures++
	m.cancelTimers() // the next incarnation sets its own
	if m.policy == StopOnPanic {
		m.closed.Store(true)
	}
	m.report(typeName(msg), r)
	m.inv.EscalateFailure(r, m)
}

// report counts a panic and calls OnPanic, on the goroutine that panicked.
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

// keep puts an item in the backlog of an actor that is suspended or has not begun.
func (m *mailbox) keep(it item) {
	m.backlog.items = append(m.backlog.items, it)
	m.backlog.size.Add(1)
	m.loop.inbox.kept.Add(1)
}

// release puts the backlog before all that the loop has to run, in its order. The budget counts each item.
func (m *mailbox) release() {
	if len(m.backlog.items) == 0 {
		return
	}
	m.loop.prepend(m.takeBacklog())
}

// takeBacklog empties the backlog, and returns what was in it.
func (m *mailbox) takeBacklog() []item {
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

// notice tells the actor that one it watches has ended, if the incarnation that asked is still there.
func (m *mailbox) notice(n *notice, posted int64) {
	if _, waits := m.watches.of[n.from]; !waits || n.to != m.fallen.Load() || m.suspended {
		return
	}
	delete(m.watches.of, n.from)
	m.loop.user(m, n.msg, posted)
}

// incarnationEnded tells the watchers, and drops the incarnation's timers and watches.
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

// gone ends the actor for good: there will be no further incarnation.
func (m *mailbox) gone() {
	m.closed.Store(true)
	m.ended = true
	if m.name != "" {
		m.loop.actors.names = append(m.loop.actors.names, m.name)
		m.name = ""
	}
	for _, it := range m.takeBacklog() {
		if it.kind == itemSpawn {
			it.box.gone() // a child that had not begun
		}
	}
	m.incarnationEnded()
	for _, c := range m.onEnd {
		close(c)
	}
	m.onEnd = nil
}
