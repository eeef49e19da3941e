package flow_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/signalbox-epp/signalbox/actors/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

type scene struct {
	*testing.T
	reg   *prometheus.Registry
	flow  *runtimetest.Stage[messages.FlowMsg]
	cycle *runtimetest.Probe[messages.CycleMsg]
}

func newScene(t *testing.T) *scene {
	s := &scene{t, prometheus.NewRegistry(), runtimetest.NewStage[messages.FlowMsg](t),
		runtimetest.NewProbe[messages.CycleMsg](t)}
	s.flow.Play(flow.New(flow.NewMetrics(s.reg)))
	s.flow.Tell(messages.FlowStarted{})
	return s
}

func (s *scene) places(want float64) {
	s.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "signalbox_flow_places" {
			if got := f.GetMetric()[0].GetGauge().GetValue(); got != want {
				s.Errorf("places: %v, want %v", got, want)
			}
		}
	}
	if n, err := testutil.GatherAndCount(s.reg, "signalbox_flow_places"); n != 1 || err != nil {
		s.Errorf("gauge found %d times, %v", n, err)
	}
}

func TestRequestIsDispatchedAtOnceAndItsPlaceComesBack(t *testing.T) {
	s := newScene(t)
	s.flow.Tell(messages.AdmissionRequested{Request: 1, Cycle: s.cycle})
	s.cycle.Got(messages.Dispatched{})
	s.places(1)
	s.flow.Tell(messages.RequestEnded{Request: 1})
	s.flow.Tell(messages.RequestEnded{Request: 1})
	s.flow.Tell(messages.RequestEnded{Request: 99})
	s.places(0)
}

func TestRequestThatDiedOnTheWayHoldsNothing(t *testing.T) {
	s := newScene(t)
	s.cycle.Close()
	s.flow.Tell(messages.AdmissionRequested{Request: 1, Cycle: s.cycle})
	s.places(0)
}

func TestCrashGivesPlacesUp(t *testing.T) {
	s := newScene(t)
	s.flow.Tell(messages.AdmissionRequested{Request: 1, Cycle: s.cycle})
	s.flow.Crash()
	s.places(0)
}
