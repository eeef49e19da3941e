package runtime_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
)

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

// shy panics at its first message in some incarnations, and writes down which incarnation handled what.
type shy struct {
	log         *journal
	incarnation int
	falls       func(incarnation int) bool
}

func (s *shy) Receive(_ runtime.Context[noteMsg], m noteMsg) {
	n := m.(note)
	if n.verb == "panic" || n.verb == "born" && s.falls(s.incarnation) {
		panic("asked to")
	}
	s.log.add("%s%d", n.verb, s.incarnation)
}

func (s *shy) Stopped(runtime.Context[noteMsg]) { s.log.add("stopped%d", s.incarnation) }

func TestNothingReachesAnIncarnationThatPanickedAsItBegan(t *testing.T) {
	s, log, incarnations := stepped(t), new(journal), 0
	role := runtime.Role[noteMsg]{Name: "shy", Policy: runtime.RestartOnPanic, New: func() runtime.Actor[noteMsg] {
		incarnations++
		return &shy{log, incarnations, func(i int) bool { return i > 1 && i < 6 }}
	}}
	a, _ := runtime.Spawn(s.Root(0), role, noteMsg(note{verb: "born"}))
	a.Tell(note{verb: "panic"})
	a.Tell(note{verb: "waits"})
	run(s)
	same(t, log.take(), "born1", "stopped1", "stopped2", "stopped3", "stopped4", "stopped5", "born6", "waits6")
}

func TestWhatIsToldToAChildThatWaitsToBeBornFollowsItsFirstMessage(t *testing.T) {
	s, log := stepped(t), new(journal)
	parent, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.RestartOnPanic, nil), noteMsg(note{verb: "born"}))
	run(s)
	for range 5 { // from the third panic on the parent pauses
		parent.Tell(note{verb: "panic"})
	}
	runtimetest.Inspect(s).StepUntil(0)
	child, ok := runtime.Start(parent, role(log, runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
	grandchild, also := runtime.Start(child, role(log, runtime.StopOnPanic, nil),
		noteMsg(note{verb: "born", number: 2}))
	if !ok || !also || !child.Port().Post(note{verb: "told"}) ||
		!grandchild.Port().Post(note{verb: "told", number: 2}) {
		t.Fatal("refused while the parent pauses")
	}
	runtimetest.Inspect(s).StepUntil(0)
	same(t, log.take())
	child.Port().Post(note{verb: "stop"})
	run(s)
	same(t, log.take(), "born0", "born2", "told2", "told0", "stop0", "stopped", "stopped")
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
	runtimetest.Inspect(s).StepUntil(3 * time.Second)
	same(t, log.take(), "set0", "timer1", "timer2")
	a.Tell(note{verb: "stop"})
	runtimetest.Inspect(s).StepUntil(0)
	if n := runtimetest.Inspect(s).Timers(0); n != 0 {
		t.Errorf("%d timers left, want 0", n)
	}
}
