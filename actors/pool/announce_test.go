package pool_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// announcing is a scene with proxies, and two loops that pass the barrier when the test says so.
type announcing struct {
	*scene
	proxies *runtimetest.Probe[messages.XdsMsg]
	loops   []*runtimetest.Probe[messages.ShardMsg]
	number  uint64
}

func newAnnouncing(t *testing.T) *announcing {
	s := &announcing{scene: newScene(t), proxies: runtimetest.NewProbe[messages.XdsMsg](t)}
	for range 2 {
		s.loops = append(s.loops, runtimetest.NewProbe[messages.ShardMsg](t))
	}
	s.deps.Announcer = s.proxies
	s.deps.Shards = func() []messages.Sink[messages.ShardMsg] {
		return []messages.Sink[messages.ShardMsg]{s.loops[0], s.loops[1]}
	}
	s.start()
	return s
}

// announced says what the proxies heard, and nothing else; an address with a minus is leaving.
func (s *announcing) announced(want ...messages.Address) {
	s.Helper()
	s.number++
	list := make([]messages.AnnouncedEndpoint, 0, len(want))
	for _, w := range want {
		e := messages.AnnouncedEndpoint{Address: w}
		if w[0] == '-' {
			e = messages.AnnouncedEndpoint{Address: w[1:], Leaving: true}
		}
		list = append(list, e)
	}
	s.proxies.Got(messages.EndpointsAnnounced{Number: s.number, Endpoints: messages.TakeList(list), Pool: s.actor})
}

func (s *announcing) acknowledge() { s.actor.Tell(messages.EndpointsAcknowledged{Number: s.number}) }

func (s *announcing) barrier(version uint64) {
	s.Helper()
	for i, l := range s.loops {
		l.Got(messages.SnapshotReplaced{Loop: i, Version: version, Pool: s.actor})
	}
}

func TestAnEndpointIsPickedOnceTheProxiesKnowIt(t *testing.T) {
	s := newAnnouncing(t)
	s.discover(spec(a))
	s.announced(a)
	s.holds(0)
	if s.scrapers[id(0, 1)] == nil {
		t.Error("it is not scraped while it waits")
	}
	s.acknowledge()
	s.holds(1, id(0, 1))
	s.discover(spec(b), spec(a))
	s.announced(b, a)
	s.holds(1, id(0, 1))
	s.acknowledge()
	s.holds(2, id(1, 2), id(0, 1))
	s.acknowledge()
	s.actor.Advance(time.Minute)
	s.holds(2, id(1, 2), id(0, 1))
	s.proxies.Got()
}

func TestAProxyThatIsLateIsWaitedForASecond(t *testing.T) {
	s := newAnnouncing(t)
	s.discover(spec(a))
	s.announced(a)
	s.actor.Advance(500 * time.Millisecond)
	s.discover(spec(a), spec(b))
	s.announced(a, b)
	s.actor.Advance(499 * time.Millisecond)
	s.holds(0)
	s.actor.Advance(time.Millisecond)
	s.holds(1, id(0, 1)) // b has half a second left
	s.actor.Advance(500 * time.Millisecond)
	s.holds(2, id(0, 1), id(1, 2))
}

func TestAnAcknowledgementCountsForWhatItKnew(t *testing.T) {
	s := newAnnouncing(t)
	s.discover(spec(a))
	s.announced(a)
	s.discover(spec(a), spec(b))
	s.announced(a, b)
	s.actor.Tell(messages.EndpointsAcknowledged{Number: 1})
	s.holds(1, id(0, 1))
	s.actor.Tell(messages.EndpointsAcknowledged{Number: 9}) // of another incarnation
	s.holds(1, id(0, 1))
	s.acknowledge()
	s.holds(2, id(0, 1), id(1, 2))
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

func TestAnotherIncarnationOfAnAddressWaitsForNobody(t *testing.T) {
	s := newAnnouncing(t)
	s.discover(spec(a))
	s.announced(a)
	s.acknowledge()
	s.actor.Tell(messages.EndpointRestarted{Endpoint: id(0, 1)})
	s.announced(a)
	s.holds(2, id(1, 2))
	s.discover(spec(a, "role", "decode"))
	s.announced(a)
	s.holds(3, id(2, 3))
	s.discover(spec(a, "role", "decode"), spec(b))
	s.announced(a, b)
	s.actor.Tell(messages.EndpointRestarted{Endpoint: id(3, 4)}) // b, which waits
	s.announced(a, b)
	s.holds(3, id(2, 3))
	s.acknowledge()
	s.holds(4, id(2, 3), id(4, 5))
}

func TestNobodyIsWaitedForWhereNobodyTakesIt(t *testing.T) {
	s := newAnnouncing(t)
	s.proxies.Close()
	s.discover(spec(a))
	s.holds(1, id(0, 1))
}

func TestACrashLosesNothingThatWaits(t *testing.T) {
	s := newAnnouncing(t)
	s.discover(spec(a), spec(b))
	s.announced(a, b)
	s.acknowledge()
	s.discover(spec(b), spec(c))
	s.announced(b, c, a)
	s.actor.Crash()
	s.holds(3, id(1, 2), id(2, 3))
	s.start()
	s.number = 0
	s.announced(b, c)
	s.holds(3, id(1, 2), id(2, 3))
}
