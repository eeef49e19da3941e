package runtime_test

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/signalbox-epp/signalbox/engine/runtime"
)

// step is one message of a request-like life; the last one ends it.
type step struct {
	last bool
	done chan struct{}
}

func (step) isNote() {}

// life is the actor of the benchmarks: it does nothing but end.
type life struct{}

func (life) Receive(ctx runtime.Context[noteMsg], m noteMsg) {
	if s := m.(step); s.last {
		ctx.Stop()
		s.done <- struct{}{}
	}
}
func (life) Stopped(runtime.Context[noteMsg]) {}

var lifeRole = runtime.Role[noteMsg]{Name: "life", New: func() runtime.Actor[noteMsg] { return life{} }}

// live plays one life: an actor is started with a message and gets five more, of which the last stops it. It returns
// when that one was handled.
func live(s *runtime.System, done chan struct{}) {
	a, _ := runtime.Start(s.Root(0), lifeRole, noteMsg(step{}))
	for range 4 {
		a.Port().Post(step{})
	}
	a.Port().Post(step{last: true, done: done})
	<-done
}

func BenchmarkLife(b *testing.B) {
	for name, cfg := range map[string]runtime.Config{
		"combining":              {},
		"combining without ring": {Ring: -1},
	} {
		b.Run(name, func(b *testing.B) {
			s := runtime.New(cfg)
			done := make(chan struct{}, 1)
			b.ReportAllocs()
			for b.Loop() {
				live(s, done)
			}
			b.StopTimer()
			if err := s.Close(context.Background()); err != nil {
				b.Error(err)
			}
		})
	}
	b.Run("protoactor alone", benchmarkProtoactor)
}

// protoLife is the same life with protoactor's default dispatcher and mailbox.
type protoLife struct{}

func (protoLife) Receive(ctx actor.Context) {
	if s, ok := ctx.Message().(step); ok && s.last {
		ctx.Stop(ctx.Self())
		s.done <- struct{}{}
	}
}

func benchmarkProtoactor(b *testing.B) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	sys := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet }))
	props := actor.PropsFromProducer(func() actor.Actor { return protoLife{} })
	done := make(chan struct{}, 1)
	b.ReportAllocs()
	for b.Loop() {
		pid := sys.Root.Spawn(props)
		for range 5 {
			sys.Root.Send(pid, step{})
		}
		sys.Root.Send(pid, step{last: true, done: done})
		<-done
	}
	b.StopTimer()
	sys.Shutdown()
}

func TestAllocationsOfTell(t *testing.T) {
	for name, cfg := range map[string]runtime.Config{"with ring": {}, "without ring": {Ring: -1}} {
		t.Run(name, func(t *testing.T) {
			s := start(t, cfg)
			a, _ := runtime.Start(s.Root(0), lifeRole, noteMsg(step{}))
			done := make(chan struct{}, 1)
			tell := func() { a.Port().Post(step{done: done}) }
			tell()
			if n := testing.AllocsPerRun(1000, tell); n != 1 {
				t.Errorf("%v allocations to tell and handle a message, want 1: its boxing", n)
			}
			boxed := noteMsg(step{done: done})
			if n := testing.AllocsPerRun(1000, func() { a.Port().Post(boxed) }); n != 0 {
				t.Errorf("%v allocations for a message that is boxed already, want 0", n)
			}
		})
	}
}
