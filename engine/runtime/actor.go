package runtime

import (
	"math/rand/v2"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// Actor handles one message at a time, on one loop. It never blocks. A new incarnation after a panic is a new value.
type Actor[M any] interface {
	Receive(ctx Context[M], m M)
	// Stopped runs once at the end of each incarnation, whether it was stopped, panicked or was shut down. It gives
	// back what the actor holds and answers what it owes. In it After and Watch of ctx have no effect.
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
	// Kind returns the kind of a message.
	Kind(m any) Kind
	// KindName returns the name of a message type that Kind or Arrival returned.
	KindName(k Kind) string
	// Told notes in the ring that this actor told a message to a receiver outside the runtime, such as a stream.
	// outside names the kind of the receiver, and number is its number. Told returns how long the handling of the
	// message in hand has taken so far.
	Told(outside string, number uint64, told Kind) time.Duration
	// Ring returns the loop's newest events, at most so many. The message in hand is not among them yet.
	Ring(newest int) messages.Ring
	// Rand returns the loop's random source, seeded in stepped mode.
	Rand() *rand.Rand
	// Port returns the actor's address for an adapter that is to answer it.
	Port() messages.Port[M]
	// Self returns the actor's address for other actors.
	Self() messages.Sink[M]
	// Stop ends the actor when the handler returns. What is queued for it is dropped, and from now on Tell returns
	// false.
	Stop()
	// After tells the actor m once d has passed, unless this incarnation has ended or the timer was cancelled.
	After(d time.Duration, m M) Timer
	// Watch tells the actor notice exactly once, when the present incarnation of target ends, or at once if the target
	// has ended already.
	Watch(target Target, notice M)
}

// Target is an actor that can be watched or ended. Only addresses of this runtime are Targets.
type Target interface{ Alive() bool }

// Timer is a message that is due later.
type Timer interface {
	// Cancel takes the message back. It returns false if the message is on its way or was handled.
	Cancel() bool
}

// Arrival says how the message in hand came to its actor.
type Arrival struct {
	Kind     Kind          // of the message
	Waited   time.Duration // in the inbox
	Messages uint64        // handled by this loop before it
}

// Kind is a message type, as a number that rings and records can hold. KindName gives its name.
type Kind uint16

// Interceptor replaces actors and addresses by others, such as fakes that fail now and then. Each method returns a
// value of the type that it was given: Actor[M], or messages.Sink[M].
type Interceptor interface {
	// Incarnation replaces an actor that begins. It runs on the actor's loop, before the first message.
	Incarnation(birth Birth, actor any) any
	// Address replaces the address of an actor of the kind to that an actor of the kind from is given by Handed.
	Address(from, to string, sink any) any
}

// Birth says which incarnation begins.
type Birth struct {
	Kind  string // the name of the actor's role
	First any    // the message that it begins with
	Again bool   // it is not the actor's first incarnation: the one before panicked
}

// Handed returns the address of an actor of the kind to, for an actor of the kind from. It is the address itself unless
// an Interceptor replaces it.
func Handed[M any](s *System, from, to string, sink messages.Sink[M]) messages.Sink[M] {
	if s.cfg.Intercept == nil {
		return sink
	}
	return s.cfg.Intercept.Address(from, to, sink).(messages.Sink[M])
}
