package runtime_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-epp/signalbox/engine/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// note is the one message of these tests: a verb, and who sent it with which number.
type note struct {
	verb   string
	from   int
	number int
	work   bool
}

type workNote struct{ note }

func (workNote) Refusable() {}

type noteMsg interface{ isNote() }

func (note) isNote() {}

// logger is an actor that writes down what it hears and obeys verbs.
type logger struct {
	log   *journal
	onMsg func(ctx runtime.Context[noteMsg], n note)
}

type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	l := j.lines
	j.lines = nil
	return l
}

func (l *logger) Receive(ctx runtime.Context[noteMsg], m noteMsg) {
	n, ok := m.(note)
	if !ok {
		n = m.(workNote).note
	}
	switch n.verb {
	case "panic":
		panic("asked to")
	case "stop":
		ctx.Stop()
	}
	l.log.add("%s%d", n.verb, n.number)
	if l.onMsg != nil {
		l.onMsg(ctx, n)
	}
}

func (l *logger) Stopped(runtime.Context[noteMsg]) { l.log.add("stopped") }

func role(log *journal, policy runtime.Policy, on func(runtime.Context[noteMsg], note)) runtime.Role[noteMsg] {
	return runtime.Role[noteMsg]{Name: "logger", Policy: policy, New: func() runtime.Actor[noteMsg] { return &logger{log, on} }}
}

func start(t *testing.T, cfg runtime.Config) *runtime.System {
	t.Helper()
	s := runtime.New(cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func stepped(t *testing.T) *runtime.System {
	return start(t, runtime.Config{Mode: runtime.Stepped, Seed: 1, Start: time.Unix(1_800_000_000, 0)})
}

func run(s *runtime.System) {
	for s.Step() {
		continue
	}
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("log: %q, want %q", got, want)
	}
}

func TestFirstMessageComesFirstAndAddressIsValidAtOnce(t *testing.T) {
	s, log := stepped(t), new(journal)
	a, ok := runtime.Spawn(s.Root(0), role(log, runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
	if !ok || !a.Tell(note{verb: "then", number: 1}) {
		t.Fatal("refused")
	}
	run(s)
	same(t, log.take(), "born0", "then1")
}

func TestStopDropsWhatIsQueued(t *testing.T) {
	s, log := stepped(t), new(journal)
	a, _ := runtime.Spawn(s.Root(0), role(log, runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
	a.Tell(note{verb: "stop"})
	a.Tell(note{verb: "late"})
	run(s)
	same(t, log.take(), "born0", "stop0", "stopped")
	if a.Tell(note{verb: "later"}) || a.Alive() {
		t.Error("a dead actor took a message")
	}
}

func TestPanicUnderStopPolicyEndsOnlyItsActor(t *testing.T) {
	s, log, other := stepped(t), new(journal), new(journal)
	a, _ := runtime.Spawn(s.Root(0), role(log, runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
	b, _ := runtime.Spawn(s.Root(0), role(other, runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
	a.Tell(note{verb: "panic"})
	a.Tell(note{verb: "late"})
	b.Tell(note{verb: "fine"})
	run(s)
	same(t, log.take(), "born0", "stopped")
	same(t, other.take(), "born0", "fine0")
}

func TestPanicUnderRestartPolicyLosesTheMessageInHandOnly(t *testing.T) {
	s, log := stepped(t), new(journal)
	a, _ := runtime.Spawn(s.Root(0), role(log, runtime.RestartOnPanic, nil), noteMsg(note{verb: "born"}))
	a.Tell(note{verb: "panic"})
	a.Tell(note{verb: "next"})
	run(s)
	same(t, log.take(), "born0", "stopped", "born0", "next0")
}

func TestRestartsBackOffAndNeverEnd(t *testing.T) {
	s, log := stepped(t), new(journal)
	a, _ := runtime.Spawn(s.Root(0), role(log, runtime.RestartOnPanic, nil), noteMsg(note{verb: "born"}))
	for range 40 {
		a.Tell(note{verb: "panic"})
	}
	a.Tell(note{verb: "alive"})
	run(s)
	lines := log.take()
	if n := len(lines); lines[n-1] != "alive0" {
		t.Errorf("last line %q, want alive0", lines[n-1])
	}
	if p := s.Stats(0).Panics; p != 40 {
		t.Errorf("%d panics counted, want 40", p)
	}
}

func TestWatcherIsToldOnceOfEachDeath(t *testing.T) {
	for name, verb := range map[string]string{"stop": "stop", "panic": "panic"} {
		t.Run(name, func(t *testing.T) {
			s := start(t, runtime.Config{Mode: runtime.Stepped, Loops: 2, Seed: 7})
			log := new(journal)
			a, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
			watch := func(ctx runtime.Context[noteMsg], n note) {
				if n.verb == "watch" {
					ctx.Watch(a, note{verb: "died"})
				}
			}
			b, _ := runtime.Spawn(s.Root(1), role(log, runtime.StopOnPanic, watch), noteMsg(note{verb: "watch"}))
			run(s)
			a.Tell(note{verb: verb})
			run(s)
			same(t, log.take(), "watch0", "died0")
			b.Tell(note{verb: "watch", number: 2}) // dead already: at once
			run(s)
			same(t, log.take(), "watch2", "died0")
		})
	}
}

func TestRestartCountsAsDeath(t *testing.T) {
	s, log := stepped(t), new(journal)
	a, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.RestartOnPanic, nil), noteMsg(note{verb: "born"}))
	runtime.Spawn(s.Root(0), role(log, runtime.StopOnPanic, func(ctx runtime.Context[noteMsg], n note) {
		if n.verb == "watch" {
			ctx.Watch(a, note{verb: "died"})
		}
	}), noteMsg(note{verb: "watch"}))
	run(s)
	a.Tell(note{verb: "panic"})
	a.Tell(note{verb: "panic"})
	run(s)
	same(t, log.take(), "watch0", "died0")
}

func TestChildrenEndWithTheirParent(t *testing.T) {
	s, log := stepped(t), new(journal)
	parent, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
	child, ok := runtime.Spawn(parent, role(log, runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
	if !ok {
		t.Fatal("refused")
	}
	done := runtime.End(parent)
	run(s)
	<-done
	same(t, log.take(), "born0", "stopped")
	if _, ok := runtime.Spawn(parent, role(log, runtime.StopOnPanic, nil), noteMsg(note{})); ok || child.Alive() {
		t.Error("a dead parent took a child, or its child lives")
	}
}

func TestTimersComeInOrderAndEndWithTheirActor(t *testing.T) {
	s, log := stepped(t), new(journal)
	set := func(ctx runtime.Context[noteMsg], n note) {
		if n.verb == "set" {
			ctx.After(2*time.Second, note{verb: "timer", number: 2})
			ctx.After(time.Second, note{verb: "timer", number: 1})
			ctx.After(time.Second, note{verb: "never"}).Cancel()
			ctx.After(time.Hour, note{verb: "timer", number: 3})
		}
	}
	a, _ := runtime.Spawn(s.Root(0), role(log, runtime.StopOnPanic, set), noteMsg(note{verb: "set"}))
	s.StepUntil(3 * time.Second)
	same(t, log.take(), "set0", "timer1", "timer2")
	a.Tell(note{verb: "stop"})
	s.StepUntil(0)
	if n := s.Timers(0); n != 0 {
		t.Errorf("%d timers left, want 0", n)
	}
}

func TestOnlyWorkIsRefusedWhenTheInboxIsFull(t *testing.T) {
	s := start(t, runtime.Config{Mode: runtime.Stepped, HighWater: 4})
	a, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
	for range 3 {
		a.Tell(note{verb: "fill"})
	}
	if a.Tell(workNote{}) {
		t.Error("a full inbox took work")
	}
	if !a.Tell(note{verb: "end"}) {
		t.Error("a full inbox refused what ends")
	}
	if _, ok := runtime.Spawn(s.Root(0), role(new(journal), runtime.StopOnPanic, nil), noteMsg(workNote{})); ok {
		t.Error("a full inbox took a child that begins work")
	}
	run(s)
	if !a.Tell(workNote{}) {
		t.Error("an empty inbox refused work")
	}
}

func TestFIFOAndExclusionWith16Senders(t *testing.T) {
	for name, mode := range map[string]runtime.Mode{"combining": runtime.Combining, "goroutine": runtime.Goroutine} {
		t.Run(name, func(t *testing.T) {
			s := start(t, runtime.Config{Mode: mode, Loops: 2})
			const senders, each = 16, 5000
			var inside atomic.Int32
			var handled atomic.Int64
			last := [senders]int{}
			done := make(chan struct{})
			check := func(_ runtime.Context[noteMsg], n note) {
				if inside.Add(1) != 1 {
					t.Error("two messages at once in one actor")
				}
				if n.verb == "n" {
					if n.number != last[n.from]+1 {
						t.Errorf("sender %d: %d after %d", n.from, n.number, last[n.from])
					}
					last[n.from] = n.number
					if handled.Add(1) == senders*each {
						close(done)
					}
				}
				inside.Add(-1)
			}
			a, _ := runtime.SpawnOuter(s.Root(1), runtime.Role[noteMsg]{Name: "counter", New: func() runtime.Actor[noteMsg] { return quiet{check} }}, noteMsg(note{}))
			var wg sync.WaitGroup
			for from := range senders {
				wg.Go(func() {
					for i := range each {
						a.Tell(note{verb: "n", from: from, number: i + 1})
					}
				})
			}
			wg.Wait()
			<-done
		})
	}
}

type quiet struct {
	on func(runtime.Context[noteMsg], note)
}

func (q quiet) Receive(ctx runtime.Context[noteMsg], m noteMsg) { q.on(ctx, m.(note)) }
func (q quiet) Stopped(runtime.Context[noteMsg])                {}

func TestPosterRunsAtMostItsBudget(t *testing.T) {
	s := start(t, runtime.Config{Loops: 1, Budget: 64})
	hold, held, all := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var mine, total int
	count := func(_ runtime.Context[noteMsg], n note) {
		switch n.verb {
		case "hold":
			close(held)
			<-hold
		case "n":
			total++
			if calledBy("runtime.(*System).drain") {
				mine++
			}
			if total == 10_000 {
				close(all)
			}
		}
	}
	newCounter := func() runtime.Actor[noteMsg] { return quiet{count} }
	a, _ := runtime.SpawnOuter(s.Root(0), runtime.Role[noteMsg]{Name: "counter", New: newCounter}, noteMsg(note{}))
	returned := make(chan struct{})
	go func() { // holds the loop while 10 000 messages gather, then has to run them
		a.Tell(note{verb: "hold"})
		close(returned)
	}()
	<-held
	for range 10_000 {
		a.Inner().Tell(note{verb: "n"})
	}
	close(hold)
	<-returned
	<-all
	if mine != 63 { // and the message that held the loop
		t.Errorf("the poster ran %d of 10000, want 63", mine)
	}
	if h := s.Stats(0).Handoffs; h != 1 {
		t.Errorf("%d hand-overs, want 1", h)
	}
}

// calledBy says whether a function is on this goroutine's stack.
func calledBy(name string) bool {
	pcs := make([]uintptr, 64)
	frames := goruntime.CallersFrames(pcs[:goruntime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, name) {
			return true
		}
		if !more {
			return false
		}
	}
}

func TestEqualSeedsReplayExactly(t *testing.T) {
	play := func(seed uint64) uint64 {
		s := start(t, runtime.Config{Mode: runtime.Stepped, Loops: 3, Seed: seed, Start: time.Unix(0, 0)})
		var refs []runtime.Ref[noteMsg]
		relay := func(ctx runtime.Context[noteMsg], n note) {
			if n.number > 0 {
				refs[ctx.Rand().IntN(len(refs))].Tell(note{verb: "n", number: n.number - 1})
				ctx.After(time.Duration(ctx.Rand().IntN(1000)), note{verb: "t"})
			}
		}
		for i := range 9 {
			a, _ := runtime.Spawn(s.Root(i%3), runtime.Role[noteMsg]{Name: "relay", New: func() runtime.Actor[noteMsg] { return quiet{relay} }}, noteMsg(note{verb: "n"}))
			refs = append(refs, a)
		}
		for i, r := range refs {
			r.Tell(note{verb: "n", number: 50 + i})
		}
		run(s)
		return s.Hash()
	}
	if a, b := play(1), play(1); a != b {
		t.Errorf("seed 1 gave %x and %x", a, b)
	}
	if a, b := play(1), play(2); a == b {
		t.Errorf("seeds 1 and 2 both gave %x", a)
	}
}

func TestRealClockTimersWakeAnIdleLoop(t *testing.T) {
	for name, mode := range map[string]runtime.Mode{"combining": runtime.Combining, "goroutine": runtime.Goroutine} {
		t.Run(name, func(t *testing.T) {
			s := start(t, runtime.Config{Mode: mode})
			fired := make(chan struct{})
			runtime.SpawnOuter(s.Root(0), runtime.Role[noteMsg]{Name: "sleeper", New: func() runtime.Actor[noteMsg] {
				return quiet{func(ctx runtime.Context[noteMsg], n note) {
					if n.verb == "timer" {
						close(fired)
						return
					}
					ctx.After(5*time.Millisecond, note{verb: "timer"})
				}}
			}}, noteMsg(note{verb: "set"}))
			<-fired
		})
	}
}
