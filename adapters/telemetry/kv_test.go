package telemetry

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// TestMeanKVUseIsOfThoseThatTellIt has one endpoint at 60 %, one whose server does not say, and one without a sample.
func TestMeanKVUseIsOfThoseThatTellIt(t *testing.T) {
	sys := runtime.New(runtime.Config{Mode: runtime.Stepped, Loops: 1, Start: time.Unix(1_800_000_000, 0)})
	t.Cleanup(func() { _ = sys.Close(t.Context()) })
	var all []*endpoints.Endpoint
	for i, s := range []*endpoints.Sample{{At: sys.Now(), Values: endpointstest.Load(4, 0, 0.6)},
		{At: sys.Now(), Values: endpointstest.Load(2, 0, -1)}, nil} {
		e := endpoints.New(messages.EndpointID{Slot: uint32(i), Generation: 1},
			messages.EndpointSpec{Address: messages.Address(rune('a' + i))})
		if s != nil {
			endpoints.SampleWriter{Endpoint: e}.Publish(s)
		}
		all = append(all, e)
	}
	pool := endpoints.NewPublished()
	endpoints.Publisher{Published: pool}.Publish(endpoints.NewSnapshot(1, all), nil)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(sys, pool, "pool", time.Minute))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if len(f.GetMetric()) == 0 {
			continue
		}
		got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	for name, want := range map[string]float64{"llm_d_epp_average_kv_cache_utilization": 0.6,
		"llm_d_epp_average_queue_size": 3} {
		if got[name] != want {
			t.Errorf("%s: got %v, want %v", name, got[name], want)
		}
	}
}
