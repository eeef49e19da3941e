package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// picking is when a scene picks: its clock begins there.
var picking = time.Unix(1_800_000_000, 0)

func seen(e messages.EndpointID, what messages.Evidence) messages.EvidenceSeen {
	return messages.EvidenceSeen{Endpoint: e, Evidence: what, Picked: picking}
}

func tried(ended messages.ProbeEnded) messages.ProbeEnded {
	ended.Endpoint, ended.Since = first, picking
	return ended
}

func TestStatusIsEvidence(t *testing.T) {
	for name, c := range map[string]struct {
		started messages.ResponseStarted
		want    []messages.HealthMsg
		well    bool
	}{
		"well":               {messages.ResponseStarted{Status: 200}, nil, true},
		"the client's fault": {messages.ResponseStarted{Status: 404}, nil, true},
		"too many requests":  {messages.ResponseStarted{Status: 429}, nil, true},
		"overload":           {messages.ResponseStarted{Status: 503}, []messages.HealthMsg{seen(first, messages.Overload)}, false},
		"an error":           {messages.ResponseStarted{Status: 500}, []messages.HealthMsg{seen(first, messages.ServerError)}, false},
		"passed over":        {messages.ResponseStarted{Status: 200, Served: addresses[second]}, []messages.HealthMsg{seen(first, messages.ServedElsewhere)}, false},
		"passed over, and an error": {
			messages.ResponseStarted{Status: 502, Served: addresses[second]},
			[]messages.HealthMsg{seen(first, messages.ServedElsewhere), seen(second, messages.ServerError)}, false,
		},
		"served by a stranger": {messages.ResponseStarted{Status: 500, Served: "10.9.9.9:1"}, []messages.HealthMsg{seen(first, messages.ServedElsewhere)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			s.cycle.Tell(c.started)
			s.health.Got(c.want...)
			if got := s.pool.Snapshot().Endpoints[0].LastAnswer() != 0; got != c.well {
				t.Errorf("noted as well: %v, want %v", got, c.well)
			}
		})
	}
}

// Headers alone are no proof: an engine that hangs sends them.
func TestBodyIsProofOfAGoodAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		then   messages.CycleMsg
		want   bool
	}{
		"first byte":           {200, messages.FirstTokenSeen{}, true},
		"an end without bytes": {200, messages.ResponseEnded{}, true},
		"an error has bytes":   {500, messages.FirstTokenSeen{}, false},
		"it refuses":           {404, messages.StreamGone{}, true},
		"no headers are shown": {0, messages.FirstTokenSeen{}, true},
		"the client left":      {200, messages.StreamGone{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			s.cycle.Tell(messages.ResponseStarted{Status: c.status})
			s.cycle.Tell(c.then)
			if got := s.pool.Snapshot().Endpoints[0].LastProof() != 0; got != c.want {
				t.Errorf("noted as well: %v, want %v", got, c.want)
			}
		})
	}
}

func TestStreamThatEndsWithoutAResponseIsDoubted(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.StreamGone{})
	s.health.Got(seen(first, messages.EndedBare))

	s = serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 200})
	s.cycle.Tell(messages.StreamGone{})
	s.health.Got()
}

func TestSilenceIsToldOnceAndWaitedOut(t *testing.T) {
	for name, started := range map[string]bool{"before the response": false, "after its headers": true} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			if started {
				s.cycle.Tell(messages.ResponseStarted{Status: 200})
			}
			s.cycle.Advance(tokenLimit - 1)
			s.health.Got()
			s.cycle.Advance(1)
			s.health.Got(seen(first, messages.NoFirstToken))
			s.cycle.Advance(idleLimit - tokenLimit - 1)
			s.stream.Got()
			s.health.Got()
			s.cycle.Advance(1)
			s.stream.Got(messages.ServingRevoked{Reason: messages.ResponseIdle})
		})
	}
}

// An answer that is not streamed is silent until it is whole, and an error's body is no answer.
func TestSilenceThatIsNoEvidence(t *testing.T) {
	s := newScene(t)
	s.asked.Stream = false
	s.arrive(24 * time.Hour)
	s.cycle.Tell(messages.Dispatched{})
	s.stream.Told()
	s.cycle.Advance(idleLimit - 1)
	s.stream.Got()
	s.cycle.Advance(1)
	s.stream.Got(messages.ServingRevoked{Reason: messages.ResponseIdle})
	s.health.Got()

	s = serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 404})
	s.cycle.Advance(idleLimit)
	s.stream.Got(messages.ServingRevoked{Reason: messages.ResponseIdle})
	s.health.Got()
}

func TestBrokenConnectionInTheLogIsEvidence(t *testing.T) {
	for name, logged := range map[string]messages.Logged{
		"in the response": {Status: 200, Served: addresses[first], FirstToken: 1, Broken: true},
		"before it":       {Status: 503, Served: addresses[first], Broken: true},
		"nobody served":   {Status: 503, Broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			s.cycle.Tell(messages.StreamGone{Logged: true})
			s.cycle.Tell(messages.ResponseEnded{Logged: logged})
			s.health.Got(seen(first, messages.ConnectionBroken))
		})
	}
}

// trying is a scene whose first endpoint is suspended and tried.
func trying(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	s.try()
	return s
}

func (s *scene) try() {
	s.Helper()
	s.arrive(24 * time.Hour)
	s.plan.Profiles[0].Picker.Most = func() int { return 2 }
	s.suspend(first)
	s.cycle.Tell(messages.Dispatched{})
	s.stream.Got(messages.PickMade{Destinations: messages.ListOf(addresses[first], addresses[second])})
	s.load(1, 0)
}

// suspend suspends an endpoint, which may be tried at once.
func (s *scene) suspend(e messages.EndpointID) {
	s.pool.Snapshot().ByID(e).SetHealth(&endpoints.Health{Suspended: true, Why: messages.ServerError, Since: picking, Until: s.began})
}

func TestProbeIsAnsweredOnce(t *testing.T) {
	for name, c := range map[string]struct {
		then []messages.CycleMsg
		want []messages.HealthMsg
	}{
		"it is well": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 200}, messages.FirstTokenSeen{}, messages.ResponseEnded{}},
			[]messages.HealthMsg{tried(messages.ProbeEnded{Answered: true})},
		},
		"it refuses the request": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 404}, messages.StreamGone{}},
			[]messages.HealthMsg{tried(messages.ProbeEnded{Answered: true})},
		},
		"the client leaves after the headers": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 200}, messages.StreamGone{}},
			[]messages.HealthMsg{tried(messages.ProbeEnded{})},
		},
		"the access log tells of bytes": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 200}, messages.StreamGone{Logged: true}, messages.ResponseOngoing{ResponseBytes: 1}},
			[]messages.HealthMsg{tried(messages.ProbeEnded{Answered: true})},
		},
		"the access log tells a clean end": {
			[]messages.CycleMsg{
				messages.ResponseStarted{Status: 200}, messages.StreamGone{Logged: true},
				messages.ResponseEnded{Logged: messages.Logged{Status: 200, Served: addresses[first]}},
			},
			[]messages.HealthMsg{tried(messages.ProbeEnded{Answered: true})},
		},
		"it fails": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 500}, messages.ResponseEnded{}},
			[]messages.HealthMsg{tried(messages.ProbeEnded{Evidence: messages.ServerError})},
		},
		"it is passed over": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 200, Served: addresses[second]}, messages.ResponseEnded{}},
			[]messages.HealthMsg{tried(messages.ProbeEnded{Evidence: messages.ServedElsewhere})},
		},
		"the client leaves": {
			[]messages.CycleMsg{messages.StreamGone{}},
			[]messages.HealthMsg{tried(messages.ProbeEnded{Evidence: messages.EndedBare})},
		},
		"it is revoked": {
			[]messages.CycleMsg{messages.Revoked{Reason: messages.NoCapacity}}, []messages.HealthMsg{tried(messages.ProbeEnded{})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := trying(t)
			for _, m := range c.then {
				s.cycle.Tell(m)
			}
			s.health.Got(c.want...)
		})
	}
	t.Run("the cycle crashes", func(t *testing.T) {
		s := trying(t)
		s.cycle.Crash()
		s.health.Got(tried(messages.ProbeEnded{}))
	})
}

// Who was tried is well again by any good answer, also a late one, and a probe that was taken is given back.
func TestWhoWasTriedIsToldOf(t *testing.T) {
	t.Run("it answers after it was doubted", func(t *testing.T) {
		s := trying(t)
		s.cycle.Advance(tokenLimit)
		s.health.Got(tried(messages.ProbeEnded{Evidence: messages.NoFirstToken}))
		s.cycle.Tell(messages.ResponseStarted{Status: 200})
		s.cycle.Tell(messages.FirstTokenSeen{})
		s.health.Got(tried(messages.ProbeEnded{Answered: true}))
	})
	t.Run("an answer that is not streamed lets others try as well", func(t *testing.T) {
		s := newScene(t)
		s.asked.Stream = false
		s.try()
		s.cycle.Advance(tokenLimit)
		s.health.Got(tried(messages.ProbeEnded{}))
		s.cycle.Tell(messages.ResponseStarted{Status: 200})
		s.cycle.Tell(messages.ResponseEnded{})
		s.health.Got(tried(messages.ProbeEnded{Answered: true}))
	})
	t.Run("the pick comes too late", func(t *testing.T) {
		s := waiting(t)
		s.plan.Profiles[0].Picker.Most = func() int { return 2 }
		s.clock.step = int64(pickLimit + 1)
		s.suspend(first)
		s.cycle.Tell(messages.Dispatched{})
		s.health.Got(tried(messages.ProbeEnded{}))
	})
	t.Run("all are suspended, so that nobody probes", func(t *testing.T) {
		s := waiting(t)
		s.suspend(first)
		s.suspend(second)
		s.cycle.Tell(messages.Dispatched{})
		s.cycle.Tell(messages.ResponseStarted{Status: 200})
		s.health.Got()
		s.cycle.Tell(messages.FirstTokenSeen{})
		s.health.Got(tried(messages.ProbeEnded{Answered: true}))
	})
}

func TestNobodyWaitsLongerThanTheResponseMayBeIdle(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 200})
	s.cycle.Tell(messages.FirstTokenSeen{At: s.cycle.Clock().Add(time.Millisecond)})
	s.cycle.Advance(idleLimit)
	s.stream.Got(messages.ServingRevoked{Reason: messages.ResponseIdle})
	s.health.Got()
}
