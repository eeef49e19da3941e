package runtime_test

import (
	gc "runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
)

// watcher returns an actor on loop 0 that watches target when it begins and on each "watch".
func watcher(s *runtime.System, log *journal, target runtime.Target) runtime.Ref[noteMsg] {
	a, _ := runtime.Spawn(s.Root(0), role(log, runtime.RestartOnPanic, func(ctx runtime.Context[noteMsg], n note) {
		if n.verb == "watch" {
			ctx.Watch(target, note{verb: "died", number: n.number})
		}
	}), noteMsg(note{verb: "watch"}))
	return a
}

func TestPanicInABatchLeavesTheOthersTheirMessages(t *testing.T) {
	for policy, restart := range map[string]runtime.Policy{"stop": runtime.StopOnPanic,
		"restart": runtime.RestartOnPanic} {
		t.Run(policy, func(t *testing.T) {
			s, log := start(t, runtime.Config{}), new(journal)
			hold, held, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
			gate, _ := runtime.Start(s.Root(0), role(new(journal), runtime.StopOnPanic,
				func(_ runtime.Context[noteMsg], n note) {
					switch n.verb {
					case "hold":
						close(held)
						<-hold
					case "done":
						close(done)
					}
				}), noteMsg(note{}))
			bad, _ := runtime.Start(s.Root(0), role(new(journal), restart, nil), noteMsg(note{}))
			good, _ := runtime.Start(s.Root(0), role(log, restart, nil), noteMsg(note{verb: "born"}))
			go gate.Port().Post(note{verb: "hold"})
			<-held
			for i := range 3 { // all of it gathers in one batch
				good.Tell(note{verb: "n", number: i})
				bad.Tell(note{verb: "panic"})
			}
			good.Tell(note{verb: "last"})
			gate.Tell(note{verb: "done"})
			close(hold)
			<-done
			same(t, log.take(), "born0", "n0", "n1", "n2", "last0")
		})
	}
}

func TestAllBelowADeadParentEnd(t *testing.T) {
	for _, verb := range []string{"stop", "panic", "end"} {
		t.Run(verb, func(t *testing.T) {
			s, deaths := stepped(t), new(journal)
			var family []runtime.Ref[noteMsg]
			var logs []*journal
			add := func(parent runtime.Parent) runtime.Ref[noteMsg] {
				log := new(journal)
				a, ok := runtime.Spawn(parent, role(log, runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
				if !ok {
					t.Fatal("refused")
				}
				family, logs = append(family, a), append(logs, log)
				return a
			}
			parent := add(s.Root(0))
			for range 3 {
				child := add(parent)
				add(child)
				add(child)
			}
			for _, a := range family {
				watcher(s, deaths, a)
			}
			runtimetest.Inspect(s).StepUntil(0)
			deaths.take()
			if verb == "end" {
				<-end(s, parent)
			} else {
				parent.Tell(note{verb: verb})
			}
			runtimetest.Inspect(s).StepUntil(time.Second)
			for i, log := range logs {
				want := []string{"born0", "stopped"}
				if i == 0 && verb == "stop" {
					want = []string{"born0", "stop0", "stopped"}
				}
				if same(t, log.take(), want...); family[i].Alive() || family[i].Tell(note{}) {
					t.Errorf("member %d lives", i)
				}
				a, ok := runtime.Spawn(family[i], role(log, runtime.StopOnPanic, nil), noteMsg(note{}))
				if ok || a.Alive() || a.Tell(note{}) {
					t.Errorf("member %d took a child after its death", i)
				}
			}
			got := deaths.take()
			if len(got) != len(family) || slices.ContainsFunc(got, func(l string) bool { return l != "died0" }) {
				t.Errorf("notices %q, want died0 %d times", got, len(family))
			}
		})
	}
}

// TestSpawnOnItsWayWhenTheParentDies: the inbox has taken the spawn when its parent ends.
func TestSpawnOnItsWayWhenTheParentDies(t *testing.T) {
	s, log, deaths := stepped(t), new(journal), new(journal)
	parent, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.StopOnPanic, nil), noteMsg(note{}))
	parent.Tell(note{verb: "stop"})
	child, ok := runtime.Spawn(parent, role(log, runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
	watcher(s, deaths, child)
	run(s)
	same(t, log.take())
	same(t, deaths.take(), "watch0", "died0")
	if !ok || child.Alive() {
		t.Errorf("taken %v, alive %v, want taken and dead", ok, child.Alive())
	}
}

func TestRefusedChildIsDeadForItsWatchers(t *testing.T) {
	s, deaths := stepped(t), new(journal)
	parent, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.StopOnPanic, nil), noteMsg(note{verb: "stop"}))
	run(s)
	child, ok := runtime.Spawn(parent, role(new(journal), runtime.StopOnPanic, nil), noteMsg(note{}))
	watcher(s, deaths, child)
	run(s)
	same(t, deaths.take(), "watch0", "died0")
	if ok {
		t.Error("a dead parent took a child")
	}
	<-end(s, child)
}

func TestEachIncarnationThatIsWatchedIsTold(t *testing.T) {
	s, log := stepped(t), new(journal)
	a, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.RestartOnPanic, nil), noteMsg(note{}))
	w := watcher(s, log, a)
	runtimetest.Inspect(s).StepUntil(0)
	for i := range 3 { // the third death, by End, is the last
		if i == 2 {
			<-end(s, a)
		} else {
			a.Tell(note{verb: "panic"})
		}
		runtimetest.Inspect(s).StepUntil(0)
		w.Tell(note{verb: "watch", number: i + 1})
		runtimetest.Inspect(s).StepUntil(0)
	}
	same(t, log.take(), "watch0", "died0", "watch1", "died1", "watch2", "died2", "watch3", "died3")
}

// TestNoticeForAnEarlierIncarnationIsDropped has a notice on its way to a watcher that restarts and watches again. The
// notice that the first incarnation asked for must not tell the second that its target has ended.
func TestNoticeForAnEarlierIncarnationIsDropped(t *testing.T) {
	for seed := range uint64(50) { // the order between the two loops is the seed's
		s := start(t, runtime.Config{Mode: runtime.Stepped, Loops: 2, Seed: seed})
		a, _ := runtime.Spawn(s.Root(1), role(new(journal), runtime.RestartOnPanic, nil), noteMsg(note{}))
		log, life := new(journal), 0
		role := runtime.Role[noteMsg]{Name: "watcher", Policy: runtime.RestartOnPanic,
			New: func() runtime.Actor[noteMsg] {
				life++
				mine := life
				return &logger{log, func(ctx runtime.Context[noteMsg], n note) {
					if n.verb == "watch" {
						ctx.Watch(a, note{verb: "died", number: mine})
					}
				}}
			}}
		w, _ := runtime.Spawn(s.Root(0), role, noteMsg(note{verb: "watch"}))
		runtimetest.Inspect(s).StepUntil(0)
		a.Tell(note{verb: "panic"})
		w.Tell(note{verb: "panic"})
		runtimetest.Inspect(s).StepUntil(0)
		lines := log.take()
		second := slices.Index(lines, "stopped") + 1
		if second == 0 || slices.Contains(lines[second:], "died1") {
			t.Errorf("seed %d: the second incarnation heard what the first had asked for: %q", seed, lines)
		}
		a.Tell(note{verb: "stop"})
		runtimetest.Inspect(s).StepUntil(0)
		if all := append(lines, log.take()...); len(all) != len(lines)+1 && !slices.Contains(lines[second:], "died2") {
			t.Errorf("seed %d: the second incarnation did not hear of the death: %q", seed, all)
		}
	}
}

func TestNoticeDoesNotReachTheIncarnationAfterASuspendedOne(t *testing.T) {
	s := stepped(t)
	a, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.StopOnPanic, nil), noteMsg(note{}))
	_, log := suspended(t, s, func(ctx runtime.Context[noteMsg], n note) {
		if n.verb == "born" {
			ctx.Watch(a, note{verb: "died"})
		}
	})
	<-end(s, a) // while the watcher waits for its restart
	runtimetest.Inspect(s).StepUntil(0)
	runtimetest.Inspect(s).StepUntil(time.Second)
	same(t, log.take(), "stopped", "born0", "died0") // once: the watch of the incarnation that lives
}

// heavy is an actor that can be seen to be collected.
type heavy struct{ logger }

// protoactor's list of a parent's children may hold on to an actor that has ended, for it keeps as many places as there
// ever were actors at a time. The value of the actor must be collected nevertheless.
func TestEndedActorsAreForgotten(t *testing.T) {
	const many = 50
	var alive atomic.Int64
	s, places := stepped(t), []runtime.Ref[noteMsg]{}
	bear := runtime.Role[noteMsg]{Name: "heavy", Policy: runtime.StopOnPanic, New: func() runtime.Actor[noteMsg] {
		a := &heavy{logger{log: new(journal)}}
		alive.Add(1)
		gc.AddCleanup(a, func(n *atomic.Int64) { n.Add(-1) }, &alive)
		return a
	}}
	for range many {
		a, _ := runtime.Start(s.Root(0), bear, noteMsg(note{verb: "born"}))
		places = append(places, a)
	}
	run(s)
	for _, a := range places {
		a.Tell(note{verb: "stop"})
	}
	run(s)
	for late := time.Now().Add(20 * time.Second); alive.Load() > 1 && time.Now().Before(late); gc.Gosched() {
		gc.GC()
	}
	if n := alive.Load(); n > 1 { // the loop may still have the last one in hand
		t.Errorf("%d of %d ended actors are kept", n, many)
	}
	gc.KeepAlive(places)
}
