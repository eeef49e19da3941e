package capacity_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/fairness"
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

// A request whose loop hangs holds up no other, and keeps its place until it answers.
func TestTurnThatIsNotAnsweredHoldsUpNoOther(t *testing.T) {
	s := newScene(t, flow.Limits{})
	for id := range messages.RequestID(3) {
		s.asks(id+1, tenant("a"), 0)
	}
	s.turn(1)
	s.actor.Advance(2 * time.Second)
	s.turn(2)
	s.actor.Tell(messages.TurnFailed{Request: 1, Cycle: s.cycles[1]})
	s.turn(0)
	s.actor.Tell(messages.WaitEnded{Request: 2, Endpoint: place(1)})
	s.turn(1)
	s.actor.Advance(2 * time.Second)
	s.turn(3)
	s.actor.Tell(messages.WaitEnded{Request: 1, Endpoint: place(1)}) // it was picked for after all
	s.actor.Tell(messages.WaitEnded{Request: 3, Endpoint: place(1)})
	if got := s.metric("signalbox_flow_turns_overdue_total"); got != 2 {
		t.Errorf("%v turns were overdue, want 2", got)
	}
	s.waits(0)
	if s.line.Waits() {
		t.Error("the line says that a request waits")
	}
}

// A request that is late with its answer when the process ends is answered once it has.
func TestLateRequestOfAClosedLine(t *testing.T) {
	s := newScene(t, flow.Limits{})
	s.asks(1, tenant("a"), 0)
	s.turn(1)
	s.actor.Advance(2 * time.Second)
	s.actor.Tell(messages.LineClosed{})
	s.cycles[1].Got()
	s.actor.Tell(messages.TurnFailed{Request: 1, Cycle: s.cycles[1]})
	s.cycles[1].Got(messages.Evicted{Reason: messages.ShuttingDown, RetryAfter: time.Second})
}

// Should the answer never come, the line forgets the request once its time is over.
func TestTurnThatIsNeverAnswered(t *testing.T) {
	s := newScene(t, flow.Limits{})
	s.asks(1, tenant("a"), 0)
	s.turn(1)
	s.actor.Advance(time.Minute)
	if !s.line.Waits() {
		t.Error("no request waits any more, and its time has just ended")
	}
	s.actor.Advance(2 * time.Second)
	if s.line.Waits() || s.actor.Timers() > 0 {
		t.Errorf("%d requests, %d timers; want none", s.line.Len(), s.actor.Timers())
	}
}

// A turn that ends without a pick costs its flow nothing.
func TestTurnWithoutAPickIsNotCharged(t *testing.T) {
	for name, late := range map[string]time.Duration{"in time": 0, "late": 2 * time.Second} {
		s := newScene(t, flow.Limits{})
		s.settings.Default.Fairness = new(fairness.Token)
		s.actor.Tell(messages.QueueingReplaced{})
		s.asks(1, tenant("a"), 0)
		s.turn(1)
		s.actor.Advance(late)
		s.actor.Tell(messages.WaitEnded{Request: 1})
		if got := s.queried().Bands.At(0).Flows.At(0); got.Service != 0 || got.Served != 0 {
			t.Errorf("%s: its flow was charged %d and served at dispatch %d, want none", name, got.Service, got.Served)
		}
		s.asks(2, tenant("a"), 0)
		s.turn(2)
		s.actor.Tell(messages.WaitEnded{Request: 2, Endpoint: place(1)})
		if got := s.queried().Bands.At(0).Flows.At(0); got.Service != 5 {
			t.Errorf("%s: charged %d for a prompt of 5", name, got.Service)
		}
	}
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
