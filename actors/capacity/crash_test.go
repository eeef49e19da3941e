package capacity_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestDeadCyclesHaveNoTurn(t *testing.T) {
	s := newScene(t, flow.Limits{})
	for id := range messages.RequestID(3) {
		s.asks(id+1, tenant("a"), 0)
	}
	s.turn(1)
	s.cycles[2].Close()
	s.actor.Tell(messages.WaitEnded{Request: 1})
	s.turn(3)
}

func TestTurnThatIsNotAnsweredIsGivenUp(t *testing.T) {
	s := newScene(t, flow.Limits{})
	s.asks(1, tenant("a"), 0)
	s.asks(2, tenant("a"), 0)
	s.turn(1)
	s.actor.Advance(2 * time.Second)
	s.turn(2)
	s.actor.Tell(messages.TurnFailed{Request: 1, Cycle: s.cycles[1]})
	s.cycles[1].Got(messages.Evicted{Reason: messages.Internal})
	s.actor.Tell(messages.WaitEnded{Request: 2})
	s.actor.Advance(2 * time.Second)
	if got := s.metric("signalbox_flow_turns_overdue_total"); got != 1 {
		t.Errorf("%v turns were overdue, want 1", got)
	}
	s.waits(0)
}

func TestCrashAnswersAllWhoWait(t *testing.T) {
	s := newScene(t, flow.Limits{})
	for id := range messages.RequestID(3) {
		s.asks(id+1, tenant("a"), 0)
	}
	s.turn(1)
	s.actor.Crash()
	s.cycles[2].Got(messages.Evicted{Reason: messages.Internal})
	s.cycles[3].Got(messages.Evicted{Reason: messages.Internal})
	s.waits(0)
	s.play()
	s.cycles[1].Got() // it may be picked for
	s.actor.Tell(messages.TurnFailed{Request: 1, Cycle: s.cycles[1]})
	s.cycles[1].Got(messages.Evicted{Reason: messages.Internal})
}

// brittle takes messages, but for one kind at which the actor that tells it panics.
type brittle struct {
	*runtimetest.Probe[messages.CycleMsg]
}

func (b brittle) Tell(m messages.CycleMsg) bool {
	if _, ok := m.(messages.Rejected); ok {
		panic("brittle")
	}
	return b.Probe.Tell(m)
}

// The request that the message in hand is about is answered too, though it does not wait.
func TestCrashAnswersTheRequestInHand(t *testing.T) {
	s := newScene(t, flow.Limits{Requests: 1})
	for id := range messages.RequestID(2) {
		s.asks(id+1, tenant("a"), 0)
	}
	cycle := brittle{runtimetest.NewProbe[messages.CycleMsg](t)}
	func() {
		defer func() {
			if recover() == nil {
				t.Fatal("it did not panic")
			}
		}()
		s.actor.Tell(messages.WaitRequested{
			Request: 3, Flow: tenant("a"), Arrived: s.actor.Clock(), Deadline: s.actor.Clock().Add(time.Minute),
			Cycle: cycle,
		})
	}()
	s.actor.Crash()
	cycle.Got(messages.Evicted{Reason: messages.Internal})
}
