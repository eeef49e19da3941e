package telemetry_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// TestMeanKVUseIsOfThoseThatTellIt has one endpoint at 60 %, one whose server does not say, and one without a sample.
func TestMeanKVUseIsOfThoseThatTellIt(t *testing.T) {
	var all []*endpoints.Endpoint
	for i, s := range []*endpoints.Sample{{Waiting: 4, KVUsed: 0.6}, {Waiting: 2, KVUsed: messages.Unknown}, nil} {
		e := endpoints.New(messages.EndpointID{Slot: uint32(i), Generation: 1}, messages.EndpointSpec{Address: messages.Address(rune('a' + i))})
		if s != nil {
			e.Publish(s)
		}
		all = append(all, e)
	}
	pool := endpoints.NewPool()
	pool.Publish(endpoints.NewSnapshot(1, all), nil)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(telemetry.NewCollector(new(runtime.System), pool, "pool"))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	for name, want := range map[string]float64{"llm_d_epp_average_kv_cache_utilization": 0.6, "llm_d_epp_average_queue_size": 3} {
		if got[name] != want {
			t.Errorf("%s: got %v, want %v", name, got[name], want)
		}
	}
}
