package capacity_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// wants has a request wait for one endpoint.
func (s *scene) wants(id messages.RequestID, at uint32) {
	s.cycles[id] = runtimetest.NewProbe[messages.CycleMsg](s.TB)
	s.actor.Tell(messages.WaitRequested{
		Request: id, Flow: tenant("a"), Wanted: place(at), Arrived: s.actor.Clock(),
		Deadline: s.actor.Clock().Add(time.Minute), Cycle: s.cycles[id],
	})
}

// stays has the turn of a request fail, which waits for an endpoint from then on.
func (s *scene) stays(id messages.RequestID, at uint32) {
	s.actor.Tell(messages.TurnFailed{Request: id, Wanted: place(at), Cycle: s.cycles[id]})
}

// Requests that wait for one endpoint are asked when that one makes room, and not when another one does.
func TestRoomConcernsThoseThatWaitForIt(t *testing.T) {
	s := newScene(t, flow.Limits{})
	s.wants(1, 1)
	s.wants(2, 1)
	s.wants(3, 2)
	s.turn(1)
	s.stays(1, 1)
	s.turn(3)
	s.stays(3, 2)
	s.turn(0)
	s.actor.Tell(messages.RoomChanged{Endpoint: place(2)})
	s.turn(3)
	s.actor.Tell(messages.RoomChanged{Endpoint: place(1)}) // no matter to the one that tries
	s.stays(3, 2)
	s.turn(1)
	s.actor.Tell(messages.RoomChanged{Endpoint: place(1)}) // perhaps after it had looked
	s.stays(1, 1)
	s.turn(1)
	s.stays(1, 1)
	s.turn(0)
	s.actor.Tell(messages.RoomChanged{}) // anywhere
	s.turn(1)
}

// Requests that wait for any endpoint of their class are asked wherever there is room.
func TestRoomAtOneEndpointConcernsAllClasses(t *testing.T) {
	s := newScene(t, flow.Limits{})
	for id := range messages.RequestID(2) {
		s.asks(id+1, tenant("a"), uint64(id+1))
	}
	fail := func(id messages.RequestID) { s.actor.Tell(messages.TurnFailed{Request: id, Cycle: s.cycles[id]}) }
	s.turn(1)
	fail(1)
	s.turn(2)
	fail(2)
	s.turn(0)
	s.actor.Tell(messages.RoomChanged{Endpoint: place(1)})
	s.turn(1)
	fail(1)
	s.turn(2)
}

// A request that waits for a full endpoint is asked again after a while, and may then wait for another one, or find
// room there. Those behind it are asked too, until one stays.
func TestPricesAreAskedAnew(t *testing.T) {
	s := newScene(t, flow.Limits{})
	for id := messages.RequestID(1); id <= 3; id++ {
		s.wants(id, 1)
	}
	s.turn(1)
	s.stays(1, 1)
	s.actor.Advance(49 * time.Millisecond)
	s.turn(0)
	s.actor.Advance(time.Millisecond)
	s.turn(1)
	s.actor.Tell(messages.WaitEnded{Request: 1, Endpoint: place(2)})
	s.turn(2)
	s.stays(2, 2)
	s.turn(3)
	s.stays(3, 1)
	s.turn(0)
	s.actor.Tell(messages.RoomChanged{Endpoint: place(2)})
	s.turn(2)
	s.actor.Tell(messages.WaitEnded{Request: 2})
	s.actor.Tell(messages.WaitEnded{Request: 3})
	if n := s.actor.Timers(); n != 0 {
		t.Errorf("%d timers are set while none waits, want none", n)
	}
}

// However many endpoints are full, asking takes a bounded part of the time.
func TestManyPricesAreAskedLessOften(t *testing.T) {
	s := newScene(t, flow.Limits{})
	for id := messages.RequestID(1); id <= 128; id++ {
		s.wants(id, uint32(id))
		s.turn(id)
		s.stays(id, uint32(id))
	}
	s.actor.Advance(50 * time.Millisecond) // of a timer that was set while they were few
	for id := messages.RequestID(1); id <= 128; id++ {
		s.turn(id)
		s.stays(id, uint32(id))
	}
	s.turn(0)
	s.actor.Advance(50 * time.Millisecond)
	s.turn(1)
}
