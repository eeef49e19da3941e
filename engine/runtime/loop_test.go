package runtime_test

import (
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
)

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
	s := start(t, runtime.Config{Loops: 2})
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
	a, _ := runtime.Start(s.Root(1), runtime.Role[noteMsg]{Name: "counter",
		New: func() runtime.Actor[noteMsg] { return quiet{check} }}, noteMsg(note{}))
	var wg sync.WaitGroup
	for from := range senders {
		wg.Go(func() {
			for i := range each {
				a.Port().Post(note{verb: "n", from: from, number: i + 1})
			}
		})
	}
	wg.Wait()
	<-done
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
	a, _ := runtime.Start(s.Root(0), runtime.Role[noteMsg]{Name: "counter", New: newCounter}, noteMsg(note{}))
	returned := make(chan struct{})
	go func() { // holds the loop while 10 000 messages gather, then has to run them
		a.Port().Post(note{verb: "hold"})
		close(returned)
	}()
	<-held
	for range 10_000 {
		a.Tell(note{verb: "n"})
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

// calledBy reports whether a function is on this goroutine's stack.
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
			a, _ := runtime.Spawn(s.Root(i%3), runtime.Role[noteMsg]{Name: "relay",
				New: func() runtime.Actor[noteMsg] { return quiet{relay} }}, noteMsg(note{verb: "n"}))
			refs = append(refs, a)
		}
		for i, r := range refs {
			r.Tell(note{verb: "n", number: 50 + i})
		}
		run(s)
		return runtimetest.Inspect(s).Hash()
	}
	if a, b := play(1), play(1); a != b {
		t.Errorf("seed 1 gave %x and %x", a, b)
	}
	if a, b := play(1), play(2); a == b {
		t.Errorf("seeds 1 and 2 both gave %x", a)
	}
}

func TestRealClockTimersWakeAnIdleLoop(t *testing.T) {
	s := start(t, runtime.Config{})
	fired := make(chan struct{})
	runtime.Start(s.Root(0), runtime.Role[noteMsg]{Name: "sleeper", New: func() runtime.Actor[noteMsg] {
		return quiet{func(ctx runtime.Context[noteMsg], n note) {
			if n.verb == "timer" {
				close(fired)
				return
			}
			ctx.After(5*time.Millisecond, note{verb: "timer"})
		}}
	}}, noteMsg(note{verb: "set"}))
	<-fired
}
