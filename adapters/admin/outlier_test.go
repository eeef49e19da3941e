package admin

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/messages"
)

// ward is a pool with one endpoint in each state: ejected, half-open, degraded, healthy and asleep.
func ward() *endpoints.Snapshot {
	ago := func(s int) time.Time { return noon.Add(-time.Duration(s) * time.Second) }
	list := make([]*endpoints.Endpoint, 0, 5)
	for i, h := range []*outlier.Status{
		{Ejected: true, Cause: messages.ConnectFailed, Since: ago(3), Until: noon.Add(time.Second)},
		{Ejected: true, Cause: messages.NoFirstToken, Since: ago(12), Until: ago(2)},
		{Cause: messages.Overload, Since: ago(1), Until: noon.Add(time.Second)},
		nil, nil,
	} {
		e := endpoints.New(messages.EndpointID{Slot: uint32(i + 1), Generation: 1}, messages.EndpointSpec{
			Name: fmt.Sprintf("vllm-%d", i+1), Namespace: "llm",
			Address: messages.Address(fmt.Sprintf("10.0.0.%d:8000", i+1)),
		})
		endpoints.OutlierWriter{Endpoint: e}.SetOutlier(h)
		list = append(list, e)
	}
	endpoints.SampleWriter{Endpoint: list[4]}.Publish(&endpoints.Sample{At: ago(1), Engine: "vllm",
		Interval: time.Second, Values: endpointstest.Told{attributes.Asleep: 1}.Values()})
	if !list[1].Outlier().Probe() {
		panic("there is no probe to be taken")
	}
	return endpoints.NewSnapshot(4, list)
}

// probing is the probe of an ejected endpoint, while another one is ejected and a third is degraded.
func probing() messages.Record {
	r := served()
	r.Served = messages.EndpointID{Slot: 5, Generation: 1}
	r.Decision.Probe = true
	r.Decision.Outliers = messages.ListOf(
		messages.Outlier{At: 0, Ejected: true, Cause: messages.ConnectFailed},
		messages.Outlier{At: 1, Cause: messages.Overload},
		messages.Outlier{At: 4, Ejected: true, Cause: messages.NoFirstToken},
	)
	run := r.Decision.Profiles.At(0)
	run.Scorers = messages.ListOf(
		messages.ScorerRun{Plugin: "queue-scorer", Weight: 2, Scores: messages.ListOf[float32](-1, 1, 0, -1, -1)},
		messages.ScorerRun{Plugin: "prefix-cache-scorer", Weight: 3, Scores: messages.ListOf[float32](-1, 0.3, 1, -1,
			-1)},
	)
	run.Totals, run.Ranked, run.Runner = messages.ListOf[float32](-1, 1.45, 3, -1, -1),
		messages.ListOf[uint32](4, 2, 1), 1
	r.Decision.Profiles = messages.ListOf(run)
	return r
}

// epidemic is a request over more sick endpoints than a line names.
func epidemic() messages.Record {
	r := crowd()
	var all []messages.Outlier
	for i := range 20 {
		all = append(all, messages.Outlier{At: i, Ejected: i%2 == 0, Cause: messages.ServerError})
	}
	r.Decision.Outliers = messages.TakeList(all)
	return r
}

// TestOutlierTranscripts shows the states of endpoints, in both forms.
func TestOutlierTranscripts(t *testing.T) {
	for name, c := range map[string]struct {
		path   string
		record messages.Record
	}{
		"outliers":      {"/debug/endpoints", messages.Record{}},
		"outliers-json": {"/debug/endpoints?format=json", messages.Record{}},
		"probing":       {"/debug/requests/x", probing()},
		"probing-json":  {"/debug/requests/x?format=json", probing()},
		"epidemic":      {"/debug/requests/x", epidemic()},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(answering(c.record))
			cfg.Endpoints = func() []EndpointView { return Views(ward(), noon, 2*time.Second) }
			transcript(t, name, get(cfg, c.path))
		})
	}
}

// TestOutliersAreNotStale: an outlier without a total was dropped for that, also if it comes last.
func TestOutliersAreNotStale(t *testing.T) {
	all := []endpoint{{Address: "picked"}, {Address: "degraded"}, {Address: "ejected"}, {Address: "stale"}}
	run := messages.ProfileRun{Totals: messages.ListOf[float32](1, -1, -1, -1), Ranked: messages.ListOf[uint32](0, 1),
		Runner: -1}
	v := profile(&run, all, &messages.Decision{Outliers: messages.ListOf(
		messages.Outlier{At: 1, Cause: messages.Overload},
		messages.Outlier{At: 2, Ejected: true, Cause: messages.ServerError},
	)})
	for _, c := range v.Endpoints {
		want := map[string]string{"degraded": "degraded", "ejected": "ejected", "stale": "stale-sample"}[c.Address]
		if c.DroppedBy != want {
			t.Errorf("%s was dropped by %q, want %q", c.Address, c.DroppedBy, want)
		}
	}
}

// TestSleepIsToldByFreshPages: what an endpoint is without the page counts once the page is stale.
func TestSleepIsToldByFreshPages(t *testing.T) {
	asleep := true
	for want, sample := range map[string]SampleView{
		"asleep": {Fresh: true, Asleep: &asleep}, "degraded: overload": {Asleep: &asleep},
	} {
		e := EndpointView{Sample: &sample, Outlier: &OutlierView{State: "degraded", Cause: "overload"}}
		if got := e.outlier(); got != want {
			t.Errorf("fresh %v: %q, want %q", sample.Fresh, got, want)
		}
	}
}
