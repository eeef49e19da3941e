package runtime_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
)

// worse panics on "panic" and again in Stopped.
type worse struct{ log *journal }

func (w worse) Receive(_ runtime.Context[noteMsg], m noteMsg) {
	if m.(note).verb == "panic" {
		panic("first")
	}
	w.log.add("%s", m.(note).verb)
}
func (w worse) Stopped(runtime.Context[noteMsg]) {
	w.log.add("stopped")
	panic("second")
}

func TestPanicInStoppedHarmsNobody(t *testing.T) {
	for name, c := range map[string]struct {
		policy runtime.Policy
		verb   string
		panics []string
		log    []string
	}{
		"stopped": {runtime.StopOnPanic, "end", []string{"Stopped second"}, []string{"born", "stopped"}},
		"crashed": {runtime.StopOnPanic, "panic", []string{"note first", "Stopped second"},
			[]string{"born", "stopped"}},
		"restarted": {runtime.RestartOnPanic, "panic", []string{"note first", "Stopped second"},
			[]string{"born", "stopped", "born"}},
	} {
		t.Run(name, func(t *testing.T) {
			var panics []string
			s := start(t, runtime.Config{Mode: runtime.Stepped, OnPanic: func(p runtime.Panic) {
				panics = append(panics, fmt.Sprintf("%s %v", p.Message, p.Value))
			}})
			log, deaths, sibling := new(journal), new(journal), new(journal)
			parent, _ := runtime.Spawn(s.Root(0), role(sibling, runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
			a, _ := runtime.Spawn(parent, runtime.Role[noteMsg]{
				Name: "worse", Policy: c.policy, New: func() runtime.Actor[noteMsg] { return worse{log} },
			}, noteMsg(note{verb: "born"}))
			watcher(s, deaths, a)
			runtimetest.Inspect(s).StepUntil(0)
			if c.verb == "end" {
				<-end(s, a)
			} else {
				a.Tell(note{verb: c.verb})
				runtimetest.Inspect(s).StepUntil(0)
			}
			parent.Tell(note{verb: "fine"})
			runtimetest.Inspect(s).StepUntil(0)
			same(t, panics, c.panics...)
			same(t, log.take(), c.log...)
			same(t, deaths.take(), "watch0", "died0")
			same(t, sibling.take(), "born0", "fine0")
			<-end(s, parent) // it waits for its children, so it was told
			runtimetest.Inspect(s).StepUntil(0)
		})
	}
}

func TestStopInABatch(t *testing.T) {
	s, log := stepped(t), new(journal)
	var self []bool
	on := func(ctx runtime.Context[noteMsg], n note) {
		if n.verb == "stop" {
			self = append(self, ctx.Self().Tell(note{verb: "self"}))
			ctx.After(0, note{verb: "timer"})
		}
	}
	a, _ := runtime.Spawn(s.Root(0), role(log, runtime.StopOnPanic, on), noteMsg(note{verb: "born"}))
	b, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.StopOnPanic, func(_ runtime.Context[noteMsg], n note) {
		if n.verb == "late" {
			self = append(self, a.Tell(note{verb: "late"}), a.Alive())
		}
	}), noteMsg(note{}))
	for i := range 5 {
		a.Tell(note{verb: "n", number: i})
	}
	a.Tell(note{verb: "stop"})
	for i := range 5 { // in the same batch
		a.Tell(note{verb: "dropped", number: i})
	}
	b.Tell(note{verb: "late"})
	child, ok := runtime.Spawn(a, role(log, runtime.StopOnPanic, nil), noteMsg(note{verb: "child"}))
	run(s)
	same(t, log.take(), "born0", "n0", "n1", "n2", "n3", "n4", "stop0", "stopped")
	if want := []bool{false, false, false}; !slices.Equal(self, want) {
		t.Errorf("Tell to itself after Stop, Tell and Alive for others: %v, want %v", self, want)
	}
	if !ok || child.Alive() {
		t.Errorf("child taken %v, alive %v, want taken and dead", ok, child.Alive())
	}
	if st := s.Stats(0); st.Dropped != 6 || runtimetest.Inspect(s).Timers(0) != 0 {
		t.Errorf("%d dropped, %d timers, want 5 messages and a child dropped and no timer", st.Dropped,
			runtimetest.Inspect(s).Timers(0))
	}
}

func TestPanicAfterStopEndsTheActor(t *testing.T) {
	s, log := stepped(t), new(journal)
	a, _ := runtime.Spawn(s.Root(0), role(log, runtime.RestartOnPanic, func(_ runtime.Context[noteMsg], n note) {
		if n.verb == "stop" {
			panic("after Stop")
		}
	}), noteMsg(note{verb: "born"}))
	a.Tell(note{verb: "stop"})
	a.Tell(note{verb: "late"})
	run(s)
	same(t, log.take(), "born0", "stop0", "stopped")
	if a.Alive() {
		t.Error("it lives")
	}
}
