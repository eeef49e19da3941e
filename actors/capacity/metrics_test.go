package capacity_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/messages"
)

// series returns what a metric of the reference's shows, by priority; "" is the key of one without that label.
func (s *scene) series(name string) map[string]float64 {
	s.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		s.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "llm_d_epp_flow_control_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			got[priority(m)] = m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return got
}

// priority returns the label of a series; "" = it has none.
func priority(m *dto.Metric) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == "priority" {
			return l.GetValue()
		}
	}
	return ""
}

func (s *scene) shows(name string, want map[string]float64) {
	s.Helper()
	if diff := cmp.Diff(want, s.series(name)); diff != "" {
		s.Errorf("%s, want -, got +:\n%s", name, diff)
	}
}

// limited returns a scene with limits in all, and a band of its own for priority 5.
func limited(t *testing.T) *scene {
	t.Helper()
	s := newScene(t, flow.Limits{Requests: 8, Bytes: 200})
	s.settings.Default.Limits = flow.Limits{Requests: 5, Bytes: 100}
	high := s.settings.Default
	high.Limits = flow.Limits{Requests: 2, Bytes: 40}
	s.settings.Bands = map[int]flow.BandSettings{5: high}
	s.actor.Tell(messages.QueueingReplaced{})
	return s
}

func TestUsedSharesOfLimitsAreShown(t *testing.T) {
	s := limited(t)
	s.shows("capacity_utilization_requests", map[string]float64{"5": 0})
	for id := range messages.RequestID(4) {
		s.asks(id+1, tenant("a"), 0) // the first one has its turn
	}
	s.asks(9, messages.FlowKey{Fairness: "a", Priority: 5}, 0)
	s.shows("capacity_utilization_requests", map[string]float64{"0": .6, "5": .5})
	s.shows("capacity_utilization_bytes", map[string]float64{"0": .3, "5": .25})
	s.shows("global_capacity_utilization_requests", map[string]float64{"": .5})
	s.shows("global_capacity_utilization_bytes", map[string]float64{"": .2})
	s.shows("dispatch_cycle_duration_seconds", map[string]float64{"": 1})
	s.actor.Crash()
	s.shows("capacity_utilization_requests", map[string]float64{"0": 0, "5": 0})
	s.shows("global_capacity_utilization_requests", map[string]float64{"": 0})
}

// Whatever comes and goes, the gauges of each band show what waits.
func TestSharesFollowWhatWaits(t *testing.T) {
	s := limited(t)
	for priority := range 3 {
		for i := range messages.RequestID(3) {
			s.asks(messages.RequestID(priority)*10+i+1, at(priority), 7)
		}
	}
	s.actor.Tell(messages.WaitEnded{Request: 11})
	s.shows("capacity_utilization_requests", map[string]float64{"0": .4, "1": .4, "2": .6, "5": 0})
	s.settings.Default.Limits.Requests = 10
	s.actor.Tell(messages.QueueingReplaced{})
	s.shows("capacity_utilization_requests", map[string]float64{"0": .2, "1": .2, "2": .3, "5": 0})
	for id := range messages.RequestID(30) {
		s.actor.Tell(messages.WaitEnded{Request: id})
	}
	s.shows("capacity_utilization_requests", map[string]float64{"0": 0, "1": 0, "2": 0, "5": 0})
}

// Limits that a new configuration does not have, and bands of which nothing waits, are shown no more.
func TestSharesFollowTheConfiguration(t *testing.T) {
	s := limited(t)
	s.asks(1, tenant("a"), 0)
	s.asks(2, tenant("a"), 0)
	s.settings.Bands, s.settings.Limits = nil, flow.Limits{Bytes: 1000}
	s.settings.Default.Limits.Requests = 2
	s.actor.Tell(messages.QueueingReplaced{})
	s.shows("capacity_utilization_requests", map[string]float64{"0": .5})
	s.shows("global_capacity_utilization_requests", map[string]float64{})
	s.shows("global_capacity_utilization_bytes", map[string]float64{"": .01})
}

// A configuration may name as many priorities as it likes.
func TestPrioritiesWithSharesAreBounded(t *testing.T) {
	s := limited(t)
	s.settings.Bands = map[int]flow.BandSettings{}
	for priority := range 1000 {
		s.settings.Bands[priority-500] = s.settings.Default
	}
	s.actor.Tell(messages.QueueingReplaced{})
	for id := range messages.RequestID(200) {
		s.asks(id+1, messages.FlowKey{Fairness: fmt.Sprint(id), Priority: int(id) * 1000}, 0)
	}
	if n := len(s.series("capacity_utilization_requests")); n != 64 {
		t.Errorf("%d priorities have series, want 64", n)
	}
}
