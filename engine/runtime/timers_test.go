package runtime_test

import (
	"context"
	goruntime "runtime"
	"testing"
	"time"
	"weak"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
)

func TestTimersCountInTheBudget(t *testing.T) {
	const due = 10_000
	s := start(t, runtime.Config{Budget: 64})
	all := make(chan struct{})
	mine, total := 0, 0
	count := func(ctx runtime.Context[noteMsg], n note) {
		switch n.verb {
		case "set":
			for range due {
				ctx.After(0, note{verb: "timer"})
			}
		case "timer":
			if calledBy("runtime.(*System).drain") { // whoever posted: the test, or the alarm
				mine++
			}
			if total++; total == due {
				close(all)
			}
		}
	}
	a, _ := runtime.Start(s.Root(0), runtime.Role[noteMsg]{Name: "counter",
		New: func() runtime.Actor[noteMsg] { return quiet{count} }}, noteMsg(note{}))
	a.Port().Post(note{verb: "set"})
	<-all
	if mine > 2*64 {
		t.Errorf("goroutines that posted ran %d of %d timers, want 64 of each at most", mine, due)
	}
	if h := s.Stats(0).Handoffs; h == 0 {
		t.Error("no hand-over")
	}
}

// ballast is a message of some size, which a timer tells.
type ballast struct{ bytes *[1 << 16]byte }

func (ballast) isNote() {}

func TestCancelledTimersLeaveNoMemory(t *testing.T) {
	s := stepped(t)
	var held []weak.Pointer[[1 << 16]byte]
	var timers []runtime.Timer // an actor may hold on to them
	a, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.StopOnPanic,
		func(ctx runtime.Context[noteMsg], n note) {
			if n.verb != "set" {
				return
			}
			ctx.After(time.Hour, note{verb: "first"})
			for i := range 100 {
				b := new([1 << 16]byte)
				held = append(held, weak.Make(b))
				timers = append(timers, ctx.After(time.Duration(i%7)*time.Second, ballast{b}))
			}
			ctx.After(time.Millisecond, note{verb: "last"})
			for i := range timers {
				if at := timers[(i*37)%100]; !at.Cancel() || at.Cancel() {
					t.Error("a timer cancels once")
				}
			}
		}), noteMsg(note{verb: "set"}))
	runtimetest.Inspect(s).StepUntil(0)
	if n := runtimetest.Inspect(s).Timers(0); n != 2 {
		t.Errorf("%d timers, want the two that were not cancelled", n)
	}
	goruntime.GC()
	left := 0
	for _, w := range held {
		if w.Value() != nil {
			left++
		}
	}
	if left != 0 {
		t.Errorf("%d of %d messages of cancelled timers are still held", left, len(held))
	}
	goruntime.KeepAlive(timers)
	goruntime.KeepAlive(a)
}

// TestTimersDieWithTheIncarnationThatSetThem has each incarnation set a timer that falls due while the next one lives,
// or while the actor waits for its restart.
func TestTimersDieWithTheIncarnationThatSetThem(t *testing.T) {
	for name, panics := range map[string]int{"restarted at once": 1, "restarted after a pause": 3} {
		t.Run(name, func(t *testing.T) {
			s, log, life := stepped(t), new(journal), 0
			role := runtime.Role[noteMsg]{Name: "setter", Policy: runtime.RestartOnPanic,
				New: func() runtime.Actor[noteMsg] {
					life++
					mine := life
					return &logger{log, func(ctx runtime.Context[noteMsg], n note) {
						if n.verb == "set" {
							ctx.After(time.Millisecond, note{verb: "timer", number: mine})
						}
					}}
				}}
			a, _ := runtime.Spawn(s.Root(0), role, noteMsg(note{verb: "set"}))
			want := []string{"set0"}
			for range panics {
				a.Tell(note{verb: "panic"})
				want = append(want, "stopped", "set0")
			}
			runtimetest.Inspect(s).StepUntil(time.Second)
			same(t, log.take(), append(want, map[int]string{1: "timer2", 3: "timer4"}[panics])...)
			if n := runtimetest.Inspect(s).Timers(0); n != 0 {
				t.Errorf("%d timers left, want 0", n)
			}
		})
	}
}

func TestRestartThatIsDueDoesNotOutliveItsActor(t *testing.T) {
	s := stepped(t)
	a, log := suspended(t, s, nil)
	<-end(s, a)
	if n := runtimetest.Inspect(s).Timers(0); n != 0 {
		t.Errorf("%d timers left, want 0", n)
	}
	runtimetest.Inspect(s).StepUntil(time.Minute)
	same(t, log.take(), "stopped")
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
