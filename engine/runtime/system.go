package runtime

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// Mode says which goroutines run the loops.
type Mode uint8

const (
	Combining Mode = iota // the goroutines that post from outside
	Stepped               // the caller of Step, with a virtual clock
)

// Config holds the settings of a System.
type Config struct {
	Loops     int         // at least 1; 0 = 1
	Mode      Mode        // default Combining
	Budget    int         // items that a poster runs before it hands over; 0 = 64
	HighWater int         // items in an inbox from which on work is refused; 0 = 65536
	Ring      int         // events kept for each loop, rounded up to a power of two; 0 = 4096, negative = none
	Seed      uint64      // of the random sources; in stepped mode also of the order in which loops run
	Start     time.Time   // stepped mode: the time at which the clock starts
	Shuffle   bool        // stepped mode: items of one inbox overtake each other, as far as item.precedes allows
	OnPanic   func(Panic) // called with each panic, on the loop on which it happened; nil = not called
	Intercept Interceptor // for tests that plant faults; nil = nothing is intercepted
}

// Panic is one panic of an actor.
type Panic struct {
	Actor   string
	ID      uint64
	Message string // type of the message in hand
	Value   any
	Stack   []byte
	Recent  []Event // the newest events of the loop, oldest first; System.Lines prints them
}

const recentEvents = 32 // in a Panic

// System is a set of loops and the actors on them.
type System struct {
	cfg     Config
	clock   clock
	loops   []*Loop
	actors  *actor.ActorSystem
	names   *names
	nextID  atomic.Uint64 // of an actor
	queue   runQueue
	stepped stepped
}

// New returns a system whose loops wait for work.
func New(cfg Config) *System {
	cfg.Loops = max(cfg.Loops, 1)
	cfg.Budget = orDefault(cfg.Budget, 64)
	cfg.HighWater = orDefault(cfg.HighWater, 1<<16)
	cfg.Ring = orDefault(cfg.Ring, 4096)
	s := &System{cfg: cfg, names: newNames(), clock: clock{start: time.Now(), virtual: cfg.Mode == Stepped}}
	if s.clock.virtual {
		s.clock.start = cfg.Start
		s.stepped.order = rand.New(rand.NewPCG(cfg.Seed, 0))
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	s.actors = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet }))
	for i := range cfg.Loops {
		s.loops = append(s.loops, s.newLoop(i))
	}
	return s
}

func orDefault(n, d int) int {
	if n == 0 {
		return d
	}
	return n
}

func (s *System) newLoop(i int) *Loop {
	l := &Loop{sys: s, index: i, rand: rand.New(rand.NewPCG(s.cfg.Seed, uint64(i)+1))}
	l.record.ring = newRing(s.cfg.Ring)
	l.actors.props = actor.PropsFromProducer(func() actor.Actor { return l.hand.box.host },
		actor.WithMailbox(func() actor.Mailbox { return l.hand.box }),
		actor.WithSupervisor(supervisor{l}))
	l.actors.root = &mailbox{loop: l, host: root{l}, policy: RestartOnPanic}
	l.actors.root.kind = s.names.actorKind("loop")
	l.hand.box = l.actors.root
	if _, err := s.actors.Root.SpawnNamed(l.actors.props, "loop"+strconv.Itoa(i)); err != nil {
		panic(err) // the name is new in a system that is new
	}
	l.settle()
	l.noteLineage(l.actors.root)
	return l
}

// Loops returns how many loops there are.
func (s *System) Loops() int { return len(s.loops) }

// Root returns the root of loop i, which is the parent of actors that have no other.
func (s *System) Root(i int) Parent { return Ref[any]{s.loops[i].actors.root} }

// Now returns the time by the system's clock, which no jump of the wall clock moves.
func (s *System) Now() time.Time { return s.clock.time(s.clock.nanos()) }

// Nanos returns the same time in nanoseconds since the start.
func (s *System) Nanos() int64 { return s.clock.nanos() }

// Rand returns loop i's source. Only what runs on the loop may use it.
func (s *System) Rand(i int) *rand.Rand { return s.loops[i].rand }

// End stops an actor and its children, once what is in its inbox has run. The channel closes when it has ended.
func End(actor Target) <-chan struct{} {
	box := actor.(Parent).target()
	done := make(chan struct{})
	box.loop.post(item{kind: itemCall, msg: func() {
		if box.ended {
			close(done)
			return
		}
		box.onEnd = append(box.onEnd, done)
		box.stop()
	}}, true)
	return done
}

// Close ends all actors that are left, and then the loops. Nothing may be told to any actor afterwards.
func (s *System) Close(ctx context.Context) error {
	var late error
	for i, l := range s.loops {
		ended := End(Ref[any]{l.actors.root})
		for s.clock.virtual && s.pending() {
			s.Step()
		}
		select {
		case <-ended:
		case <-ctx.Done():
			late = fmt.Errorf("loop %d still has actors: %w", i, ctx.Err())
		}
	}
	if late != nil {
		return late
	}
	for _, l := range s.loops {
		if !s.clock.virtual {
			s.stopAlarm(l)
		}
	}
	s.queue.wg.Wait()
	return nil
}

// stopAlarm stops the alarm of a loop, and returns when it has.
func (s *System) stopAlarm(l *Loop) {
	done := make(chan struct{})
	l.post(item{kind: itemCall, msg: func() {
		if l.timers.alarm != nil {
			l.timers.alarm.Stop()
		}
		close(done)
	}}, true)
	<-done
}

// Stats counts what one loop did since the start.
type Stats struct {
	Messages uint64 // handled
	Dropped  uint64 // messages and spawns for actors that had ended
	Panics   uint64
	Refused  uint64        // messages and spawns that a full inbox did not take
	Handoffs uint64        // times that a spent budget left the loop to a helper
	Waited   time.Duration // in the inbox, all messages together
	Inbox    int           // items that wait at the moment
}

// Stats returns the figures of loop i. Any goroutine may call it.
func (s *System) Stats(i int) Stats {
	l := s.loops[i]
	return Stats{
		Messages: l.stats.messages.Load(), Dropped: l.stats.dropped.Load(), Panics: l.stats.panics.Load(),
		Refused: l.stats.refused.Load(), Handoffs: l.stats.handoffs.Load(),
		Waited: time.Duration(l.stats.waitedNanos.Load()), Inbox: l.size(),
	}
}

// root is the parent of the actors that have no other on a loop. It holds nothing and decides nothing.
type root struct{ l *Loop }

func (root) first() any { return nil }

func (r root) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *mailbox:
		r.l.spawnChild(ctx, m)
	case *actor.Stopped:
		r.l.actors.root.gone()
	}
}

// supervisor decides by the child's policy and its panics in a row. It has no budget of restarts that one bad request
// could use up for all.
type supervisor struct{ l *Loop }

//nolint:revive // protoactor prescribes the signature
func (s supervisor) HandleFailure(
	_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, _, msg any,
) {
	box := msg.(*mailbox)
	switch {
	case box.ended: // it had stopped itself before it panicked
	case box.policy == StopOnPanic:
		sup.StopChildren(child)
	case box.failures < 3:
		sup.RestartChildren(child)
	default:
		pause := min(10*time.Millisecond<<min(box.failures, 9), 5*time.Second)
		s.l.after(box, pause, func() { sup.RestartChildren(child) })
	}
}
