package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

func seen(e messages.EndpointID, what messages.Evidence) messages.EvidenceSeen {
	return messages.EvidenceSeen{Endpoint: e, Evidence: what}
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

// trying is a scene whose first endpoint is suspended and may be tried.
func trying(t *testing.T) *scene {
	t.Helper()
	s := waiting(t)
	s.plan.Profiles[0].Picker.Most = func() int { return 2 }
	s.pool.Snapshot().Endpoints[0].SetHealth(&endpoints.Health{Suspended: true, Why: messages.ServerError, Until: s.began})
	s.cycle.Tell(messages.Dispatched{})
	s.stream.Got(messages.PickMade{Destinations: messages.ListOf(addresses[first], addresses[second])})
	s.load(1, 0)
	return s
}

func TestProbeIsAnsweredOnce(t *testing.T) {
	for name, c := range map[string]struct {
		then []messages.CycleMsg
		want []messages.HealthMsg
	}{
		"it is well": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 200}, messages.StreamGone{}},
			[]messages.HealthMsg{messages.ProbeEnded{Endpoint: first, Answered: true}},
		},
		"it fails": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 500}, messages.ResponseEnded{}},
			[]messages.HealthMsg{messages.ProbeEnded{Endpoint: first, Evidence: messages.ServerError}},
		},
		"it is passed over": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 200, Served: addresses[second]}, messages.ResponseEnded{}},
			[]messages.HealthMsg{messages.ProbeEnded{Endpoint: first, Evidence: messages.ServedElsewhere}},
		},
		"the client leaves": {
			[]messages.CycleMsg{messages.StreamGone{}},
			[]messages.HealthMsg{messages.ProbeEnded{Endpoint: first, Evidence: messages.EndedBare}},
		},
		"it is revoked": {
			[]messages.CycleMsg{messages.Revoked{Reason: messages.NoCapacity}}, []messages.HealthMsg{messages.ProbeEnded{Endpoint: first}},
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
		s.health.Got(messages.ProbeEnded{Endpoint: first})
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
