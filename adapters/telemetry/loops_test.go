package telemetry

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestPoolGaugesLeaveStaleSamplesOut(t *testing.T) {
	sys := runtime.New(runtime.Config{Mode: runtime.Stepped, Loops: 1, Start: time.Unix(1_800_000_000, 0)})
	defer func() {
		if err := sys.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	pool := endpoints.NewPublished()
	var es []*endpoints.Endpoint
	for i, s := range []*endpoints.Sample{
		{At: sys.Now(), Values: endpointstest.Load(2, 10, 0.25)},
		{At: sys.Now(), Values: endpointstest.Load(6, 10, 0.75)},
		{At: sys.Now()},
		{At: sys.Now().Add(-time.Minute), Values: endpointstest.Load(900, 900, 1)},
		nil,
	} {
		e := endpoints.New(messages.EndpointID{Slot: uint32(i), Generation: 1},
			messages.EndpointSpec{Address: messages.Address(string(rune('a' + i)))})
		if s != nil {
			endpoints.SampleWriter{Endpoint: e}.Publish(s)
		}
		es = append(es, e)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(NewCollector(sys, pool, "pool", time.Second))
	for name, want := range map[string]float64{"llm_d_epp_ready_endpoints": 0, "llm_d_epp_average_queue_size": 0,
		"llm_d_epp_std_dev_queue_size": 0} {
		if got := sum(t, reg, name); got != want {
			t.Errorf("of an empty pool: %s = %v, want %v", name, got, want)
		}
	}
	endpoints.Publisher{Published: pool}.Publish(endpoints.NewSnapshot(1, es), nil)
	for name, want := range map[string]float64{
		"llm_d_epp_ready_endpoints": 5, "llm_d_epp_average_queue_size": 4, "llm_d_epp_std_dev_queue_size": 2,
		"llm_d_epp_average_running_requests": 10, "llm_d_epp_std_dev_running_requests": 0,
		"llm_d_epp_average_kv_cache_utilization": 0.5, "llm_d_epp_std_dev_kv_cache_utilization": 0.25,
		"llm_d_epp_per_endpoint_queue_size": 908,
	} {
		if got := sum(t, reg, name); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}

// Queues have the names of their endpoints, as picks and what is in flight have; no two series have the same labels.
func TestQueuesAreNamedAsEndpointsAre(t *testing.T) {
	sys := runtime.New(runtime.Config{Mode: runtime.Stepped, Loops: 1, Start: time.Unix(1_800_000_000, 0)})
	defer func() {
		if err := sys.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	var es []*endpoints.Endpoint
	for i, spec := range []messages.EndpointSpec{
		{Name: "vllm-0-rank-0", Namespace: "prod", Address: "10.0.0.1:8000"},
		{Name: "vllm-0-rank-1", Namespace: "prod", Address: "10.0.0.1:8001"},
		{Address: "10.0.0.2:8000"},
		{Name: "both", Namespace: "prod", Address: "10.0.0.3:8000"},
		{Name: "both", Namespace: "test", Address: "[2001:db8::4]:8000"},
	} {
		e := endpoints.New(messages.EndpointID{Slot: uint32(i), Generation: 1}, spec)
		endpoints.SampleWriter{Endpoint: e}.Publish(
			&endpoints.Sample{At: sys.Now(), Values: endpointstest.Load(i+1, 0, 0)})
		es = append(es, e)
	}
	pool, reg := endpoints.NewPublished(), prometheus.NewRegistry()
	endpoints.Publisher{Published: pool}.Publish(endpoints.NewSnapshot(1, es), nil)
	reg.MustRegister(NewCollector(sys, pool, "pool", time.Second))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "llm_d_epp_per_endpoint_queue_size" {
				got[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	want := map[string]float64{"vllm-0-rank-0 pool": 1, "vllm-0-rank-1 pool": 2, "10.0.0.2:8000 pool": 3,
		"10.0.0.3:8000 pool": 4, "[2001:db8::4]:8000 pool": 5}
	if !maps.Equal(got, want) {
		t.Errorf("queues are %v, want %v", got, want)
	}
}

// TestOutlierGaugesSayWhy: the label has the cause, and is empty while an endpoint is not in that state.
func TestOutlierGaugesSayWhy(t *testing.T) {
	sys := runtime.New(runtime.Config{Mode: runtime.Stepped, Loops: 1, Start: time.Unix(1_800_000_000, 0)})
	defer func() {
		if err := sys.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	var es []*endpoints.Endpoint
	for address, h := range map[messages.Address]*outlier.Status{
		"well": nil, "silent": {Ejected: true, Cause: messages.NoFirstToken},
		"unreached": {Ejected: true, Cause: messages.ConnectFailed},
		"full":      {Cause: messages.Overload, Until: sys.Now().Add(time.Second)},
	} {
		e := endpoints.New(messages.EndpointID{Slot: uint32(len(es)), Generation: 1},
			messages.EndpointSpec{Address: address})
		endpoints.OutlierWriter{Endpoint: e}.SetOutlier(h)
		es = append(es, e)
	}
	type series struct{ state, endpoint, cause string }
	got := map[series]float64{}
	for _, f := range familiesOf(t, sys, es) {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if state, is := strings.CutPrefix(f.GetName(), "signalbox_endpoint_"); is &&
				(state == "ejected" || state == "degraded") {
				got[series{state, labels["endpoint"], labels["cause"]}] = m.GetGauge().GetValue()
			}
		}
	}
	want := map[series]float64{
		{"ejected", "well", ""}: 0, {"ejected", "full", ""}: 0, {"ejected", "silent", "no-first-token"}: 1,
		{"ejected", "unreached", "connect-failed"}: 1,
		{"degraded", "well", ""}:                   0, {"degraded", "full", "overload"}: 1,
		{"degraded", "silent", ""}: 0, {"degraded", "unreached", ""}: 0,
	}
	if !maps.Equal(got, want) {
		t.Errorf("states are %v, want %v", got, want)
	}
}

// familiesOf returns what the page says of a pool of these endpoints.
func familiesOf(t *testing.T, sys *runtime.System, es []*endpoints.Endpoint) []*dto.MetricFamily {
	t.Helper()
	pool := endpoints.NewPublished()
	endpoints.Publisher{Published: pool}.Publish(endpoints.NewSnapshot(1, es), nil)
	reg := prometheus.NewRegistry()
	reg.MustRegister(NewCollector(sys, pool, "pool", time.Second))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// TestSleepGaugeIsOfPagesThatTell: an endpoint whose page says nothing of sleep has no series.
func TestSleepGaugeIsOfPagesThatTell(t *testing.T) {
	sys := runtime.New(runtime.Config{Mode: runtime.Stepped, Loops: 1, Start: time.Unix(1_800_000_000, 0)})
	defer func() {
		if err := sys.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	var es []*endpoints.Endpoint
	for address, told := range map[messages.Address]endpointstest.Told{
		"awake": {attributes.Asleep: 0}, "asleep": {attributes.Asleep: 1}, "other engine": {}, "no page": nil,
	} {
		e := endpoints.New(messages.EndpointID{Slot: uint32(len(es)), Generation: 1},
			messages.EndpointSpec{Address: address})
		if told != nil {
			endpoints.SampleWriter{Endpoint: e}.Publish(&endpoints.Sample{At: sys.Now(), Values: told.Values()})
		}
		es = append(es, e)
	}
	got := map[string]float64{}
	for _, f := range familiesOf(t, sys, es) {
		for _, m := range f.GetMetric() {
			if f.GetName() == "signalbox_endpoint_asleep" {
				got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	if want := map[string]float64{"awake": 0, "asleep": 1}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
