package runtime

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/signalbox-epp/signalbox/messages"
)

// Policy says what a panic does to an actor.
type Policy uint8

const (
	// StopOnPanic ends the actor: what it was about fails, and nothing else.
	StopOnPanic Policy = iota
	// RestartOnPanic begins a new incarnation with the first message; from the third panic in a row after a pause.
	RestartOnPanic
)

// Role is what the actors of one kind have in common.
type Role[M any] struct {
	Name   string // of the kind, in rings and reports
	Policy Policy
	New    func() Actor[M] // a new incarnation; runs on the actor's loop
	// Number names an actor of this kind in rings by what its first message is about, such as a request; nil = in order
	// of birth.
	Number func(first M) uint64
}

// Ref is an actor's address as the tree holds it, and the Sink that actors tell: Tell only enqueues.
type Ref[M any] struct{ box *mailbox }

// Tell gives the actor a message. It may report true for one that is never handled: the actor may die first.
func (r Ref[M]) Tell(m M) bool { return r.box.tell(m, false) }

// Alive reports whether the actor takes messages.
func (r Ref[M]) Alive() bool { return !r.box.closed.Load() }

// Port returns the actor's address for adapters.
func (r Ref[M]) Port() messages.Port[M] { return port[M](r) }

func (r Ref[M]) target() *mailbox { return r.box }

// port is an actor's address for adapters.
type port[M any] struct{ box *mailbox }

// Post gives the actor a message, and then runs loops that are runnable, a bounded number of items. Hold no lock.
func (p port[M]) Post(m M) bool { return p.box.tell(m, true) }

func (m *mailbox) tell(msg any, outside bool) bool {
	if m.closed.Load() {
		return false
	}
	return m.loop.post(item{box: m, msg: msg}, outside)
}

// Parent is an address under which actors can be spawned.
type Parent interface{ target() *mailbox }

// Spawn makes an actor under parent, on its loop, with its first message: one item, taken or refused as a whole. The
// address is valid at once. If parent falls before the child is born, it never is: the next incarnation of parent asks
// for what it needs. For actors; others use Start.
func Spawn[M any](parent Parent, role Role[M], first M) (Ref[M], bool) {
	box := newHost(parent.target(), role, first)
	box.birth = birth{bound: true, under: box.parent.fallen.Load()}
	return Ref[M]{box}, box.enter(false)
}

// Start is Spawn for what is no actor: it runs loops that are runnable before it returns.
func Start[M any](parent Parent, role Role[M], first M) (Ref[M], bool) {
	box := newHost(parent.target(), role, first)
	return Ref[M]{box}, box.enter(true)
}

func (m *mailbox) enter(outside bool) bool {
	if m.parent.closed.Load() || !m.loop.post(item{kind: itemSpawn, box: m}, outside) {
		m.closed.Store(true)
		m.ended = true
		return false
	}
	return true
}

// host is the typed side of a mailbox.
type host interface {
	actor.Actor
	first() any
}

// typed is one actor: its mailbox, its incarnation and the Context that it is given.
type typed[M any] struct {
	mailbox
	role  Role[M]
	begin M
	actor Actor[M]
	live  bool // an incarnation has begun and Stopped has not run for it
}

func newHost[M any](parent *mailbox, role Role[M], first M) *mailbox {
	t := &typed[M]{role: role, begin: first}
	sys := parent.loop.sys
	t.loop, t.parent, t.host, t.policy = parent.loop, parent, t, role.Policy
	t.id = sys.nextID.Add(1)
	t.number = t.id
	if role.Number != nil {
		t.number = role.Number(first)
	}
	t.kind = sys.names.actorKind(role.Name)
	return &t.mailbox
}

func (t *typed[M]) first() any { return t.begin }

// Receive is what protoactor calls, for user messages and for its own.
func (t *typed[M]) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *mailbox:
		m.loop.spawnChild(ctx, m)
	case *actor.Started:
		t.onStarted()
	case *actor.Restarting:
		t.end()
		t.incarnationEnded()
	case *actor.Stopped:
		t.end()
		t.gone()
		t.forget()
	case *actor.Stopping, *actor.Terminated:
	default:
		t.actor.Receive(t, m.(M))
	}
}

func (t *typed[M]) onStarted() {
	again := t.actor != nil
	t.actor, t.live = t.incarnation(again), true
	if again {
		t.actor.Receive(t, t.begin)
	}
}

// incarnation makes the actor that begins now.
func (t *typed[M]) incarnation(again bool) Actor[M] {
	fresh := t.role.New()
	if i := t.loop.sys.cfg.Intercept; i != nil {
		return i.Incarnation(Birth{t.role.Name, t.begin, again}, fresh).(Actor[M])
	}
	return fresh
}

// end runs Stopped once for the incarnation, whatever it does.
func (t *typed[M]) end() {
	if !t.live {
		return
	}
	t.live = false
	defer func() {
		if r := recover(); r != nil {
			t.report("Stopped", r)
		}
	}()
	t.actor.Stopped(t)
}

// forget drops what the actor was. protoactor's list of a parent's children keeps the places of those that ended until
// others take them: as many as ever lived at a time.
func (t *typed[M]) forget() {
	var none M
	t.begin, t.actor = none, nil
}

func (t *typed[M]) Now() time.Time { return t.loop.sys.clock.time(t.loop.hand.now) }
func (t *typed[M]) Elapsed() time.Duration {
	return time.Duration(t.loop.sys.clock.nanos() - t.loop.hand.now)
}
func (t *typed[M]) Arrival() Arrival { return t.loop.hand.arrival }
func (t *typed[M]) Told(outside string, number uint64, m any) (Kind, time.Duration) {
	l := t.loop
	kind, at := l.record.kindOf(l.sys.names, m), l.sys.clock.nanos()
	l.note(Event{Begin: at, Actor: number, Message: kind, Kind: l.sys.names.actorKind(outside)})
	return kind, time.Duration(at - l.hand.now)
}
func (t *typed[M]) Ring(newest int) messages.Ring { return t.loop.view(newest) }
func (t *typed[M]) Rand() *rand.Rand              { return t.loop.rand }
func (t *typed[M]) Self() messages.Sink[M]        { return Ref[M]{&t.mailbox} }
func (t *typed[M]) Port() messages.Port[M]        { return port[M]{&t.mailbox} }
func (t *typed[M]) Stop()                         { t.stop() }

func (t *typed[M]) After(d time.Duration, m M) Timer {
	if !t.live {
		return &timer{index: -1}
	}
	return t.loop.after(&t.mailbox, d, m)
}

func (t *typed[M]) Watch(target Target, m M) {
	watched := target.(Parent).target()
	if !t.live {
		return
	}
	if t.watches.of == nil {
		t.watches.of = map[*mailbox]struct{}{}
	}
	t.watches.of[watched] = struct{}{}
	asked := &watch{by: &t.mailbox, notice: &notice{from: watched, to: t.fallen.Load(), msg: m}}
	watched.loop.post(item{kind: itemWatch, box: watched, msg: asked}, false)
}

func typeName(msg any) string {
	if m, ok := msg.(*mailbox); ok {
		return "spawn of " + m.loop.sys.ActorName(m.kind)
	}
	if t := reflect.TypeOf(msg); t != nil {
		return t.Name()
	}
	return ""
}

// sortedBoxes returns the keys in the order of birth, so that no order comes from a map.
func sortedBoxes[V any](m map[*mailbox]V) []*mailbox {
	if len(m) == 0 {
		return nil
	}
	out := make([]*mailbox, 0, len(m))
	for b := range m {
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b *mailbox) int { return cmp.Compare(a.id, b.id) })
	return out
}

// population is the actors that a loop carries.
type population struct {
	props   *actor.Props // of all: the mailbox and the host are those in hand
	root    *mailbox     // the parent of what is spawned on the loop directly
	names   []string     // of actors that have ended, for those to come
	named   uint64       // names made so far
	bonds   []bond       // each once
	watches int          // that its actors' watchers keep, all together
}

// bond is a Lineage in numbers.
type bond struct {
	kind, parent uint16
	policy       Policy
}

// bear notes which kind of parent got which kind of child. There are as many bonds as kinds of actors on the loop, so
// that looking is cheap.
func (l *Loop) bear(child *mailbox) {
	b := bond{kind: child.kind, policy: child.policy}
	if child.parent != nil {
		b.parent = child.parent.kind
	}
	if !slices.Contains(l.actors.bonds, b) {
		l.actors.bonds = append(l.actors.bonds, b)
	}
}

func (l *Loop) spawnChild(ctx actor.Context, child *mailbox) {
	l.hand.box = child
	child.name = l.name()
	if _, err := ctx.SpawnNamed(l.actors.props, child.name); err != nil {
		panic(err)
	}
	l.bear(child)
}

// name returns the newest of those that ended actors have left, or one more: protoactor's registry has thousands of
// maps, and a name that was there a moment ago is the one whose place is still in the processor's cache. No item both
// ends an actor and gives its name to another, so nothing that is on its way to the first can reach the second.
func (l *Loop) name() string {
	if n := len(l.actors.names); n > 0 {
		name := l.actors.names[n-1]
		l.actors.names = l.actors.names[:n-1]
		return name
	}
	l.actors.named++
	return strconv.FormatUint(l.actors.named, 36)
}
