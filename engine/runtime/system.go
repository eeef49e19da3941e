package runtime

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// Mode says who runs the loops.
type Mode uint8

const (
	Combining Mode = iota // the goroutines that post from outside
	Stepped               // the caller of Step, with a virtual clock
)

// Config are the settings of a System.
type Config struct {
	Loops     int         // at least 1; 0 = 1
	Mode      Mode        // default Combining
	Budget    int         // items that a poster runs before it hands over; 0 = 64
	HighWater int         // items in an inbox from which on work is refused; 0 = 65536
	Ring      int         // events kept for each loop, rounded up to a power of two; 0 = 4096, negative = none
	Seed      uint64      // of the random sources; in stepped mode also of the order
	Start     time.Time   // in stepped mode: what the clock says at first
	Shuffle   bool        // in stepped mode: items of one inbox overtake others, but none that the same actor told the same one
	OnPanic   func(Panic) // told of each panic, on the loop that it happened on; may be nil
	Intercept Interceptor // for tests that plant faults; nil = nothing is intercepted
}

// Panic is one panic of an actor.
type Panic struct {
	Actor   string
	ID      uint64
	Message string // type of the message in hand
	Value   any
	Stack   []byte
	Recent  []Event // the newest that the loop had handled before, oldest first; Lines writes them
}

const recentEvents = 32 // that a panic is reported with

// System is a set of loops and the actors on them.
type System struct {
	cfg    Config
	clock  clock
	loops  []*Loop
	actors *actor.ActorSystem
	names  *names

	stepping *Loop // stepped mode: the loop whose item is in hand

	nextID atomic.Uint64

	mu      sync.Mutex
	ready   []*Loop
	nready  atomic.Int64
	helpers int
	wg      sync.WaitGroup
	order   *rand.Rand // stepped mode
}

// New makes a system and starts its loops.
func New(cfg Config) *System {
	cfg.Loops = max(cfg.Loops, 1)
	cfg.Budget = orDefault(cfg.Budget, 64)
	cfg.HighWater = orDefault(cfg.HighWater, 1<<16)
	cfg.Ring = orDefault(cfg.Ring, 4096)
	s := &System{cfg: cfg, names: newNames(), clock: clock{start: time.Now(), virtual: cfg.Mode == Stepped}}
	if s.clock.virtual {
		s.clock.start = cfg.Start
		s.order = rand.New(rand.NewPCG(cfg.Seed, 0))
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
	l := &Loop{sys: s, index: i, ring: newRing(s.cfg.Ring)}
	l.rand = rand.New(rand.NewPCG(s.cfg.Seed, uint64(i)+1))
	l.props = actor.PropsFromProducer(func() actor.Actor { return l.hand.host },
		actor.WithMailbox(func() actor.Mailbox { return l.hand }),
		actor.WithSupervisor(supervisor{l}))
	l.root = &mailbox{loop: l, host: root{l}, policy: RestartOnPanic, kind: s.names.actorKind("loop")}
	l.hand = l.root
	if _, err := s.actors.Root.SpawnNamed(l.props, "loop"+strconv.Itoa(i)); err != nil {
		panic(err) // the name is new in a system that is new
	}
	l.settle()
	l.bear(l.root)
	return l
}

// root is the parent of what is spawned on a loop directly. It holds nothing and decides nothing.
type root struct{ l *Loop }

func (root) first() any { return nil }

func (r root) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *mailbox:
		r.l.spawnChild(ctx, m)
	case *actor.Stopped:
		r.l.root.gone()
	}
}

// supervisor decides by the child's policy alone: no clock, no budget that a poison request could use up.
type supervisor struct{ l *Loop }

func (s supervisor) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, _, msg any) {
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
