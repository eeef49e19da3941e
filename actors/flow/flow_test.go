package flow_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/signalbox-epp/signalbox/actors/flow"
	lines "github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

type scene struct {
	*testing.T
	reg      *prometheus.Registry
	flow     *runtimetest.Stage[messages.FlowMsg]
	line     lines.Line
	capacity *runtimetest.Probe[messages.CapacityMsg]
	cycle    *runtimetest.Probe[messages.CycleMsg]
}

func newScene(t *testing.T) *scene {
	s := &scene{
		T: t, reg: prometheus.NewRegistry(), flow: runtimetest.NewStage[messages.FlowMsg](t),
		cycle: runtimetest.NewProbe[messages.CycleMsg](t), capacity: runtimetest.NewProbe[messages.CapacityMsg](t),
	}
	s.flow.Play(flow.New(lines.Bell{Line: &s.line, To: s.capacity}, flow.NewMetrics(s.reg)))
	s.flow.Tell(messages.FlowStarted{})
	return s
}

// asks returns what a cycle asks whose request may have to wait.
func (s *scene) asks(id messages.RequestID) messages.AdmissionRequested {
	return messages.AdmissionRequested{Gated: true, Wait: messages.WaitRequested{Request: id, Cycle: s.cycle}}
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
	s.flow.Tell(s.asks(1))
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
	s.flow.Tell(s.asks(1))
	s.places(0)
}

func TestCrashGivesPlacesUp(t *testing.T) {
	s := newScene(t)
	s.flow.Tell(s.asks(1))
	s.flow.Crash()
	s.places(0)
}

func TestRequestWaitsBehindOthers(t *testing.T) {
	s := newScene(t)
	lines.LineWriter{Line: &s.line}.Set(1)
	s.flow.Tell(s.asks(1))
	s.capacity.Got(messages.WaitRequested{Request: 1, Cycle: s.cycle})
	s.cycle.Got()
	s.places(0)
	s.flow.Tell(messages.RequestEnded{Request: 1})
	s.flow.Tell(messages.RequestEnded{Request: 1})
	s.capacity.Got(messages.WaitEnded{Request: 1})
	at := s.asks(2)
	at.Gated = false
	s.flow.Tell(at)
	s.cycle.Got(messages.Dispatched{})
	lines.LineWriter{Line: &s.line}.Set(0)
	s.flow.Tell(s.asks(3))
	s.cycle.Got(messages.Dispatched{})
	s.capacity.Got()
}

func TestRequestIsRefusedWhenTheInboxOfCapacityIsFull(t *testing.T) {
	s := newScene(t)
	lines.LineWriter{Line: &s.line}.Set(1)
	s.capacity.Close()
	s.flow.Tell(s.asks(1))
	s.cycle.Got(messages.Rejected{Reason: messages.Overloaded, RetryAfter: time.Second})
	s.flow.Tell(messages.RequestEnded{Request: 1})
	s.places(0)
}
