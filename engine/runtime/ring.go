package runtime

import (
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// Event is one message that a loop handled. It holds numbers only: System.KindName and ActorName have the names.
type Event struct {
	Begin   int64  // nanoseconds since the system started
	Waited  int64  // nanoseconds in the inbox
	Took    int64  // nanoseconds to handle; negative = it panicked after -Took-1
	Actor   uint64 // number of the actor
	Message Kind
	Kind    uint16 // of the actor
}

// record is what a loop keeps of the messages that it handled.
type record struct {
	ring  ring
	kinds [256]seenKind // a cache, by the address of the type
	named []string      // names of kinds, by number, as far as the loop has asked for them; never written to
	hash  uint64        // stepped mode: of all events so far
}

// seenKind is a message type that the loop has seen, and its number.
type seenKind struct {
	of   reflect.Type
	kind Kind
}

// kindOf returns the kind of a message. For a type that the loop has seen lately it takes no lock and looks in no map.
func (r *record) kindOf(known *names, msg any) Kind {
	t := reflect.TypeOf(msg)
	at := reflect.ValueOf(t).Pointer()
	seen := &r.kinds[(at>>5^at>>13)%uintptr(len(r.kinds))] // types stand at multiples of 32 bytes
	if seen.of != t {
		*seen = seenKind{t, known.kind(t)}
	}
	return seen.kind
}

// kindName returns the name of a kind that is known. It takes a lock only for the first kind that is new to the loop.
func (r *record) kindName(known *names, k Kind) string {
	if int(k) >= len(r.named) {
		r.named = known.all()
	}
	return r.named[k]
}

// ring is the flight recorder of one loop: it keeps the newest events, and overwrites the oldest.
type ring struct {
	events []Event // nil = none are kept; else the length is a power of two
	next   uint64  // events so far; the next one goes to next modulo the length
}

func newRing(size int) ring {
	n := 1
	for n < size {
		n *= 2
	}
	if size <= 0 {
		return ring{}
	}
	return ring{events: make([]Event, n)}
}

func (r *ring) add(e Event) {
	if r.events == nil {
		return
	}
	r.events[r.next&uint64(len(r.events)-1)] = e
	r.next++
}

// newest returns the newest events, at most so many, oldest first.
func (r *ring) newest(most int) []Event {
	n := min(r.next, uint64(len(r.events)), uint64(max(most, 0)))
	out := make([]Event, 0, n)
	for i := r.next - n; i < r.next; i++ {
		out = append(out, r.events[i&uint64(len(r.events)-1)])
	}
	return out
}

// view returns the newest events as a message carries them.
func (l *Loop) view(newest int) messages.Ring {
	events := l.record.ring.newest(newest)
	out := make([]messages.RingEvent, len(events))
	for i, e := range events {
		took, panicked := e.took()
		out[i] = messages.RingEvent{
			Begin: time.Duration(e.Begin), Waited: time.Duration(e.Waited), Took: took, Panicked: panicked,
			Actor: e.Actor, ActorKind: e.Kind, Message: uint16(e.Message),
		}
	}
	return messages.Ring{
		Loop: l.index, Read: time.Duration(l.sys.clock.nanos()),
		Events: messages.TakeList(out), Total: l.record.ring.next,
	}
}

// took returns how long the message took, and reports whether its handler panicked.
func (e Event) took() (time.Duration, bool) {
	if e.Took < 0 {
		return time.Duration(-e.Took - 1), true
	}
	return time.Duration(e.Took), false
}

// Lines returns a line of text for each event: when it began, which actor handled which message, how long the message
// waited, and how long it took.
func (s *System) Lines(events []Event) []string {
	lines := make([]string, len(events))
	for i, e := range events {
		took, panicked := e.took()
		end := ""
		if panicked {
			end = ", panicked"
		}
		lines[i] = fmt.Sprintf("%.6fs %s/%d %s, waited %s, took %s%s", time.Duration(e.Begin).Seconds(),
			s.ActorName(e.Kind), e.Actor, s.KindName(e.Message), time.Duration(e.Waited), took, end)
	}
	return lines
}

// names numbers message types and actor kinds in the order in which they are first seen.
type names struct {
	mu     sync.RWMutex
	types  map[reflect.Type]Kind
	names  []string
	actors map[string]uint16
	actor  []string
}

func newNames() *names {
	return &names{types: map[reflect.Type]Kind{}, names: []string{""}, actors: map[string]uint16{}, actor: []string{""}}
}

func (n *names) kind(t reflect.Type) Kind {
	n.mu.RLock()
	k, ok := n.types[t]
	n.mu.RUnlock()
	if ok {
		return k
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if k, ok := n.types[t]; ok {
		return k
	}
	k = Kind(len(n.names))
	n.types[t] = k
	n.names = append(n.names, t.Name())
	return k
}

// all returns the names of all kinds so far, by number. They must not be written to.
func (n *names) all() []string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.names
}

func (n *names) actorKind(name string) uint16 {
	n.mu.RLock()
	k, ok := n.actors[name]
	n.mu.RUnlock()
	if ok {
		return k
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if k, ok := n.actors[name]; ok {
		return k
	}
	k = uint16(len(n.actor))
	n.actors[name] = k
	n.actor = append(n.actor, name)
	return k
}

// KindName returns the name of a message type; "" if no such kind was seen.
func (s *System) KindName(k Kind) string {
	names := s.names.all()
	if int(k) >= len(names) {
		return ""
	}
	return names[k]
}

// ActorName returns the name of an actor kind; "" if there is none.
func (s *System) ActorName(k uint16) string {
	s.names.mu.RLock()
	defer s.names.mu.RUnlock()
	if int(k) >= len(s.names.actor) {
		return ""
	}
	return s.names.actor[k]
}

// clock is monotonic: nanoseconds since start, so that no jump of the wall clock reaches an actor.
type clock struct {
	start   time.Time
	virtual bool
	now     int64 // in stepped mode only
}

func (c *clock) nanos() int64 {
	if c.virtual {
		return c.now
	}
	return int64(time.Since(c.start))
}

func (c *clock) time(nanos int64) time.Time { return c.start.Add(time.Duration(nanos)) }
