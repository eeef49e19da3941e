// Package runtimetest runs one actor on the test's goroutine, among probes, with a clock that only the test moves.
//
// It owns the stage, which stands in for the loop, and the probes, which stand in for all other actors. It never starts
// a goroutine, reads the wall clock, or runs two actors: what loops do, order between actors and supervision, is tested
// with real loops.
package runtimetest

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/runtime/internal"
	"github.com/signalbox-epp/signalbox/messages"
)

// Inspect returns what only tests may see of a system and do to it.
func Inspect(s *runtime.System) runtime.Inspection { return s.Inspection(internal.Tests{}) }

// Stage is the address and the context of one actor.
type Stage[M any] struct {
	t       testing.TB
	now     time.Time
	rand    *rand.Rand
	actor   runtime.Actor[M]
	ended   bool
	inside  bool // a handler runs
	timers  []*stageTimer[M]
	watches []watch[M]
	arrival runtime.Arrival // of the message in hand, or of the last one
	told    []M             // messages that are still to be handled
	kinds   []reflect.Type  // of messages so far, by runtime.Kind
}

type watch[M any] struct {
	target runtime.Target
	notice M
}

type stageTimer[M any] struct {
	stage *Stage[M]
	at    time.Time
	msg   M
	done  bool
}

// NewStage returns an empty stage; Play puts the actor on it.
func NewStage[M any](t testing.TB) *Stage[M] {
	return &Stage[M]{t: t, now: time.Unix(1_800_000_000, 0), rand: rand.New(rand.NewPCG(1, 2))}
}

// Play puts the actor on the stage.
func (s *Stage[M]) Play(a runtime.Actor[M]) { s.actor, s.ended = a, false }

// Tell gives the actor one message, and returns when it has handled that, and what it told itself meanwhile. From
// within a handler it only enqueues.
func (s *Stage[M]) Tell(m M) bool {
	if s.ended {
		return false
	}
	s.told = append(s.told, m)
	if s.inside {
		return true
	}
	for len(s.told) > 0 && !s.ended {
		m, s.told = s.told[0], s.told[1:]
		s.arrival.Messages++
		s.arrival.Kind = s.Kind(m)
		s.receive(m)
	}
	s.told = nil
	if s.ended {
		s.actor.Stopped(s)
	}
	return true
}

func (s *Stage[M]) receive(m M) {
	s.inside = true
	defer func() { s.inside = false }()
	s.actor.Receive(s, m)
}

// Advance moves the clock and fires what falls due, in order.
func (s *Stage[M]) Advance(d time.Duration) {
	until := s.now.Add(d)
	for {
		next := s.due(until)
		if next == nil {
			s.now = until
			return
		}
		next.done = true
		s.now = next.at
		s.Tell(next.msg)
	}
}

func (s *Stage[M]) due(until time.Time) *stageTimer[M] {
	var next *stageTimer[M]
	for _, t := range s.timers {
		if !t.done && !t.at.After(until) && (next == nil || t.at.Before(next.at)) {
			next = t
		}
	}
	return next
}

// Timers returns how many timers are set.
func (s *Stage[M]) Timers() int {
	n := 0
	for _, t := range s.timers {
		if !t.done {
			n++
		}
	}
	return n
}

// Delay has Arrival say of the messages that follow that they waited so long in the inbox.
func (s *Stage[M]) Delay(d time.Duration) { s.arrival.Waited = d }

// Crash does what the runtime does when Receive panicked in an actor that is not restarted.
func (s *Stage[M]) Crash() { s.Stop() }

// Ended reports whether the actor has stopped.
func (s *Stage[M]) Ended() bool { return s.ended }

// Clock returns what Now returns.
func (s *Stage[M]) Clock() time.Time { return s.now }

// Alive makes a stage a target for others' watches.
func (s *Stage[M]) Alive() bool { return !s.ended }

// Die tells the actor the notices of its watches of target.
func (s *Stage[M]) Die(target runtime.Target) {
	for _, w := range s.watches {
		if w.target == target {
			s.Tell(w.notice)
		}
	}
}

func (s *Stage[M]) Now() time.Time                                  { return s.now }
func (s *Stage[M]) Told(string, uint64, runtime.Kind) time.Duration { return 0 }
func (s *Stage[M]) Elapsed() time.Duration                          { return 0 }
func (s *Stage[M]) Arrival() runtime.Arrival                        { return s.arrival }
func (s *Stage[M]) KindName(k runtime.Kind) string                  { return s.kinds[k].Name() }
func (s *Stage[M]) Kind(m any) runtime.Kind {
	t := reflect.TypeOf(m)
	if i := slices.Index(s.kinds, t); i >= 0 {
		return runtime.Kind(i)
	}
	s.kinds = append(s.kinds, t)
	return runtime.Kind(len(s.kinds) - 1)
}
func (s *Stage[M]) Rand() *rand.Rand { return s.rand }

// Ring returns an empty event for each message that was handled, at most so many.
func (s *Stage[M]) Ring(newest int) messages.Ring {
	events := make([]messages.RingEvent, min(uint64(newest), s.arrival.Messages))
	return messages.Ring{Events: messages.TakeList(events), Total: s.arrival.Messages}
}

func (s *Stage[M]) Self() messages.Sink[M] { return s }
func (s *Stage[M]) Port() messages.Port[M] { return s }

// Post is Tell, from outside.
func (s *Stage[M]) Post(m M) bool { return s.Tell(m) }

// Stop ends the actor as the runtime does: when the handler that called it returns, or at once if none runs.
func (s *Stage[M]) Stop() {
	if s.ended {
		return
	}
	s.ended = true
	for _, t := range s.timers {
		t.done = true
	}
	if !s.inside {
		s.actor.Stopped(s)
	}
}

func (s *Stage[M]) After(d time.Duration, m M) runtime.Timer {
	t := &stageTimer[M]{stage: s, at: s.now.Add(d), msg: m, done: s.ended}
	s.timers = append(s.timers, t)
	return t
}

func (s *Stage[M]) Watch(target runtime.Target, notice M) {
	s.watches = append(s.watches, watch[M]{target, notice})
}

func (t *stageTimer[M]) Cancel() bool {
	was := !t.done
	t.done = true
	return was
}

// Probe stands in for another actor and remembers what it was told.
type Probe[M any] struct {
	t      testing.TB
	got    []M
	closed bool
}

// NewProbe returns a probe that takes everything.
func NewProbe[M any](t testing.TB) *Probe[M] { return &Probe[M]{t: t} }

// Tell returns false once the probe was closed.
func (p *Probe[M]) Tell(m M) bool {
	if p.closed {
		return false
	}
	p.got = append(p.got, m)
	return true
}

// Post is Tell, for a probe in the place of an actor that an adapter tells.
func (p *Probe[M]) Post(m M) bool { return p.Tell(m) }

// Alive reports whether the probe has not been closed.
func (p *Probe[M]) Alive() bool { return !p.closed }

// Close makes the probe refuse, as a full or dead actor does.
func (p *Probe[M]) Close() { p.closed = true }

// Told returns what the probe was told since the last call of Told or Got.
func (p *Probe[M]) Told() []M {
	got := p.got
	p.got = nil
	return got
}

// Got fails the test unless the probe was told exactly these since the last call of Told or Got.
func (p *Probe[M]) Got(want ...M) {
	p.t.Helper()
	got := p.Told()
	if (len(want) > 0 || len(got) > 0) && !reflect.DeepEqual(got, want) {
		p.t.Errorf("told:\n\t%+v\nwant:\n\t%+v", got, want)
	}
}
