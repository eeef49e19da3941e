package runtime

import (
	"runtime/debug"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// mailbox is an actor's place in its loop: it implements actor.Mailbox, but the loop's inbox is its queue. Apart from closed
// all of it belongs to the loop.
type mailbox struct {
	loop   *Loop
	parent *mailbox
	inv    actor.MessageInvoker
	self   func() // stops the protoactor side; set with the first incarnation
	host   host
	id     uint64
	kind   uint16
	policy Policy

	closed    atomic.Bool   // takes no message any more
	fallen    atomic.Uint32 // incarnations that have ended
	bound     bool          // an actor asked for this one: it is born only under the incarnation that asked
	under     uint32        // fallen of the parent, when it was asked for
	ended     bool          // Stopped has run for the last time
	suspended bool          // a panic waits for its supervisor, or its birth for that of its parent
	broken    bool          // the incarnation panicked: nothing reaches it any more
	backlog   []any         // messages, and children to spawn, that came meanwhile
	failures  int           // panics since the last message that was handled well
	timers    *timer
	watchers  map[*mailbox]any      // who is told, and what
	watching  map[*mailbox]struct{} // whose deaths this actor waits for
	onEnd     []chan struct{}
}

type watch struct {
	by     *mailbox
	notice any
}

type notice struct {
	from *mailbox
	msg  any
}

// PostUserMessage is for protoactor; our own messages never pass it.
func (m *mailbox) PostUserMessage(x any) { m.loop.post(item{box: m, msg: x}, false) }

// PostSystemMessage comes from the loop itself only: parents and children share a loop.
func (m *mailbox) PostSystemMessage(x any) {
	m.loop.system = append(m.loop.system, systemItem{box: m, msg: x})
}
func (m *mailbox) RegisterHandlers(inv actor.MessageInvoker, _ actor.Dispatcher) { m.inv = inv }
func (m *mailbox) Start()                                                        {}
func (m *mailbox) UserMessageCount() int                                         { return len(m.backlog) }

// invokeUser is false when the handler panicked.
func (m *mailbox) invokeUser(msg any) (ok bool) {
	defer m.guard(msg)
	l := m.loop
	_, spawned := msg.(*mailbox)
	if !spawned {
		l.hand = m
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
		if !m.broken { // else it was sent for an incarnation that panicked as it began
			m.resume()
		}
	default:
		if m.inv != nil {
			m.loop.hand = m
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
	m.suspended, m.broken = true, true
	m.failures++
	if m.policy == StopOnPanic {
		m.closed.Store(true)
	}
	m.report(typeName(msg), r)
	m.inv.EscalateFailure(r, m)
}

// report counts a panic and tells whoever wants to know. On the goroutine that panicked.
func (m *mailbox) report(message string, value any) {
	l := m.loop
	l.stats.panics.Add(1)
	if l.sys.cfg.OnPanic != nil {
		l.sys.cfg.OnPanic(Panic{Actor: l.sys.ActorName(m.kind), ID: m.id, Message: message, Value: value, Stack: debug.Stack()})
	}
}

// exists says whether the actor was born, or waits to be until its parent is up again.
func (m *mailbox) exists() bool { return m.inv != nil || m.suspended }

// keep holds what came while the actor waits for its supervisor.
func (m *mailbox) keep(x any) { m.backlog = append(m.backlog, x) }

func (m *mailbox) resume() {
	m.suspended = false
	for len(m.backlog) > 0 && !m.suspended && !m.closed.Load() {
		x := m.backlog[0]
		m.backlog = m.backlog[1:]
		if it, ok := x.(item); ok {
			m.loop.spawn(it)
			continue
		}
		m.loop.user(m, x, m.loop.now)
	}
	if len(m.backlog) == 0 {
		m.backlog = nil
	}
}

// stop ends the actor once the item in hand is done.
func (m *mailbox) stop() {
	if m.closed.Swap(true) && m.ended {
		return
	}
	if m.self != nil {
		m.self()
	}
}

func (m *mailbox) addWatcher(w *watch) {
	if m.ended || !m.exists() {
		m.notify(w.by, w.notice)
		return
	}
	if m.watchers == nil {
		m.watchers = map[*mailbox]any{}
	}
	if _, again := m.watchers[w.by]; !again {
		m.loop.watches++
	}
	m.watchers[w.by] = w.notice
}

func (m *mailbox) dropWatcher(by *mailbox) {
	if _, ok := m.watchers[by]; ok {
		m.loop.watches--
		delete(m.watchers, by)
	}
}

func (m *mailbox) notify(by *mailbox, msg any) {
	by.loop.post(item{kind: itemNotice, box: by, msg: &notice{from: m, msg: msg}, from: uint32(m.id)}, false)
}

// incarnationEnded tells the watchers and drops what the incarnation had asked for.
func (m *mailbox) incarnationEnded() {
	m.fallen.Add(1)
	m.cancelTimers()
	for _, by := range sortedBoxes(m.watchers) {
		m.notify(by, m.watchers[by])
	}
	m.loop.watches -= len(m.watchers)
	m.watchers = nil
	for _, of := range sortedBoxes(m.watching) {
		of.loop.post(item{kind: itemUnwatch, box: of, msg: m}, false)
	}
	m.watching = nil
}

// gone runs when there will be no further incarnation.
func (m *mailbox) gone() {
	m.closed.Store(true)
	m.ended = true
	for _, x := range m.backlog {
		if it, ok := x.(item); ok {
			it.box.gone() // a child that waited to be born
		}
	}
	m.backlog = nil
	m.incarnationEnded()
	for _, c := range m.onEnd {
		close(c)
	}
	m.onEnd = nil
}
