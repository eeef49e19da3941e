package detectors_test

import (
	"testing"

	"github.com/signalbox-epp/signalbox/engine/detectors"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
)

// What gets no requests neither fills the pool nor makes room in it, by any detector, unless nothing else is there.
func TestSaturationIsOfServersThatGetRequests(t *testing.T) {
	full := says(5, .8)
	full.Inflight, full.InflightTokens, full.Window = 100, 1_000_000, endpoints.Room{Requests: 100}
	idle := says(0, 0)
	idle.Window = endpoints.Room{Requests: 100}
	out := func(e scheduletest.Endpoint) scheduletest.Endpoint {
		e.Outlier = &outlier.Status{Ejected: true}
		return e
	}
	tokens := detectors.Types["concurrency-detector"]().(*detectors.Concurrency)
	tokens.ConcurrencyMode = "tokens"
	hybrid := *tokens
	hybrid.ConcurrencyMode = "hybrid"
	all := map[string]schedule.Detector{"tokens": tokens, "hybrid": &hybrid}
	for name, made := range detectors.Types {
		if name != "max-saturation-detector" { // which is of the others
			all[name] = made()
		}
	}
	for name, d := range all {
		for _, c := range []struct {
			what    string
			servers []scheduletest.Endpoint
			want    float64
		}{
			{"an idle one is ejected", []scheduletest.Endpoint{full, out(idle)}, 1},
			{"a full one is ejected", []scheduletest.Endpoint{out(full), idle}, 0},
			{"none is", []scheduletest.Endpoint{full, idle}, .5},
			{"all are", []scheduletest.Endpoint{out(full), out(idle)}, .5},
		} {
			if got := scheduletest.Saturation(t, d, c.servers...); got != c.want {
				t.Errorf("%s, %s: %v, want %v", name, c.what, got, c.want)
			}
		}
	}
}
