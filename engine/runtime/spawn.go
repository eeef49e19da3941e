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
	// StopOnPanic ends the actor.
	StopOnPanic Policy = iota
	// RestartOnPanic begins a new incarnation, which is given the actor's first message again. From the third panic in
	// a row on it begins after a pause, which doubles each time.
	RestartOnPanic
)

// Role holds what the actors of one kind have in common.
type Role[M any] struct {
	Name   string // of the kind, in rings and reports
	Policy Policy
	New    func() Actor[M] // returns a new incarnation; runs on the actor's loop
	// Number returns the number that an actor of this kind has in rings, from its first message, such as the number of
	// a request; nil = actors are numbered in the order in which they were spawned.
	Number func(first M) uint64
}

// Ref is an actor's address: a Target, a Parent, and the Sink that other actors tell.
type Ref[M any] struct{ box *mailbox }

// Tell enqueues a message. It may return true for one that is never handled, because the actor may end first.
func (r Ref[M]) Tell(m M) bool { return r.box.tell(m, false) }

// Alive reports whether the actor takes messages.
func (r Ref[M]) Alive() bool { return !r.box.closed.Load() }

// Port returns the actor's address for adapters.
func (r Ref[M]) Port() messages.Port[M] { return port[M](r) }

func (r Ref[M]) target() *mailbox { return r.box }

// port is an actor's address for adapters.
type port[M any] struct{ box *mailbox }

// Post enqueues a message, and then runs runnable loops for a bounded number of items. Hold no lock when you call it.
func (p port[M]) Post(m M) bool { return p.box.tell(m, true) }

func (m *mailbox) tell(msg any, outside bool) bool {
	if m.closed.Load() {
		return false
	}
	return m.loop.post(item{box: m, msg: msg}, outside)
}

// Parent is an address under which actors can be spawned.
type Parent interface{ target() *mailbox }

// Spawn makes an actor under parent, on parent's loop, and gives it its first message. Actors use it; others use Start.
// The loop's inbox takes or refuses both as one item, and Spawn returns false if it refuses. The address is valid at
// once. If parent panics before the child has begun, the child never begins, for parent's next incarnation spawns what
// it needs itself.
func Spawn[M any](parent Parent, role Role[M], first M) (Ref[M], bool) {
	box := newHost(parent.target(), role, first)
	box.birth = birth{bound: true, under: box.parent.fallen.Load()}
	return Ref[M]{box}, box.enter(false)
}

// Start is Spawn for callers that are no actors. It runs runnable loops before it returns.
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

// typed is one actor: its mailbox, its present incarnation, and the Context that it is given.
type typed[M any] struct {
	mailbox
	role  Role[M]
	begin M        // the first message of each incarnation
	actor Actor[M] // the newest incarnation; nil before the first
	live  bool     // an incarnation has begun, and Stopped has not run for it
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

// incarnation returns a new incarnation, or what the Interceptor puts in its place.
func (t *typed[M]) incarnation(again bool) Actor[M] {
	fresh := t.role.New()
	if i := t.loop.sys.cfg.Intercept; i != nil {
		return i.Incarnation(Birth{t.role.Name, t.begin, again}, fresh).(Actor[M])
	}
	return fresh
}

// end runs Stopped once for the present incarnation, and survives a panic in it.
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

// forget drops the references to the first message and the actor, because protoactor keeps ended children reachable: a
// parent's list of children holds on to their places until others take them.
func (t *typed[M]) forget() {
	var none M
	t.begin, t.actor = none, nil
}

func (t *typed[M]) Now() time.Time { return t.loop.sys.clock.time(t.loop.hand.now) }
func (t *typed[M]) Elapsed() time.Duration {
	return time.Duration(t.loop.sys.clock.nanos() - t.loop.hand.now)
}
func (t *typed[M]) Arrival() Arrival       { return t.loop.hand.arrival }
func (t *typed[M]) Kind(m any) Kind        { return t.loop.record.kindOf(t.loop.sys.names, m) }
func (t *typed[M]) KindName(k Kind) string { return t.loop.record.kindName(t.loop.sys.names, k) }
func (t *typed[M]) Told(outside string, number uint64, told Kind) time.Duration {
	l, at := t.loop, t.loop.sys.clock.nanos()
	l.note(Event{Begin: at, Actor: number, Message: told, Kind: l.sys.names.actorKind(outside)})
	return time.Duration(at - l.hand.now)
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

// sortedBoxes returns the keys by the actors' ids, so that no order depends on that of a map.
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

// population is what a loop keeps of its actors.
type population struct {
	props    *actor.Props // of all actors: its mailbox and host are those of hand.box
	root     *mailbox     // the parent of the actors that have no other
	names    []string     // of actors that have ended, to be used again
	named    uint64       // number of names made so far
	lineages []lineage    // of all actors so far, each once
	watches  int          // entries in watches.by of all actors
}

// lineage is a Lineage with numbers in place of names.
type lineage struct {
	kind, parent uint16 // parent 0 = none
	policy       Policy
}

// noteLineage notes which kind of parent has which kind of child. There are only a few lineages on a loop, so that it
// costs little.
func (l *Loop) noteLineage(child *mailbox) {
	found := lineage{kind: child.kind, policy: child.policy}
	if child.parent != nil {
		found.parent = child.parent.kind
	}
	if !slices.Contains(l.actors.lineages, found) {
		l.actors.lineages = append(l.actors.lineages, found)
	}
}

func (l *Loop) spawnChild(ctx actor.Context, child *mailbox) {
	l.hand.box = child
	child.name = l.name()
	if _, err := ctx.SpawnNamed(l.actors.props, child.name); err != nil {
		panic(err)
	}
	l.noteLineage(child)
}

// name returns the name of the actor that ended last, or a new one. protoactor's registry has thousands of maps, and
// the memory for a name that was used a moment ago is still in the processor's cache. No item both ends an actor and
// gives its name to another one, so a message to the first cannot reach the second.
func (l *Loop) name() string {
	if n := len(l.actors.names); n > 0 {
		name := l.actors.names[n-1]
		l.actors.names = l.actors.names[:n-1]
		return name
	}
	l.actors.named++
	return strconv.FormatUint(l.actors.named, 36)
}
