package runtime

import (
	"math/rand/v2"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// Actor handles one message at a time, on one loop. It never blocks. A new incarnation after a panic is a new value.
type Actor[M any] interface {
	Receive(ctx Context[M], m M)
	// Stopped runs once in each incarnation, however it ends: stopped, crashed or shut down. It gives back what the
	// actor holds and answers what it owes. Only Now, Self and Rand of ctx do anything in it.
	Stopped(ctx Context[M])
}

// Context is what an actor may use while it handles one message. It is not valid afterwards.
type Context[M any] interface {
	// Now returns the time at which the handling of this message began.
	Now() time.Time
	// Elapsed returns how long the handling of this message has taken so far.
	Elapsed() time.Duration
	// Arrival returns what the loop noted about the message in hand.
	Arrival() Arrival
	// Told notes in the ring a message that this actor told to one that lives outside the runtime, such as a stream,
	// and gives its kind, and how long the handling of the message in hand had taken by then. number is that of the
	// receiver.
	Told(outside string, number uint64, m any) (Kind, time.Duration)
	// Ring returns what the loop did last, at most newest events. The message in hand is not among them yet.
	Ring(newest int) messages.Ring
	// Rand returns the loop's random source, seeded in stepped mode.
	Rand() *rand.Rand
	// Port returns the actor's address for an adapter that shall answer it.
	Port() messages.Port[M]
	// Self returns the actor's address for other actors.
	Self() messages.Sink[M]
	// Stop ends the actor when the handler returns: what is queued for it is dropped, Tell reports false from now on.
	Stop()
	// After tells the actor m once d has passed, unless it has ended or the timer was cancelled.
	After(d time.Duration, m M) Timer
	// Watch tells the actor notice exactly once when this incarnation of target has ended, at once if it has already.
	Watch(target Target, notice M)
}

// Target is what can be watched: an address of this runtime.
type Target interface{ Alive() bool }

// Timer is a message to come.
type Timer interface {
	// Cancel takes the message back. It reports false if the message is on its way or was handled.
	Cancel() bool
}

// Arrival says how the message in hand came to its actor.
type Arrival struct {
	Kind     Kind          // of the message
	Waited   time.Duration // in the inbox; precise to the sender's clock reading
	Messages uint64        // handled by this loop before it
}

// Kind is a message type, as a number that the ring can hold. KindName gives its name.
type Kind uint16

// Interceptor puts something else in the place of actors and of addresses, such as a double that fails now and then.
// What it returns has the type of what it was given: Actor[M], or messages.Sink[M].
type Interceptor interface {
	// Incarnation is told of each incarnation on the loop on which it begins, before its first message.
	Incarnation(birth Birth, actor any) any
	// Address is told of each address that Handed hands on.
	Address(from, to string, sink any) any
}

// Birth says which incarnation begins.
type Birth struct {
	Kind  string // the name of the actor's role
	First any    // the message that it begins with
	Again bool   // after an incarnation that fell
}

// Handed returns the address of an actor of the kind to, as an actor of the kind from is given it.
func Handed[M any](s *System, from, to string, sink messages.Sink[M]) messages.Sink[M] {
	if s.cfg.Intercept == nil {
		return sink
	}
	return s.cfg.Intercept.Address(from, to, sink).(messages.Sink[M])
}
