package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/messages"
)

// trying returns a scene whose first endpoint is ejected, and whose request is the probe.
func trying(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	s.try()
	return s
}

func (s *scene) try() {
	s.Helper()
	s.ready(24 * time.Hour)
	s.plan.Profiles()[0].Picker.Most = func() int { return 2 }
	s.eject(first)
	s.arrive()
	s.stream.Got(messages.PickMade{Destinations: messages.ListOf(addresses[first], addresses[second])})
	s.load(1, 0)
}

// eject ejects an endpoint, which may be probed at once.
func (s *scene) eject(e messages.EndpointID) {
	endpoints.OutlierWriter{Endpoint: s.pool.Snapshot().ByID(e)}.SetOutlier(&outlier.Status{
		Ejected: true, Cause: messages.ServerError, Incident: incident, Until: s.began,
	})
}

func TestProbeIsAnsweredOnce(t *testing.T) {
	for name, c := range map[string]struct {
		then []messages.CycleMsg
		want []messages.OutlierMsg
	}{
		"it is well": {
			[]messages.CycleMsg{
				messages.ResponseStarted{Status: 200}, messages.FirstTokenSeen{}, messages.ResponseEnded{},
			},
			[]messages.OutlierMsg{succeeded},
		},
		"it refuses the request": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 404}, messages.StreamGone{}},
			[]messages.OutlierMsg{succeeded},
		},
		"the client leaves after the headers": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 200}, messages.StreamGone{}},
			[]messages.OutlierMsg{seen(first, messages.ClientsLeft), abandoned},
		},
		"the access log tells of bytes": {
			[]messages.CycleMsg{
				messages.ResponseStarted{Status: 200}, messages.StreamGone{Logged: true, Log: messages.LogSeen},
				messages.ResponseOngoing{ResponseBytes: 1},
			},
			[]messages.OutlierMsg{succeeded},
		},
		"the access log tells a clean end": {
			[]messages.CycleMsg{
				messages.ResponseStarted{Status: 200}, messages.StreamGone{Logged: true, Log: messages.LogSeen},
				messages.ResponseEnded{Logged: messages.Logged{Status: 200, Served: addresses[first]}},
			},
			[]messages.OutlierMsg{succeeded},
		},
		"it fails": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 500}, messages.ResponseEnded{}},
			[]messages.OutlierMsg{failed(messages.ServerError)},
		},
		"it fails within its answer": {
			[]messages.CycleMsg{
				messages.ResponseStarted{Status: 200}, messages.ErrorSeen{Status: 500}, messages.FirstTokenSeen{},
				messages.ResponseEnded{},
			},
			[]messages.OutlierMsg{failed(messages.ErrorInStream)},
		},
		"it is passed over": {
			[]messages.CycleMsg{
				messages.ResponseStarted{Status: 200, Served: addresses[second]}, messages.ResponseEnded{},
			},
			[]messages.OutlierMsg{failed(messages.ServedElsewhere)},
		},
		"the client leaves": {
			[]messages.CycleMsg{messages.StreamGone{}},
			[]messages.OutlierMsg{failed(messages.EndedBare), seen(first, messages.ClientsLeft)},
		},
		"it is revoked": {
			[]messages.CycleMsg{
				messages.Revoked{Reason: messages.NoCapacity}, messages.StreamGone{Answered: messages.NoCapacity},
			}, []messages.OutlierMsg{abandoned},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := trying(t)
			for _, m := range c.then {
				s.cycle.Tell(m)
			}
			s.outlier.Got(c.want...)
		})
	}
	t.Run("the cycle crashes", func(t *testing.T) {
		s := trying(t)
		s.cycle.Crash()
		s.outlier.Got(abandoned)
	})
}

// Any good answer of the endpoint that was tried, even a late one, ends its incident, and a probe that was taken is
// given back.
func TestWhoWasTriedIsToldOf(t *testing.T) {
	t.Run("it answers after it was doubted", func(t *testing.T) {
		s := trying(t)
		s.cycle.Advance(tokenLimit)
		s.outlier.Got(failed(messages.NoFirstToken))
		s.cycle.Tell(messages.ResponseStarted{Status: 200})
		s.cycle.Tell(messages.FirstTokenSeen{})
		s.outlier.Got(succeeded)
	})
	t.Run("an answer that is not streamed lets others try as well", func(t *testing.T) {
		s := newScene(t)
		s.asked.Stream = false
		s.try()
		s.cycle.Advance(tokenLimit)
		s.outlier.Got(abandoned)
		s.cycle.Tell(messages.ResponseStarted{Status: 200})
		s.cycle.Tell(messages.ResponseEnded{})
		s.outlier.Got(succeeded)
	})
	t.Run("the pick comes too late", func(t *testing.T) {
		s := coming(t)
		s.plan.Profiles()[0].Picker.Most = func() int { return 2 }
		s.clock.step = int64(pickLimit + 1)
		s.eject(first)
		s.arrive()
		s.outlier.Got(abandoned)
	})
	t.Run("all are ejected, so that none is probed", func(t *testing.T) {
		s := coming(t)
		s.eject(first)
		s.eject(second)
		s.arrive()
		s.cycle.Tell(messages.ResponseStarted{Status: 200})
		s.outlier.Got()
		s.cycle.Tell(messages.FirstTokenSeen{})
		s.outlier.Got(succeeded)
	})
}

// A good answer to a request that is no probe may end an incident too.
func TestWhoseGoodAnswerHeals(t *testing.T) {
	well := []messages.OutlierMsg{succeeded}
	for name, c := range map[string]struct {
		visible bool
		until   time.Duration
		want    []messages.OutlierMsg
	}{
		"visible": {true, time.Hour, well}, "not visible": {false, time.Hour, nil},
		"not visible for long": {false, -time.Hour, well},
	} {
		t.Run("all are ejected for what they say within an answer: "+name, func(t *testing.T) {
			s := newScene(t)
			s.asked.Visible = c.visible
			s.ready(24 * time.Hour)
			for _, e := range s.pool.Snapshot().Endpoints {
				endpoints.OutlierWriter{Endpoint: e}.SetOutlier(&outlier.Status{
					Ejected: true, Cause: messages.ErrorInStream, Incident: incident, Until: s.began.Add(c.until),
				})
			}
			s.arrive()
			s.cycle.Tell(messages.ResponseStarted{Status: 200})
			s.cycle.Tell(messages.FirstTokenSeen{})
			s.outlier.Got(c.want...)
		})
	}
	for name, c := range map[string]struct {
		until time.Duration
		want  []messages.OutlierMsg
	}{"tried": {0, well}, "too early to try": {time.Hour, nil}} {
		t.Run("it was degraded: "+name, func(t *testing.T) {
			s := newScene(t)
			s.ready(24 * time.Hour)
			s.plan.Profiles()[0].Picker.Most = func() int { return 2 }
			for _, e := range s.pool.Snapshot().Endpoints {
				endpoints.OutlierWriter{Endpoint: e}.SetOutlier(&outlier.Status{
					Cause: messages.Overload, Incident: incident, Until: s.began.Add(c.until),
				})
			}
			s.arrive()
			s.cycle.Tell(messages.ResponseStarted{Status: 200})
			s.cycle.Tell(messages.FirstTokenSeen{})
			s.outlier.Got(c.want...)
		})
	}
}
