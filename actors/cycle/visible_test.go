package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// visible returns a scene whose response was thought to bypass us, until its body came: the proxy was asked for it.
func visible(t *testing.T) *scene {
	t.Helper()
	s := serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 200, Bypasses: true})
	s.prefix.Got(messages.PromptServed{Request: 7, Endpoint: first})
	s.cycle.Tell(messages.FirstTokenSeen{At: s.cycle.Clock()})
	s.answering(1, 0)
	if n := s.metric("signalbox_outlived_requests"); n != 0 {
		t.Errorf("%v requests outlive their stream, want none", n)
	}
	return s
}

// A response that is visible ends with its stream, for its client or its proxy is gone.
func TestVisibleResponseEndsWithItsStream(t *testing.T) {
	s := visible(t)
	s.cycle.Tell(messages.StreamGone{ResponseBytes: 30})
	s.inFlight(0)
	if r := s.over(messages.ClientGone); r.Bypassed || r.ResponseBytes != 30 {
		t.Errorf("record %+v, want what was visible", r)
	}

	s = serving(t) // its first piece was empty
	s.cycle.Tell(messages.ResponseStarted{Status: 200, Bypasses: true})
	s.cycle.Tell(messages.StreamGone{})
	s.inFlight(0)
	s.over(messages.ClientGone)
}

// Neither a doubt of the log nor its deadline ends a visible response, but silence and Revoked do.
func TestVisibleResponseHasTheDeadlinesOfOneThatIsSeen(t *testing.T) {
	s := visible(t)
	s.cycle.Tell(messages.EntriesDoubted{})
	for range 3 {
		s.cycle.Advance(idleLimit - 1)
		s.answering(1, 0)
		s.cycle.Tell(messages.ResponseProgressed{At: s.cycle.Clock()})
	}
	s.cycle.Advance(idleLimit)
	s.stream.Got(messages.ServingRevoked{Reason: messages.ResponseIdle})
	s.over(messages.ResponseIdle)

	s = visible(t)
	s.cycle.Tell(messages.Revoked{Reason: messages.NoCapacity})
	s.stream.Got(messages.ServingRevoked{Reason: messages.NoCapacity})
	s.cycle.Tell(messages.StreamGone{Answered: messages.NoCapacity})
	s.over(messages.NoCapacity)
}

// A request whose pick was not sent is no load after its stream, whatever its log does.
func TestRequestThatEndsBeforeItsPickIsSentIsNoLoad(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.StreamGone{Logged: true})
	s.inFlight(0)
	s.cycle.Advance(time.Second)
	s.over(messages.ClientGone)
	s.outlier.Got(seen(first, messages.ClientsLeft))
}
