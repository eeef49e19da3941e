package runtime_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

func events(t *testing.T, s *runtime.System, loop int) []runtime.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	e, err := runtimetest.Inspect(s).Events(ctx, loop)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestRingHoldsMessagesAndPanics(t *testing.T) {
	var told []runtime.Panic
	s := start(t, runtime.Config{Loops: 2, OnPanic: func(p runtime.Panic) { told = append(told, p) }})
	log := new(journal)
	a, _ := runtime.Start(s.Root(1), role(log, runtime.RestartOnPanic, nil), noteMsg(note{verb: "born"}))
	a.Port().Post(note{verb: "panic"})
	a.Port().Post(workNote{note{verb: "work"}})
	got := events(t, s, 1)
	same(t, log.take(), "born0", "stopped", "born0", "work0")
	if len(got) != 3 {
		t.Fatalf("%d events, want 3: %+v", len(got), got)
	}
	for i, want := range []string{"note", "note", "workNote"} {
		e := got[i]
		if s.KindName(e.Message) != want || s.ActorName(e.Kind) != "logger" || e.Actor != got[0].Actor || e.Waited < 0 {
			t.Errorf("event %d: %+v, a %s to a %s, want a %s", i, e, s.KindName(e.Message), s.ActorName(e.Kind), want)
		}
		if (e.Took < 0) != (i == 1) || i > 0 && e.Begin < got[i-1].Begin {
			t.Errorf("event %d: %+v; only the second panicked", i, e)
		}
	}
	if len(told) != 1 || told[0].Actor != "logger" || told[0].Message != "note" || told[0].Value != "asked to" ||
		told[0].ID != got[0].Actor || !strings.Contains(string(told[0].Stack), "logger).Receive") {
		t.Errorf("told of %+v", told)
	}
	if other := events(t, s, 0); len(other) != 0 {
		t.Errorf("the other loop has %+v", other)
	}
}

func TestRingKeepsTheNewestInOrder(t *testing.T) {
	s := start(t, runtime.Config{Ring: 6}) // rounded up to 8
	a, _ := runtime.Start(s.Root(0), role(new(journal), runtime.StopOnPanic, nil), noteMsg(note{}))
	for range 20 {
		a.Port().Post(note{})
	}
	got := events(t, s, 0)
	if len(got) != 8 {
		t.Fatalf("%d events, want 8", len(got))
	}
	for i := 1; i < len(got); i++ {
		if got[i].Begin < got[i-1].Begin+got[i-1].Took {
			t.Errorf("event %d begins at %d, before the one before it ended", i, got[i].Begin)
		}
	}
	if none := start(t, runtime.Config{Ring: -1}); len(events(t, none, 0)) != 0 {
		t.Error("no ring, but events")
	}
}

func TestEventsOfABusyLoopGiveUpWithTheirContext(t *testing.T) {
	s := stepped(t) // nobody steps
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := runtimetest.Inspect(s).Events(ctx, 0); err == nil {
		t.Error("no error")
	}
}

func TestCloseEndsActorsTimersAndGoroutines(t *testing.T) {
	for range 50 { // an alarm that is on its way while the loops end must find them
		s, log := runtime.New(runtime.Config{Loops: 2}), new(journal)
		set := func(ctx runtime.Context[noteMsg], _ note) { ctx.After(50*time.Microsecond, note{verb: "t"}) }
		a, _ := runtime.Start(s.Root(1), role(log, runtime.StopOnPanic, set), noteMsg(note{verb: "born"}))
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if err := s.Close(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		lines := log.take()
		if lines[0] != "born0" || lines[len(lines)-1] != "stopped" || a.Port().Post(note{}) {
			t.Fatalf("log %q, or the dead took a message", lines)
		}
	}
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	s := runtime.New(runtime.Config{})
	hold, held := make(chan struct{}), make(chan struct{})
	a, _ := runtime.Start(s.Root(0), role(new(journal), runtime.StopOnPanic, func(_ runtime.Context[noteMsg], n note) {
		if n.verb == "hold" {
			close(held)
			<-hold
		}
	}), noteMsg(note{}))
	go a.Port().Post(note{verb: "hold"})
	<-held
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(ctx); err == nil || !strings.Contains(err.Error(), "loop 0 still has actors") {
		t.Errorf("Close: %v, want that loop 0 still has actors", err)
	}
	close(hold)
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestActorReadsTheRingOfItsLoop(t *testing.T) {
	s := start(t, runtime.Config{Mode: runtime.Stepped, Loops: 2})
	var got messages.Ring
	look := func(ctx runtime.Context[noteMsg], n note) {
		switch n.verb {
		case "look":
			got = ctx.Ring(2)
		case "tell":
			ctx.Told("stream", 77, ctx.Kind(n))
		}
	}
	a, _ := runtime.Spawn(s.Root(1), role(new(journal), runtime.RestartOnPanic, look), noteMsg(note{verb: "born"}))
	for _, verb := range []string{"n", "tell", "panic", "look"} {
		a.Tell(note{verb: verb})
	}
	runtimetest.Inspect(s).StepUntil(time.Second)
	if got.Loop != 1 || got.Total != 5 || got.Events.Len() != 2 {
		t.Fatalf("ring %+v, want 2 of 5 events of loop 1", got)
	}
	tell, panicked := got.Events.At(0), got.Events.At(1)
	if tell.Panicked || !panicked.Panicked || panicked.Took < 0 || s.ActorName(panicked.ActorKind) != "logger" ||
		s.KindName(runtime.Kind(panicked.Message)) != "note" || panicked.Actor != tell.Actor {
		t.Errorf("events %+v, want that the second panicked", got.Events)
	}
}

func TestPanicIsReportedWithWhatTheLoopDidBefore(t *testing.T) {
	for name, c := range map[string]struct{ before, want int }{"few": {5, 6}, "many": {100, 32}} {
		t.Run(name, func(t *testing.T) {
			var told []runtime.Panic
			s := start(t, runtime.Config{Mode: runtime.Stepped,
				OnPanic: func(p runtime.Panic) { told = append(told, p) }})
			a, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.RestartOnPanic, nil), noteMsg(workNote{}))
			for range c.before {
				a.Tell(note{verb: "n"})
			}
			a.Tell(note{verb: "panic"})
			a.Tell(note{verb: "panic"})
			run(s)
			if len(told) != 2 || len(told[0].Recent) != c.want {
				t.Fatalf("told of %d panics, want two, the first with %d events", len(told), c.want)
			}
			lines := s.Lines(told[0].Recent)
			if len(lines) != c.want || !strings.HasSuffix(lines[c.want-1],
				fmt.Sprintf("logger/%d note, waited 0s, took 0s", told[0].ID)) ||
				strings.Contains(strings.Join(lines, ""), "panicked") {
				t.Errorf("lines %q, want %d that end with the note before the panic", lines, c.want)
			}
			again := s.Lines(told[1].Recent)
			if last := again[len(again)-1]; !strings.HasSuffix(last, "took 0s, panicked") {
				t.Errorf("line %q, want that it panicked", last)
			}
		})
	}
}

func TestRingsNumberAnActorByWhatItIsAbout(t *testing.T) {
	var told []runtime.Panic
	s := start(t, runtime.Config{Mode: runtime.Stepped, OnPanic: func(p runtime.Panic) { told = append(told, p) }})
	about := role(new(journal), runtime.StopOnPanic, nil)
	about.Number = func(first noteMsg) uint64 { return uint64(first.(note).number) }
	a, _ := runtime.Spawn(s.Root(0), about, noteMsg(note{number: 4711}))
	a.Tell(note{verb: "n", number: 1})
	a.Tell(note{verb: "panic"})
	run(s)
	if len(told) != 1 || told[0].ID != 4711 || len(told[0].Recent) != 2 || told[0].Recent[1].Actor != 4711 {
		t.Errorf("told of %+v, want actor 4711", told)
	}
}
