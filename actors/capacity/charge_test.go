package capacity_test

import (
	"testing"

	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/messages"
)

// byTokens returns a scene whose flows share tokens, and of whose flows a and b two requests each wait behind one of x.
func byTokens(t *testing.T) *scene {
	s := newScene(t, flow.Limits{})
	s.settings.Default.Fairness = new(fairness.Token)
	s.actor.Tell(messages.QueueingReplaced{})
	for id, f := range []string{"x", "a", "a", "b", "b"} {
		s.asks(messages.RequestID(id+1), tenant(f), 0)
	}
	s.turn(1)
	return s
}

func TestFlowIsChargedForWhatRuns(t *testing.T) {
	s := byTokens(t)
	s.actor.Tell(messages.TokensUsed{Flow: tenant("a"), Output: 6})
	s.actor.Tell(messages.WaitEnded{Request: 1})
	s.turn(4)
	s.actor.Tell(messages.TokensUsed{Flow: tenant("b"), Output: 10})
	s.actor.Tell(messages.WaitEnded{Request: 4})
	s.turn(2)
	s.actor.Tell(messages.TokensUsed{Flow: tenant("b"), Output: -10})
	s.actor.Tell(messages.WaitEnded{Request: 2})
	s.turn(5)
}

// A turn that a dead cycle could not take costs its flow nothing.
func TestTurnOfADeadCycleIsNotCharged(t *testing.T) {
	s := byTokens(t)
	s.cycles[2].Close()
	s.actor.Tell(messages.WaitEnded{Request: 1})
	s.turn(3)
}
