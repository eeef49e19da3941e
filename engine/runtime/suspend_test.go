package runtime_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
)

// suspended returns an actor, with its journal, whose third panic in a row has just happened: it restarts after a
// pause.
func suspended(t *testing.T, s *runtime.System, on func(runtime.Context[noteMsg], note)) (runtime.Ref[noteMsg],
	*journal) {
	t.Helper()
	log := new(journal)
	a, _ := runtime.Spawn(s.Root(0), role(log, runtime.RestartOnPanic, on), noteMsg(note{verb: "born"}))
	for range 3 {
		a.Tell(note{verb: "panic"})
	}
	runtimetest.Inspect(s).StepUntil(0)
	same(t, log.take(), "born0", "stopped", "born0", "stopped", "born0")
	return a, log
}

func TestSuspendedActorRefusesWorkBeyondABound(t *testing.T) {
	s := start(t, runtime.Config{Mode: runtime.Stepped, HighWater: 1 << 20})
	a, log := suspended(t, s, nil)
	taken := 0
	for i := range 5000 {
		if a.Tell(workNote{note{verb: "work", number: i}}) {
			taken++
		}
		runtimetest.Inspect(s).StepUntil(0)
	}
	if taken != 1024 {
		t.Errorf("a suspended actor took %d of 5000 pieces of work, want 1024", taken)
	}
	if _, ok := runtime.Spawn(a, role(log, runtime.StopOnPanic, nil), noteMsg(workNote{})); ok {
		t.Error("a suspended parent with a full backlog took a child that begins work")
	}
	if !a.Tell(note{verb: "end"}) {
		t.Error("a suspended actor refused what ends")
	}
	if _, ok := runtime.Spawn(s.Root(0), role(new(journal), runtime.StopOnPanic, nil), noteMsg(workNote{})); !ok {
		t.Error("another actor of the loop is refused work")
	}
	if n := s.Stats(0).Refused; n != 5000-1024+1 {
		t.Errorf("%d refusals counted, want %d", n, 5000-1024+1)
	}
	runtimetest.Inspect(s).StepUntil(time.Second)
	lines := log.take()
	if len(lines) != 2+1024+1 || lines[2] != "work0" || lines[1025] != "work1023" || lines[1026] != "end0" {
		t.Errorf("%d lines, want stopped, born0, work0 to work1023 and end0: %q", len(lines), lines)
	}
	if !a.Tell(workNote{}) {
		t.Error("refused after the backlog was handled")
	}
}

func TestBacklogsCountInTheHighWaterMark(t *testing.T) {
	s := start(t, runtime.Config{Mode: runtime.Stepped, HighWater: 10})
	a, _ := suspended(t, s, nil)
	b, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.StopOnPanic, nil), noteMsg(note{}))
	for range 10 {
		a.Tell(note{verb: "n"})
	}
	runtimetest.Inspect(s).StepUntil(0)
	if b.Tell(workNote{}) {
		t.Error("ten messages are kept, the mark is ten, and work is taken")
	}
	<-end(s, a)
	if !b.Tell(workNote{}) {
		t.Error("work is refused after the backlog is gone")
	}
}

// end ends an actor at once.
func end(s *runtime.System, target runtime.Target) <-chan struct{} {
	done := runtime.End(target)
	runtimetest.Inspect(s).StepUntil(0)
	return done
}

func TestBacklogIsHandledWithinTheBudget(t *testing.T) {
	const kept = 1000
	s := start(t, runtime.Config{Budget: 64})
	all, broken := make(chan struct{}), make(chan struct{}, 3)
	most, total := 0, 0
	count := func(_ runtime.Context[noteMsg], n note) {
		switch n.verb {
		case "panic":
			broken <- struct{}{}
			panic("asked to")
		case "n":
			if calledBy("runtime.(*System).drain") { // the alarm's goroutine, not the one that it hands over to
				most++
			}
			if total++; total == kept {
				close(all)
			}
		}
	}
	a, _ := runtime.Start(s.Root(0), runtime.Role[noteMsg]{
		Name: "counter", Policy: runtime.RestartOnPanic, New: func() runtime.Actor[noteMsg] { return quiet{count} },
	}, noteMsg(note{}))
	for range 3 {
		a.Port().Post(note{verb: "panic"})
	}
	for range kept {
		a.Tell(note{verb: "n"})
	}
	a.Port().Post(note{})
	<-all
	if most > 2*64 {
		t.Errorf("goroutines that posted ran %d messages of the backlog, want 64 of each at most", most)
	}
}

func TestChildOfASuspendedParentIsBornLateWithAllItWasTold(t *testing.T) {
	s := stepped(t)
	parent, _ := suspended(t, s, nil)
	log, deaths := new(journal), new(journal)
	child, ok := runtime.Start(parent, role(log, runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
	if !ok || !child.Port().Post(note{verb: "one"}) || !child.Port().Post(note{verb: "stop"}) {
		t.Fatal("refused")
	}
	watcher(s, deaths, child)
	runtimetest.Inspect(s).StepUntil(0)
	same(t, log.take())
	same(t, deaths.take(), "watch0")
	runtimetest.Inspect(s).StepUntil(time.Second)
	same(t, log.take(), "born0", "one0", "stop0", "stopped")
	same(t, deaths.take(), "died0")
}

func TestChildIsEndedBeforeItsSuspendedParentBearsIt(t *testing.T) {
	for name, last := range map[string]string{"child": "child", "parent": "parent"} {
		t.Run(name, func(t *testing.T) {
			s, log, deaths := stepped(t), new(journal), new(journal)
			parent, _ := suspended(t, s, nil)
			child, _ := runtime.Start(parent, role(log, runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
			watcher(s, deaths, child)
			var done <-chan struct{}
			if last == "child" {
				done = runtime.End(child)
			} else {
				done = runtime.End(parent)
			}
			runtimetest.Inspect(s).StepUntil(time.Second)
			<-done
			same(t, log.take())
			same(t, deaths.take(), "watch0", "died0")
			if child.Port().Post(note{}) {
				t.Error("it takes messages")
			}
		})
	}
}

// TestBrokenIncarnationHearsNothing has two incarnations panic on the message that begins them.
func TestBrokenIncarnationHearsNothing(t *testing.T) {
	s, log, born := stepped(t), new(journal), 0
	on := func(_ runtime.Context[noteMsg], n note) {
		if n.verb != "born" {
			return
		}
		if born++; born == 2 || born == 3 {
			panic("at birth")
		}
	}
	a, _ := runtime.Spawn(s.Root(0), role(log, runtime.RestartOnPanic, on), noteMsg(note{verb: "born"}))
	a.Tell(note{verb: "panic"})
	a.Tell(note{verb: "next"})
	runtimetest.Inspect(s).StepUntil(0)
	same(t, log.take(), "born0", "stopped", "born0", "stopped", "born0")
	runtimetest.Inspect(s).StepUntil(time.Second)
	same(t, log.take(), "stopped", "born0", "next0")
}
