package recorder_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// askRings tells a query and gives the number under which shard 1 got it.
func (s *scene) askRings(m messages.RingsQueried) messages.QueryID {
	s.Helper()
	m.Admin = s.admin
	s.actor.Tell(m)
	told := s.shards[1].Told()
	if len(told) != 1 {
		s.Fatalf("told %+v, want one query", told)
	}
	q := told[0].(messages.RingQueried)
	if want := (messages.RingQueried{Query: q.Query, Newest: m.Newest, Recorder: s.actor}); q != want {
		s.Errorf("told %+v, want %+v", q, want)
	}
	return q.Query
}

func ring(loop int) messages.Ring {
	return messages.Ring{Loop: loop, Total: 9, Events: messages.ListOf(messages.RingEvent{Actor: uint64(loop)})}
}

func TestRingsOfAllLoopsAreGatheredInTheirOrder(t *testing.T) {
	s := newScene(t)
	q := s.askRings(messages.RingsQueried{Loop: -1, Newest: 7})
	s.actor.Tell(messages.RingFound{Query: q, Ring: ring(1)})
	s.admin.Got()
	s.actor.Tell(messages.RingFound{Query: q, Ring: ring(0)})
	s.admin.Got(messages.RingsAnswered{Rings: messages.ListOf(ring(0), ring(1)), Loops: 2})
	s.actor.Tell(messages.RingFound{Query: q, Ring: ring(0)}) // late
	s.actor.Advance(time.Minute)
	s.admin.Got()
	if n := s.actor.Timers(); n != 0 {
		t.Errorf("%d timers, want 0", n)
	}
}

func TestOneLoopIsAskedAlone(t *testing.T) {
	s := newScene(t)
	q := s.askRings(messages.RingsQueried{Loop: 1, Newest: 7})
	s.shards[0].Got()
	s.actor.Tell(messages.RingFound{Query: q, Ring: ring(1)})
	s.admin.Got(messages.RingsAnswered{Rings: messages.ListOf(ring(1)), Loops: 2})
}

func TestLoopThatDoesNotExistIsAnsweredAtOnce(t *testing.T) {
	s := newScene(t)
	s.actor.Tell(messages.RingsQueried{Loop: 2, Newest: 7, Admin: s.admin})
	s.admin.Got(messages.RingsAnswered{Rings: messages.TakeList[messages.Ring](nil), Loops: 2})
}

func TestRingsThatDoNotComeMakeItPartial(t *testing.T) {
	s := newScene(t)
	q := s.askRings(messages.RingsQueried{Loop: -1})
	s.actor.Tell(messages.RingFound{Query: q, Ring: ring(1)})
	s.actor.Advance(time.Second - 1)
	s.admin.Got()
	s.actor.Advance(1)
	s.admin.Got(messages.RingsAnswered{Rings: messages.ListOf(ring(1)), Loops: 2, Partial: true})
	s.shards[0].Close()
	q = s.askRings(messages.RingsQueried{Loop: -1})
	s.actor.Tell(messages.RingFound{Query: q, Ring: ring(1)})
	s.admin.Got(messages.RingsAnswered{Rings: messages.ListOf(ring(1)), Loops: 2, Partial: true})
}

func TestQueriesOfBothKindsAreCountedTogether(t *testing.T) {
	s := newScene(t)
	for range 32 {
		s.askRings(messages.RingsQueried{Loop: 1})
		s.ask(messages.RequestQueried{Newest: 1})
	}
	s.actor.Tell(messages.RingsQueried{Loop: 1, Admin: s.admin})
	s.admin.Got(messages.RingsAnswered{Loops: 2, Partial: true})
	s.actor.Tell(messages.RequestQueried{Newest: 1, Admin: s.admin})
	s.admin.Got(messages.RecordsAnswered{Partial: true})
}

func TestCrashAnswersRingsThatAreOpen(t *testing.T) {
	s := newScene(t)
	q := s.askRings(messages.RingsQueried{Loop: -1})
	s.actor.Tell(messages.RingFound{Query: q, Ring: ring(1)})
	s.actor.Crash()
	s.admin.Got(messages.RingsAnswered{Rings: messages.ListOf(ring(1)), Loops: 2, Partial: true})
}
