package signalbox

import (
	"fmt"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// bring brings a configuration into force.
func (s *stand) bring(number uint64, text string) {
	s.t.Helper()
	cfg, err := config.Load([]byte("apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\n"+text),
		config.Settings{Destinations: 1, Stale: time.Hour})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Bring(s.Prepare(number, cfg.Plan, cfg.Queueing, messages.Scraping{}))
}

// shown returns the gauges of a family, by the value of a label.
func (s *stand) shown(family, label string) map[string]float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if value := labelOf(m, label); f.GetName() == family && value != "" {
				got[value] = m.GetGauge().GetValue()
			}
		}
	}
	return got
}

// labelOf returns the value of a series' label; "" = it does not have it.
func labelOf(m *dto.Metric, label string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == label {
			return l.GetValue()
		}
	}
	return ""
}

// How full the pool is follows from the detector in force, server by server and by what they do.
func TestSaturationIsShownByStage(t *testing.T) {
	s := newStand(t, 1)
	const saturation, stale = "llm_d_epp_flow_control_pool_saturation", "llm_d_epp_flow_control_stale_endpoints"
	if got := s.shown(saturation, "stage"); len(got) != 0 {
		t.Errorf("saturation %v without a detector", got)
	}
	s.bring(2, `featureGates: [flowControl]
flowControl: {saturationDetector: {pluginRef: utilization-detector}}
`)
	for name, c := range map[string]struct {
		queues []int    // of the servers; negative = the answer is too old
		roles  []string // of the servers
		full   string   // by stage
		stale  float64
	}{
		"no server":     {nil, nil, "map[effective:1]", 0},
		"no roles":      {[]int{5, 0}, []string{"", ""}, "map[decode:0.5 effective:0.5]", 0},
		"old":           {[]int{-1, 0}, []string{"", ""}, "map[decode:0.5 effective:0.5]", 1},
		"two stages":    {[]int{5, 1}, []string{"prefill", "decode"}, "map[decode:0.2 effective:1 prefill:1]", 0},
		"both in one":   {[]int{5, 0}, []string{"both", "decode"}, "map[decode:0.5 effective:1 prefill:1]", 0},
		"encoders only": {[]int{5}, []string{"encode"}, "map[effective:1]", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*endpoints.Endpoint
			for i, queue := range c.queues {
				spec := messages.EndpointSpec{Address: messages.Address(fmt.Sprintf("10.0.0.%d:80", i))}
				if c.roles[i] != "" {
					spec.Labels = messages.MapOf(map[string]string{"llm-d.ai/role": c.roles[i]})
				}
				e := endpoints.New(messages.EndpointID{Slot: uint32(i), Generation: 1}, spec)
				at := s.System().Now()
				if queue < 0 {
					queue, at = 0, at.Add(-time.Minute)
				}
				endpoints.SampleWriter{Endpoint: e}.Publish(&endpoints.Sample{
					At: at, Values: endpointstest.Load(queue, 0, 0),
				})
				all = append(all, e)
			}
			endpoints.Publisher{Published: s.Pool()}.Publish(endpoints.NewSnapshot(uint64(len(all)+7), all), nil)
			if got := fmt.Sprint(s.shown(saturation, "stage")); got != c.full {
				t.Errorf("saturation %s, want %s", got, c.full)
			}
			if got := s.shown(stale, "detector"); len(c.queues) > 0 && got["utilization-detector"] != c.stale {
				t.Errorf("%v are unknown, want %v", got, c.stale)
			}
		})
	}
}

// exploding is a detector that panics.
type exploding struct{}

func (exploding) Saturation(*schedule.Input) float64 { panic("boom") }

// A detector that panics leaves its series out, and the page has all others.
func TestPageOutlivesADetectorThatPanics(t *testing.T) {
	s := newStand(t, 1)
	plan := schedule.NewPlan(nil, nil, nil, time.Hour)
	plan.Detect(exploding{}, schedule.Step{Name: "boom", Type: "boom"})
	s.Bring(s.Prepare(2, plan, nil, messages.Scraping{}))
	if got := s.shown("llm_d_epp_flow_control_pool_saturation", "stage"); len(got) != 0 {
		t.Errorf("saturation %v, want none", got)
	}
}
