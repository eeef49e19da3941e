package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

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
		"it fails within its answer": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 200}, messages.ErrorSeen{Status: 500}, messages.FirstTokenSeen{}, messages.ResponseEnded{}},
			[]messages.HealthMsg{tried(messages.ProbeEnded{Evidence: messages.ErrorInStream})},
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

// Whether a good answer counts if it was no probe, and if something else than a suspension was held against who gave it.
func TestWhoseGoodAnswerHeals(t *testing.T) {
	well := []messages.HealthMsg{tried(messages.ProbeEnded{Answered: true})}
	for name, c := range map[string]struct {
		shown bool
		until time.Duration
		want  []messages.HealthMsg
	}{"shown": {true, time.Hour, well}, "not shown": {false, time.Hour, nil}, "not shown for long": {false, -time.Hour, well}} {
		t.Run("all are suspended for what they say within an answer: "+name, func(t *testing.T) {
			s := newScene(t)
			s.asked.Shown = c.shown
			s.arrive(24 * time.Hour)
			for _, e := range s.pool.Snapshot().Endpoints {
				e.SetHealth(&endpoints.Health{Suspended: true, Why: messages.ErrorInStream, Since: picking, Until: s.began.Add(c.until)})
			}
			s.cycle.Tell(messages.Dispatched{})
			s.cycle.Tell(messages.ResponseStarted{Status: 200})
			s.cycle.Tell(messages.FirstTokenSeen{})
			s.health.Got(c.want...)
		})
	}
	for name, c := range map[string]struct {
		until time.Duration
		want  []messages.HealthMsg
	}{"tried": {0, well}, "too early to try": {time.Hour, nil}} {
		t.Run("it was avoided: "+name, func(t *testing.T) {
			s := newScene(t)
			s.arrive(24 * time.Hour)
			s.plan.Profiles[0].Picker.Most = func() int { return 2 }
			for _, e := range s.pool.Snapshot().Endpoints {
				e.SetHealth(&endpoints.Health{Why: messages.Overload, Since: picking, Until: s.began.Add(c.until)})
			}
			s.cycle.Tell(messages.Dispatched{})
			s.cycle.Tell(messages.ResponseStarted{Status: 200})
			s.cycle.Tell(messages.FirstTokenSeen{})
			s.health.Got(c.want...)
		})
	}
}
