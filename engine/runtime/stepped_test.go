package runtime_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
)

// talk has three actors tell two others twenty numbers each, all on one loop, and gives what each of the two heard.
func talk(t *testing.T, seed uint64, shuffle bool) (heard [2][]string, overtakes uint64) {
	t.Helper()
	s := start(t, runtime.Config{Mode: runtime.Stepped, Seed: seed, Shuffle: shuffle,
		Start: time.Unix(1_800_000_000, 0)})
	var log [2]journal
	var to [2]runtime.Ref[noteMsg]
	for i := range to {
		to[i], _ = runtime.Spawn(s.Root(0), role(&log[i], runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
	}
	for from := range 3 {
		verb := string(rune('a' + from))
		tell := func(runtime.Context[noteMsg], note) {
			for n := range 20 {
				to[0].Tell(note{verb: verb, number: n})
				to[1].Tell(note{verb: verb, number: n})
			}
		}
		runtime.Spawn(s.Root(0), role(new(journal), runtime.StopOnPanic, tell), noteMsg(note{verb: "born"}))
	}
	run(s)
	return [2][]string{log[0].take(), log[1].take()}, runtimetest.Inspect(s).Overtakes(0)
}

func TestShuffleKeepsTheOrderOfEachPairAndNoOther(t *testing.T) {
	plain, overtakes := talk(t, 1, false)
	if overtakes != 0 || !slices.Equal(plain[0], plain[1]) {
		t.Errorf("%d overtakes without shuffling; heard %q and %q", overtakes, plain[0], plain[1])
	}
	one, overtakes := talk(t, 1, true)
	if overtakes == 0 || slices.Equal(one[0], one[1]) || slices.Equal(one[0], plain[0]) {
		t.Errorf("%d overtakes; all heard the same order: %q", overtakes, one[0])
	}
	if again, _ := talk(t, 1, true); !slices.Equal(one[0], again[0]) {
		t.Error("equal seeds, other orders")
	}
	if other, _ := talk(t, 2, true); slices.Equal(one[0], other[0]) {
		t.Error("other seeds, equal orders")
	}
	for _, lines := range one {
		if len(lines) != 61 || lines[0] != "born0" {
			t.Errorf("%d lines, the first %q, want 61 from born0 on", len(lines), lines[0])
		}
		next := map[byte]int{}
		for _, l := range lines[1:] {
			same(t, []string{l[1:]}, strconv.Itoa(next[l[0]]))
			next[l[0]]++
		}
	}
}

func TestShuffleBearsParentsBeforeTheirChildren(t *testing.T) {
	for seed := range uint64(20) {
		s, log := start(t, runtime.Config{Mode: runtime.Stepped, Seed: seed, Shuffle: true}), new(journal)
		parent, _ := runtime.Spawn(s.Root(0), role(log, runtime.StopOnPanic, nil),
			noteMsg(note{verb: "born", number: 1}))
		child, _ := runtime.Start(parent, role(log, runtime.StopOnPanic, nil), noteMsg(note{verb: "born", number: 2}))
		child.Tell(note{verb: "told"})
		run(s)
		same(t, log.take(), "born1", "born2", "told0")
	}
}

func TestLapseMakesTimersAndMessagesLate(t *testing.T) {
	s, log := stepped(t), new(journal)
	var waited []time.Duration
	a, _ := runtime.Spawn(s.Root(0), role(log, runtime.StopOnPanic, func(ctx runtime.Context[noteMsg], n note) {
		waited = append(waited, ctx.Arrival().Waited)
		if n.verb == "born" {
			ctx.After(time.Second, note{verb: "timer", number: 1})
			ctx.After(2*time.Second, note{verb: "timer", number: 2})
			ctx.After(time.Minute, note{verb: "timer", number: 3})
		}
	}), noteMsg(note{verb: "born"}))
	runtimetest.Inspect(s).StepUntil(0)
	a.Tell(note{verb: "told"})
	if due, waiting := runtimetest.Inspect(s).Lapse(5*time.Second), runtimetest.Inspect(s).Waiting(); due != 2 ||
		waiting != 2 {
		t.Errorf("%d timers due, %d items wait, want 2 and 2: a message and the loop's alarm", due, waiting)
	}
	runtimetest.Inspect(s).StepUntil(0)
	same(t, log.take(), "born0", "told0", "timer1", "timer2")
	if want := []time.Duration{0, 5 * time.Second, 4 * time.Second, 3 * time.Second}; !slices.Equal(waited, want) {
		t.Errorf("waited %v, want %v", waited, want)
	}
	if got := s.Now().Sub(time.Unix(1_800_000_000, 0)); got != 5*time.Second {
		t.Errorf("the clock says %v, want 5 s", got)
	}
}

func TestWatchesAreCountedUntilEitherSideEnds(t *testing.T) {
	for _, verb := range []string{"stop", "panic"} {
		for ends, ending := range []string{"watched", "watcher"} {
			t.Run(ending+" "+verb, func(t *testing.T) {
				s := stepped(t)
				a, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.StopOnPanic, nil),
					noteMsg(note{verb: "born"}))
				watch := func(ctx runtime.Context[noteMsg], n note) {
					if n.verb == "watch" {
						ctx.Watch(a, note{verb: "died"})
					}
				}
				b, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.StopOnPanic, watch),
					noteMsg(note{verb: "watch"}))
				b.Tell(note{verb: "watch"}) // twice is once
				run(s)
				if n := runtimetest.Inspect(s).Watches(0); n != 1 {
					t.Errorf("%d watches, want 1", n)
				}
				[]runtime.Ref[noteMsg]{a, b}[ends].Tell(note{verb: verb})
				run(s)
				if n := runtimetest.Inspect(s).Watches(0); n != 0 {
					t.Errorf("%d watches after one side ended, want 0", n)
				}
			})
		}
	}
}
