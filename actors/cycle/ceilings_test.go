package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// twice is a gate whose endpoints have room for two requests, of which it sees one less than there are.
type twice struct{ *scene }

func (twice) Saturation(*schedule.Input) float64 { return .6 }
func (twice) Bounds(ceiling float64) endpoints.Room {
	return endpoints.Room{Requests: int(2 * ceiling)}
}
func (twice) Room(*schedule.Input, []bool) {}

// The load is taken up to the ceiling, also if the gate saw less of it, and the request says how full the pool is.
func TestLoadKeepsToTheCeiling(t *testing.T) {
	for ceiling, fits := range map[float64]bool{1: true, .5: false} {
		s := newScene(t)
		s.queueing = &flow.Settings{Default: flow.BandSettings{TTL: turnLimit}}
		s.plan.HaveWait(twice{s}, schedule.Step{Name: "room"})
		s.plan.TellSaturation()
		flow.CeilingsWriter{Ceilings: &s.ceilings}.Set([]flow.Ceiling{{Priority: 0, Share: ceiling}})
		s.play()
		s.ready(24 * time.Hour)
		s.fill()
		s.arrive()
		if fits {
			s.capacity.Got()
			s.load(2, 1)
			continue
		}
		asked, ok := s.capacity.Told()[0].(messages.WaitRequested)
		if want := (messages.Saturation{Known: true, Full: .6}); !ok || asked.Saturation != want {
			t.Errorf("it was told %+v, want %+v", asked.Saturation, want)
		}
		s.load(1, 1)
		s.cycle.Tell(messages.Dispatched{})
		s.capacity.Got(messages.TurnFailed{
			Request: 7, Class: s.class(), Cycle: s.cycle, Saturation: messages.Saturation{Known: true, Full: .6},
		})
	}
}

// Whatever becomes of a request, it leaves the counts of its priority as it found them, but for arrivals and
// dispatches.
func TestRequestsAreCountedByPriority(t *testing.T) {
	check := func(s *scene, want flow.Counts) {
		s.Helper()
		if got := s.traffic.Of(0).Counts(); got != want {
			s.Errorf("%+v, want %+v", got, want)
		}
	}
	s := gated(t)
	s.arrive()
	check(s, flow.Counts{Arrivals: 1, Dispatches: 1, Inflight: 1})
	s.cycle.Tell(messages.ResponseStarted{Status: 200, Served: addresses[second]}) // the load moves
	check(s, flow.Counts{Arrivals: 1, Dispatches: 1, Inflight: 1})
	s.cycle.Tell(messages.ResponseEnded{})
	check(s, flow.Counts{Arrivals: 1, Dispatches: 1})

	s, release := queuedUp(t)
	check(s, flow.Counts{Arrivals: 1})
	s.cycle.Tell(messages.Dispatched{})
	check(s, flow.Counts{Arrivals: 1})
	release()
	s.cycle.Tell(messages.Dispatched{})
	s.cycle.Tell(messages.StreamGone{})
	check(s, flow.Counts{Arrivals: 1, Dispatches: 1})

	s = coming(t) // under a plan without a gate
	s.arrive()
	s.cycle.Tell(messages.StreamGone{})
	check(s, flow.Counts{})
}
