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
	hung    []int // loops that were waited for in vain
}

func newAnnouncing(t *testing.T) *announcing {
	s := &announcing{scene: newScene(t), proxies: runtimetest.NewProbe[messages.XdsMsg](t)}
	s.deps.Hangs = func(loop int, _ time.Duration) { s.hung = append(s.hung, loop) }
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

// announced checks that the proxies were told these addresses and nothing else; one with a minus is leaving.
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
	s.proxies.Got(messages.EndpointsAnnounced{Number: s.number, Endpoints: messages.TakeList(list), Found: s.found,
		Pool: s.actor})
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

func TestAnnouncementsSayWhenTheirChangeWasFound(t *testing.T) {
	s := newAnnouncing(t)
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	s.found = at(1)
	s.discover(spec(a), spec(b), spec(c))
	s.announced(a, b, c)
	s.acknowledge()
	s.found = at(2)
	s.discover(spec(b), spec(c))
	s.announced(b, c, a)
	s.found = at(3)
	s.discover(spec(c))
	s.announced(c, a, b)
	s.actor.Tell(messages.LoopPassed{Loop: 0, Version: 3})
	s.actor.Tell(messages.LoopPassed{Loop: 1, Version: 3})
	s.found = at(2) // the first of both
	s.announced(c, "-"+a, "-"+b)
	s.actor.Advance(2 * time.Second)
	s.found = time.Time{} // that they are forgotten now was not found
	s.announced(c)
	s.actor.Tell(messages.EndpointRestarted{Endpoint: id(2, 3)})
	s.announced(c)
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
