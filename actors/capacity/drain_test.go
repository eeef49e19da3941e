package capacity_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/messages"
)

// leave has requests leave the line for an endpoint, the first in its turn, each so long after the one before.
func (s *scene) leave(from, n messages.RequestID, each time.Duration) {
	for id := from; id < from+n; id++ {
		s.turn(id)
		s.actor.Advance(each)
		s.actor.Tell(messages.WaitEnded{Request: id, Endpoint: place(1)})
	}
}

// askMany has requests begin to wait.
func (s *scene) askMany(from, n messages.RequestID) {
	for id := from; id < from+n; id++ {
		s.asks(id, tenant("a"), 0)
	}
}

// told asserts what the next request is told of the line.
func (s *scene) told(id messages.RequestID, ahead int, after time.Duration) {
	s.Helper()
	s.asks(id, tenant("a"), 0)
	for _, m := range s.cycles[id].Told() {
		if q, ok := m.(messages.Queued); !ok || q.Ahead != ahead || q.RetryAfter.Round(time.Second/10) != after {
			s.Errorf("%+v, want %d ahead, which take %v", m, ahead, after)
		}
	}
}

// RetryAfter follows how fast requests leave.
func TestRetryAfterIsWhatTheLineTakes(t *testing.T) {
	s := newScene(t, flow.Limits{})
	s.askMany(1, 60)
	s.leave(1, 11, time.Second)
	s.told(100, 48, 48*time.Second)
}

// The time in which no request waited does not count.
func TestRetryAfterAfterAPause(t *testing.T) {
	s := newScene(t, flow.Limits{})
	for id := range messages.RequestID(60) {
		s.askMany(1+id, 1)
		s.leave(1+id, 1, 100*time.Millisecond)
	}
	s.actor.Advance(10 * time.Minute)
	s.askMany(100, 1)
	s.leave(100, 1, 100*time.Millisecond)
	s.askMany(200, 21)
	s.told(221, 20, 2*time.Second)
}

// A line of which few leave is slow, however few; so is one of which none has left for long.
func TestRetryAfterOfASlowLine(t *testing.T) {
	s := newScene(t, flow.Limits{})
	full := func(id messages.RequestID, pause time.Duration) {
		s.turn(id)
		s.actor.Tell(messages.TurnFailed{Request: id, Cycle: s.cycles[id]})
		s.actor.Advance(pause)
	}
	s.askMany(1, 40)
	s.told(100, 39, time.Second) // none had the time to leave
	for id := range messages.RequestID(5) {
		full(1+id, 10*time.Second)
		s.actor.Tell(messages.RoomChanged{})
		s.leave(1+id, 1, 0)
	}
	full(6, 0)
	s.told(101, 36, time.Minute)
	for id := range messages.RequestID(33) {
		s.actor.Tell(messages.WaitEnded{Request: 7 + id}) // their clients left
	}
	s.told(102, 4, 40*time.Second) // 6, 40, 100, 101
	s.actor.Advance(12 * time.Second)
	s.told(103, 5, time.Minute)
}

// A turn whose request ends without a pick is no dispatch.
func TestRetryAfterCountsPicks(t *testing.T) {
	s := newScene(t, flow.Limits{})
	s.askMany(1, 20)
	for id := range messages.RequestID(6) {
		s.turn(1 + id)
		s.actor.Advance(time.Second)
		s.actor.Tell(messages.WaitEnded{Request: 1 + id})
	}
	s.leave(7, 1, time.Second)
	s.told(100, 12, time.Minute)
}
