package health_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/health"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// scene is a health actor over a pool of four endpoints, of which two may be suspended.
type scene struct {
	*testing.T
	actor  *runtimetest.Stage[messages.HealthMsg]
	pool   *endpoints.Pool
	all    []*endpoints.Endpoint
	checks []messages.EndpointID
	full   bool
}

func newScene(t *testing.T) *scene {
	s := &scene{T: t, actor: runtimetest.NewStage[messages.HealthMsg](t), pool: endpoints.NewPool()}
	for i := range uint32(4) {
		id := messages.EndpointID{Slot: i, Generation: i + 1}
		s.all = append(s.all, endpoints.New(id, messages.EndpointSpec{Address: messages.Address(rune('a' + i))}))
	}
	s.pool.Publish(endpoints.NewSnapshot(1, s.all), nil)
	s.actor.Play(health.New(health.Config{MaxShare: 0.5, First: time.Second, Longest: 4 * time.Second}, s.pool, s, health.NewMetrics(prometheus.NewRegistry())))
	s.actor.Tell(messages.HealthStarted{})
	return s
}

func (s *scene) Check(id messages.EndpointID, _ messages.Address, _ messages.Sink[messages.HealthMsg]) bool {
	if !s.full {
		s.checks = append(s.checks, id)
	}
	return !s.full
}

// sees tells of evidence, so many times, a tenth of a second apart.
func (s *scene) sees(e int, what messages.Evidence, times int) {
	for range times {
		s.actor.Tell(messages.EvidenceSeen{Endpoint: s.all[e].ID, Evidence: what})
		s.actor.Advance(100 * time.Millisecond)
	}
}

func (s *scene) suspended(e int, want bool) {
	s.Helper()
	h := s.all[e].Health()
	if got := h != nil && h.Suspended; got != want {
		s.Errorf("endpoint %d: suspended %v, want %v: %+v", e, got, want, h)
	}
}

func TestEvidenceSuspends(t *testing.T) {
	for name, c := range map[string]struct {
		what  messages.Evidence
		times int
		want  bool
	}{
		"two server errors":              {messages.ServerError, 2, false},
		"three server errors":            {messages.ServerError, 3, true},
		"passed over twice":              {messages.ServedElsewhere, 2, false},
		"passed over three times":        {messages.ServedElsewhere, 3, true},
		"one silence":                    {messages.NoFirstToken, 1, true},
		"one broken connection":          {messages.ConnectionBroken, 1, false},
		"two broken connections":         {messages.ConnectionBroken, 2, true},
		"failed scrapes, however often":  {messages.ScrapeFailed, 50, false},
		"overload, however often":        {messages.Overload, 50, false},
		"told in streams, however often": {messages.OverloadInStream, 50, false},
		"two errors in streams":          {messages.ErrorInStream, 2, false},
		"three errors in streams":        {messages.ErrorInStream, 3, true},
		"bare ends, however often":       {messages.EndedBare, 50, false},
		"nothing, however often":         {messages.NoEvidence, 4, false},
		"an unknown kind is no kind":     {99, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.sees(0, c.what, c.times)
			s.suspended(0, c.want)
			s.suspended(1, false)
		})
	}
}

// What is not enough to suspend makes an endpoint less preferred for a moment.
func TestFirstEvidenceLowersPreference(t *testing.T) {
	for _, what := range []messages.Evidence{
		messages.Overload, messages.OverloadInStream, messages.ServerError, messages.ErrorInStream, messages.ServedElsewhere, messages.ConnectionBroken,
	} {
		t.Run(what.String(), func(t *testing.T) {
			s := newScene(t)
			s.sees(0, what, 1)
			h := s.all[0].Health()
			if h == nil || h.Suspended || h.Why != what || h.Until.Sub(s.actor.Clock()) != 1900*time.Millisecond {
				t.Errorf("held against it: %+v", h)
			}
			if s.all[1].Health() != nil {
				t.Error("something is held against another")
			}
		})
	}
}

func TestGoodAnswersAndTimeForgive(t *testing.T) {
	s := newScene(t)
	for range 3 { // never three in a row
		s.sees(0, messages.ServerError, 2)
		s.all[0].Picks.Add(1000)
		s.all[0].Answered(s.actor.Clock())
		s.actor.Advance(11 * time.Second) // nor many in a span
	}
	s.suspended(0, false)
	s.sees(1, messages.ServerError, 2)
	s.actor.Advance(31 * time.Second)
	s.sees(1, messages.ServerError, 1)
	s.suspended(1, false)
}

// One request in four fails, and those between answer well: never three in a row.
func TestShareOfFailuresSuspends(t *testing.T) {
	for name, c := range map[string]struct {
		picks uint64 // for one failure
		want  bool
	}{"one in four": {4, true}, "one in a hundred": {100, false}} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			for range 8 {
				s.all[0].Picks.Add(c.picks)
				s.sees(0, messages.ServerError, 1)
				s.all[0].Answered(s.actor.Clock())
				s.actor.Advance(time.Millisecond)
			}
			s.suspended(0, c.want)
		})
	}
}

func TestNeverMoreThanTheShare(t *testing.T) {
	s := newScene(t)
	for e := range s.all {
		s.sees(e, messages.ServerError, 3)
	}
	out := 0
	for _, e := range s.all {
		if h := e.Health(); h == nil {
			t.Error("an endpoint that failed is as good as others")
		} else if h.Suspended {
			out++
		}
	}
	if out != 2 {
		t.Errorf("%d of 4 are suspended, want 2", out)
	}
	alone := newScene(t)
	alone.pool.Publish(endpoints.NewSnapshot(2, alone.all[:1]), nil)
	alone.sees(0, messages.ServerError, 20)
	alone.suspended(0, false)
}

// Headers are an answer, but not to an error behind them, nor is an answer that nobody saw.
func TestHeadersDoNotMakeUpForAnErrorBehindThem(t *testing.T) {
	for what, want := range map[messages.Evidence]bool{messages.ErrorInStream: true, messages.ServerError: false} {
		t.Run(what.String(), func(t *testing.T) {
			s := newScene(t)
			s.all[0].Picks.Add(1000)
			for range 3 {
				s.sees(0, what, 1)
				s.all[0].Answered(s.actor.Clock())
				s.all[0].Proved(s.actor.Clock(), false)
				s.actor.Advance(time.Millisecond)
			}
			s.suspended(0, want)
			s.all[1].Picks.Add(1000)
			for range 4 {
				s.sees(1, what, 1)
				s.all[1].Answered(s.actor.Clock())
				s.all[1].Proved(s.actor.Clock(), true)
				s.actor.Advance(time.Millisecond)
			}
			s.suspended(1, false)
		})
	}
}

func TestBareEndHasTheEndpointChecked(t *testing.T) {
	s := newScene(t)
	s.sees(0, messages.EndedBare, 30)
	if len(s.checks) != 1 {
		t.Fatalf("%d checks while one runs, want 1", len(s.checks))
	}
	s.actor.Tell(messages.EndpointChecked{Endpoint: s.all[0].ID, Connected: true})
	s.suspended(0, false)
	s.sees(0, messages.EndedBare, 1)
	if len(s.checks) != 2 {
		t.Errorf("%d checks, want another a second later", len(s.checks))
	}
	s.actor.Tell(messages.EndpointChecked{Endpoint: s.all[0].ID})
	s.suspended(0, true)

	s.sees(2, messages.ScrapeFailed, 1)
	if len(s.checks) != 3 || s.checks[2] != s.all[2].ID {
		t.Errorf("checked %v, want the one whose scrape failed too", s.checks)
	}
	s.checks = s.checks[:2]

	s.full = true
	s.sees(1, messages.EndedBare, 1)
	s.full = false
	s.sees(1, messages.EndedBare, 1)
	if len(s.checks) != 3 {
		t.Errorf("%d checks, want one more: the refused one does not count", len(s.checks))
	}
}

func TestOverloadLowersPreferenceForAMoment(t *testing.T) {
	s := newScene(t)
	s.sees(0, messages.Overload, 1)
	h := s.all[0].Health()
	if h == nil || h.Suspended || h.Until.Sub(s.actor.Clock()) > 2*time.Second || h.Why != messages.Overload {
		t.Errorf("%+v is held against it", h)
	}
}

func TestWhoLeftIsForgotten(t *testing.T) {
	s := newScene(t)
	s.sees(0, messages.ServerError, 3)
	gone := s.all[0].ID
	s.pool.Publish(endpoints.NewSnapshot(2, s.all[1:]), nil)
	s.actor.Tell(messages.EvidenceSeen{Endpoint: gone, Evidence: messages.ConnectFailed})
	s.actor.Tell(messages.ProbeEnded{Endpoint: gone, Answered: true})
	s.actor.Tell(messages.EndpointChecked{Endpoint: gone})
	for e := 1; e < 4; e++ {
		s.suspended(e, false)
	}
}

func TestEndOfTheActorForgivesEverybody(t *testing.T) {
	s := newScene(t)
	s.sees(0, messages.ServerError, 3)
	s.actor.Crash()
	s.suspended(0, false)
}

// Requests that were under way together are no row, and silence is none if a later request was answered.
func TestFailuresAtOneTimeAreNoRow(t *testing.T) {
	s := newScene(t)
	s.all[0].Picks.Add(1000)
	picked := s.actor.Clock()
	s.actor.Advance(time.Second)
	tell := func(e int, what messages.Evidence, times int) {
		for range times {
			s.actor.Tell(messages.EvidenceSeen{Endpoint: s.all[e].ID, Evidence: what, Picked: picked})
		}
	}
	tell(0, messages.ServerError, 4)
	s.suspended(0, false)
	tell(0, messages.ServerError, 1) // a fifth of those that were picked since
	s.suspended(0, true)
	s.all[1].Proved(picked.Add(time.Millisecond), false)
	tell(1, messages.NoFirstToken, 1)
	s.suspended(1, false)
	s.all[2].Proved(picked.Add(-time.Millisecond), false)
	tell(2, messages.NoFirstToken, 1)
	s.suspended(2, true)
}

// Without a share nothing is held against anybody.
func TestNoShareIsOff(t *testing.T) {
	s := newScene(t)
	s.actor.Play(health.New(health.Config{First: time.Second, Longest: time.Second}, s.pool, s, health.NewMetrics(prometheus.NewRegistry())))
	for what := messages.Overload; what <= messages.ConnectFailed; what++ {
		s.sees(0, what, 20)
	}
	if h := s.all[0].Health(); h != nil || len(s.checks) > 0 {
		t.Errorf("%+v is held against it, and %d checks were made", h, len(s.checks))
	}
}
