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
	host   host
	id     uint64
	number uint64 // in rings: the id, or what the actor is about
	name   string // in protoactor's registry, under its parent's; "" = it is not there
	kind   uint16
	policy Policy

	closed    atomic.Bool   // takes no message any more
	fallen    atomic.Uint32 // incarnations that have ended
	bound     bool          // an actor asked for this one: it is born only under the incarnation that asked
	under     uint32        // fallen of the parent, when it was asked for
	ended     bool          // Stopped has run for the last time
	suspended bool          // a panic waits for its supervisor
	backlog   []item        // messages, and children to spawn, that came meanwhile, or before it was born
	kept      atomic.Int64  // how many those are
	failures  int           // panics since the last message that was handled well
	timers    *timer
	watchers  map[*mailbox]*notice  // who is told, and what
	watching  map[*mailbox]struct{} // whose deaths this actor waits for
	onEnd     []chan struct{}
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
		m.suspended = false
		m.release()
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
	m.suspended = true
	m.failures++
	m.cancelTimers() // the next incarnation did not set them
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
		l.sys.cfg.OnPanic(Panic{
			Actor: l.sys.ActorName(m.kind), ID: m.number, Message: message, Value: value, Stack: debug.Stack(),
			Recent: l.ring.newest(recentEvents),
		})
	}
}

// keep holds what came while the actor waits for its supervisor, or for its parent to give birth to it.
func (m *mailbox) keep(it item) {
	m.backlog = append(m.backlog, it)
	m.kept.Add(1)
	m.loop.kept.Add(1)
}

// release puts what was kept before all that the loop has to run: in order, and each an item that the budget counts.
func (m *mailbox) release() {
	if len(m.backlog) == 0 {
		return
	}
	m.loop.again(m.drop())
}

// drop gives what was kept, which is kept no longer.
func (m *mailbox) drop() []item {
	kept := m.backlog
	if len(kept) == 0 {
		return nil
	}
	m.backlog = nil
	m.kept.Store(0)
	m.loop.kept.Add(-int64(len(kept)))
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
	if m.watchers == nil {
		m.watchers = map[*mailbox]*notice{}
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

func (m *mailbox) notify(by *mailbox, n *notice) {
	by.loop.post(item{kind: itemNotice, box: by, msg: n, from: uint32(m.id)}, false)
}

// notice hears of a death, if the incarnation that asked is still there.
func (m *mailbox) notice(n *notice, posted int64) {
	if _, waits := m.watching[n.from]; !waits || n.to != m.fallen.Load() || m.suspended {
		return
	}
	delete(m.watching, n.from)
	m.loop.user(m, n.msg, posted)
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
	if m.name != "" {
		m.loop.names = append(m.loop.names, m.name)
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
