package pool_test

import (
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// hangs checks which loops have been passed over so far.
func (s *announcing) hangs(want ...int) {
	s.Helper()
	if !slices.Equal(s.hung, want) {
		s.Errorf("loops %v hang, want %v", s.hung, want)
	}
	all, err := s.registry.Gather()
	if err != nil {
		s.Fatal(err)
	}
	n := -1.0
	for _, f := range all {
		if f.GetName() == "signalbox_pool_loops_passed_over_total" {
			n = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if n != float64(len(want)) {
		s.Errorf("%v loops counted, want %d", n, len(want))
	}
}

func TestAnEndpointIsForgottenAfterItsLastPick(t *testing.T) {
	s := newAnnouncing(t)
	s.discover(spec(a), spec(b))
	s.announced(a, b)
	s.acknowledge()
	s.discover(spec(b))
	s.announced(b, a) // loops may be picking it
	s.holds(2, id(1, 2))
	s.barrier(2)
	s.actor.Tell(messages.LoopPassed{Loop: 0, Version: 2})
	s.proxies.Got()
	s.actor.Tell(messages.LoopPassed{Loop: 1, Version: 2})
	s.announced(b, "-"+a)
	s.actor.Advance(2*time.Second - 1)
	s.proxies.Got()
	s.actor.Advance(1)
	s.announced(b)
	s.discover(spec(b), spec(a)) // back again, it is unknown
	s.announced(b, a)
	s.holds(2, id(1, 2))
	s.acknowledge()
	s.holds(3, id(1, 2), id(2, 3))
}

func TestALateLoopIsWaitedFor(t *testing.T) {
	s := newAnnouncing(t)
	s.discover(spec(a), spec(b), spec(c))
	s.announced(a, b, c)
	s.acknowledge()
	s.discover(spec(b), spec(c))
	s.announced(b, c, a)
	s.actor.Advance(time.Minute)
	s.discover(spec(c))
	s.announced(c, a, b)
	s.actor.Tell(messages.LoopPassed{Loop: 0, Version: 3})
	s.actor.Tell(messages.LoopPassed{Loop: 1, Version: 2})
	s.announced(c, "-"+a, b)
	s.actor.Advance(2*time.Second - 1)
	s.proxies.Got()
	s.actor.Advance(1)
	s.announced(c, b)
	s.actor.Tell(messages.LoopPassed{Loop: 1, Version: 3})
	s.announced(c, "-"+b)
	s.actor.Advance(2 * time.Second)
	s.announced(c)
	s.actor.Advance(time.Hour)
	s.proxies.Got()
	s.holds(3, id(2, 3))
	s.hangs()
}

func TestABarrierThatIsLostIsRaisedAgain(t *testing.T) {
	s := newAnnouncing(t)
	s.discover(spec(a), spec(b))
	s.announced(a, b)
	s.acknowledge()
	s.discover(spec(b))
	s.announced(b, a)
	s.barrier(2)
	s.actor.Tell(messages.LoopPassed{Loop: 0, Version: 2})
	s.actor.Advance(time.Second)
	s.discover()
	s.announced(a, b)
	s.barrier(3)
	s.actor.Advance(time.Second)
	s.loops[1].Got() // asked for the newer one a second ago
	s.actor.Advance(time.Second)
	again := messages.SnapshotReplaced{Version: 3, Pool: s.actor}
	s.loops[0].Got(again)
	again.Loop = 1
	s.loops[1].Got(again)
	s.discover(spec(b))
	s.announced(b, a)
	s.actor.Advance(2 * time.Second)
	again.Version = 2 // of the two it is what is left
	s.loops[0].Got()
	s.loops[1].Got(again)
	s.actor.Tell(messages.LoopPassed{Loop: 1, Version: 2})
	s.announced(b, "-"+a)
	s.actor.Advance(2 * time.Second)
	s.announced(b)
	s.loops[1].Got()
	if n := s.actor.Timers(); n != 0 {
		t.Errorf("%d timers are left", n)
	}
}

func TestALoopThatHangsIsWaitedForTwoMinutes(t *testing.T) {
	s := newAnnouncing(t)
	s.discover(spec(a), spec(b))
	s.announced(a, b)
	s.acknowledge()
	s.discover(spec(b))
	s.announced(b, a)
	s.actor.Tell(messages.LoopPassed{Loop: 0, Version: 2})
	s.actor.Advance(2*time.Minute - 1)
	s.discover(spec(b), spec(c)) // nothing else waits
	s.announced(b, c, a)
	s.acknowledge()
	s.holds(3, id(1, 2), id(2, 3))
	s.hangs()
	s.actor.Advance(1)
	s.announced(b, c, "-"+a)
	s.hangs(1)
	s.actor.Advance(2 * time.Second)
	s.announced(b, c)
	s.discover(spec(b)) // the next one waits as long
	s.announced(b, c)
	s.actor.Tell(messages.LoopPassed{Loop: 0, Version: 4})
	s.actor.Advance(2*time.Minute - 1)
	s.proxies.Got()
	s.actor.Tell(messages.LoopPassed{Loop: 1, Version: 4})
	s.announced(b, "-"+c)
	s.actor.Advance(1)
	s.proxies.Got()
	s.hangs(1)
}

func TestAnEndpointThatComesBackIsStillKnown(t *testing.T) {
	s := newAnnouncing(t)
	s.discover(spec(a))
	s.announced(a)
	s.acknowledge()
	s.discover()
	s.announced(a)
	s.holds(2)
	s.barrier(2)
	s.discover(spec(a))
	s.announced(a)
	s.holds(3, id(1, 2))
	s.actor.Tell(messages.LoopPassed{Loop: 0, Version: 2})
	s.actor.Tell(messages.LoopPassed{Loop: 1, Version: 2})
	s.actor.Advance(time.Minute)
	s.proxies.Got()
	s.holds(3, id(1, 2))
}

func TestALoopWithoutAShardHoldsNothingUp(t *testing.T) {
	s := newAnnouncing(t)
	s.discover(spec(a))
	s.announced(a)
	s.acknowledge()
	s.loops[0].Close()
	s.discover()
	s.announced(a)
	s.actor.Tell(messages.LoopPassed{Loop: 1, Version: 2})
	s.announced("-" + a)
	s.discover(spec(b))
	s.announced(b, "-"+a)
	s.acknowledge()
	s.loops[1].Close()
	s.discover()
	told := s.proxies.Told()
	for _, e := range told[len(told)-1].(messages.EndpointsAnnounced).Endpoints.All() {
		if !e.Leaving {
			t.Errorf("%s does not leave", e.Address)
		}
	}
}

func TestWhatWasNeverPickedIsForgottenAtOnce(t *testing.T) {
	s := newAnnouncing(t)
	s.discover(spec(a))
	s.announced(a)
	s.discover(spec(b))
	s.announced(b)
	s.acknowledge()
	s.holds(1, id(1, 2))
	s.loops[0].Got()
}
