package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestWaitThatIsTooLongIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		pool []*endpoints.Endpoint
		want messages.Reason
	}{
		"with endpoints":         {nil, messages.TTLExpired},
		"D73 with an empty pool": {[]*endpoints.Endpoint{}, messages.NoEndpoints},
	} {
		t.Run(name, func(t *testing.T) {
			s := waiting(t)
			if c.pool != nil {
				endpoints.Publisher{Published: s.pool}.Publish(endpoints.NewSnapshot(4, c.pool), nil)
			}
			s.cycle.Advance(turnLimit - 1)
			s.stream.Got()
			s.cycle.Advance(1)
			s.stream.Got(messages.PickFailed{Reason: c.want, RetryAfter: time.Second})
			if r := s.recorded(c.want); r.Status != status(c.want) {
				t.Errorf("status %d in the record, want %d", r.Status, status(c.want))
			}
		})
	}
}

func TestPickThatComesLateIsRefused(t *testing.T) {
	s := coming(t)
	s.cycle.Delay(pickLimit)
	s.arrive()
	s.stream.Got(messages.PickMade{Destinations: messages.ListOf(addresses[first], addresses[second])})

	s = coming(t)
	s.cycle.Delay(pickLimit + 1)
	s.arrive()
	s.stream.Got(messages.PickFailed{Reason: messages.PickTimeout, RetryAfter: time.Second})
	s.prefix.Got()
	s.over(messages.PickTimeout)

	s = coming(t)
	s.clock.step = int64(pickLimit) + 1
	s.arrive()
	s.stream.Got(messages.PickFailed{Reason: messages.PickTimeout, RetryAfter: time.Second})
	s.prefix.Got()
	s.over(messages.PickTimeout)
}

func TestSilentResponseIsRevoked(t *testing.T) {
	s := serving(t)
	s.cycle.Advance(idleLimit - 1)
	s.cycle.Tell(messages.ResponseStarted{Status: 200}) // each sign of life puts it off
	s.cycle.Advance(idleLimit - 1)
	s.cycle.Tell(messages.FirstTokenSeen{At: s.cycle.Clock()})
	s.cycle.Advance(idleLimit - 1)
	s.cycle.Tell(messages.ResponseProgressed{})
	s.cycle.Advance(idleLimit - 1)
	s.stream.Got()
	s.answering(1, 0)
	s.cycle.Advance(1)
	s.stream.Got(messages.ServingRevoked{Reason: messages.ResponseIdle})
	s.over(messages.ResponseIdle)
}

// On a WebSocket the server may be silent for as long as the request may take.
func TestSilentWebSocketGoesOn(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 101})
	s.cycle.Advance(3 * idleLimit)
	s.outlier.Got()
	s.stream.Got()
	s.cycle.Tell(messages.ResponseEnded{})
	s.over(messages.NoReason)
}

func TestDeadlineOfTheWholeRequest(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*scene)
		want   messages.StreamMsg
	}{
		"while it waits": {func(s *scene) {
			flow.LineWriter{Line: &s.line}.Set(1, 0)
			s.arrive()
		}, messages.PickFailed{Reason: messages.RequestTimeout}},
		"in the response": {func(s *scene) {
			s.arrive()
			s.stream.Told()
			s.cycle.Tell(messages.ResponseStarted{Status: 200})
		}, messages.ServingRevoked{Reason: messages.RequestTimeout}},
	} {
		t.Run(name, func(t *testing.T) {
			s := gated(t)
			s.ready(10 * time.Second)
			c.before(s)
			s.cycle.Advance(10*time.Second - 1)
			s.stream.Got()
			s.cycle.Advance(1)
			s.stream.Got(c.want)
			s.over(messages.RequestTimeout)
		})
	}
}

func TestTimerOfAnEarlierWaitIsVoid(t *testing.T) {
	s := waiting(t)
	s.cycle.Advance(turnLimit - 1)
	s.cycle.Tell(messages.CycleDeadlinePassed{Generation: 99})
	s.stream.Got()
	s.cycle.Tell(messages.Dispatched{})
	s.stream.Told()
	s.cycle.Advance(tokenLimit - 1) // the wait's timer fires, and finds that the cycle waits for something else
	s.stream.Got()
	s.load(1, 0)
	if n := s.cycle.Timers(); n != 1 {
		t.Errorf("%d timers, want 1", n)
	}
}

func TestRevokedServingIsToldOnce(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.Revoked{Reason: messages.NoCapacity, RetryAfter: time.Second})
	s.stream.Got(messages.ServingRevoked{Reason: messages.NoCapacity, RetryAfter: time.Second})
	s.cycle.Tell(messages.Revoked{Reason: messages.NoCapacity})
	s.stream.Got()
	s.load(1, 0)
	s.cycle.Tell(messages.StreamGone{Answered: messages.NoCapacity})
	s.outlier.Got()
	s.prefix.Got(messages.PromptEnded{Request: 7, Failed: true})
	s.over(messages.NoCapacity)
}

func TestCrashWhileWaitingIsAnsweredAndGivesBack(t *testing.T) {
	s := waiting(t)
	s.cycle.Crash()
	s.stream.Got(messages.PickFailed{Reason: messages.Internal})
	s.prefix.Got()
	s.over(messages.Internal)
}

func TestCrashOfAPluginHoldsNothing(t *testing.T) {
	s := coming(t)
	s.plan.Profiles()[0].Picker.Picker = pickFunc(func() []int { panic("plugin") })
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		s.arrive()
	}()
	s.cycle.Crash()
	s.stream.Got(messages.PickFailed{Reason: messages.Internal})
	s.over(messages.Internal)
}

func TestCrashInTheResponseOwesNoAnswerButGivesBack(t *testing.T) {
	s := serving(t)
	s.cycle.Crash()
	s.stream.Got()
	s.prefix.Got(messages.PromptEnded{Request: 7, Failed: true})
	s.over(messages.Internal)
}

func TestCrashBeforeTheFirstMessageTellsNothing(t *testing.T) {
	s := newScene(t)
	s.cycle.Crash()
	s.stream.Got()
	if len(s.ended) != 0 {
		t.Errorf("%d records, want none", len(s.ended))
	}
}

// A response that takes longer than the limit is load for as long as its entries come, the first of which may come
// after the limit, and its true end counts.
func TestResponseLongerThanTheLimit(t *testing.T) {
	s := newScene(t)
	s.logged = 8 * time.Second
	s.play()
	s.ready(24 * time.Hour)
	s.arrive()
	s.prefix.Told()
	s.stream.Told()
	s.cycle.Tell(messages.ResponseStarted{Status: 200, Bypasses: true})
	s.cycle.Tell(messages.StreamGone{Completed: true, Logged: true, Log: messages.LogSeen})
	for range 3 {
		s.cycle.Advance(5 * time.Second)
		s.load(1, 0)
		s.cycle.Tell(messages.ResponseOngoing{ResponseBytes: 1})
	}
	s.cycle.Advance(3 * time.Second)
	s.load(1, 0)
	s.cycle.Tell(messages.ResponseEnded{ResponseBytes: 400, Logged: messages.Logged{
		Status: 200, Served: addresses[first], Headers: time.Millisecond,
	}})
	if r := s.over(messages.NoReason); r.ResponseBytes != 400 {
		t.Errorf("record %+v, want 400 bytes", r)
	}
}
