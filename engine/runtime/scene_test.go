package runtime_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
	return runtime.Role[noteMsg]{Name: "logger", Policy: policy,
		New: func() runtime.Actor[noteMsg] { return &logger{log, on} }}
}

func start(t *testing.T, cfg runtime.Config) *runtime.System {
	t.Helper()
	s := runtime.New(cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
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
