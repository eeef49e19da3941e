package admin

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// ward is a pool with one endpoint in each state of health: suspended, suspended and being tried, avoided, and one that is well.
func ward() *endpoints.Snapshot {
	ago := func(s int) time.Time { return noon.Add(-time.Duration(s) * time.Second) }
	list := make([]*endpoints.Endpoint, 0, 4)
	for i, h := range []*endpoints.Health{
		{Suspended: true, Why: messages.ConnectFailed, Since: ago(3), Until: noon.Add(time.Second)},
		{Suspended: true, Why: messages.NoFirstToken, Since: ago(12), Until: ago(2)},
		{Why: messages.Overload, Since: ago(1), Until: noon.Add(time.Second)},
		nil,
	} {
		e := endpoints.New(messages.EndpointID{Slot: uint32(i + 1), Generation: 1}, messages.EndpointSpec{
			Name: fmt.Sprintf("vllm-%d", i+1), Namespace: "llm", Address: messages.Address(fmt.Sprintf("10.0.0.%d:8000", i+1)),
		})
		e.SetHealth(h)
		list = append(list, e)
	}
	if !list[1].Health().Probe() {
		panic("there is no probe to be taken")
	}
	return endpoints.NewSnapshot(4, list)
}

// probing is a request that tries a suspended endpoint, while another one is left alone and a third is avoided.
func probing() messages.Record {
	r := served()
	r.Served = messages.EndpointID{Slot: 5, Generation: 1}
	r.Decision.Probe = true
	r.Decision.Suspicions = messages.ListOf(
		messages.Suspicion{At: 0, Suspended: true, Why: messages.ConnectFailed},
		messages.Suspicion{At: 1, Why: messages.Overload},
		messages.Suspicion{At: 4, Suspended: true, Why: messages.NoFirstToken},
	)
	run := r.Decision.Profiles.At(0)
	run.Scorers = messages.ListOf(
		messages.ScorerRun{Plugin: "queue-scorer", Weight: 2, Scores: messages.ListOf[float32](-1, 1, 0, -1, -1)},
		messages.ScorerRun{Plugin: "prefix-cache-scorer", Weight: 3, Scores: messages.ListOf[float32](-1, 0.3, 1, -1, -1)},
	)
	run.Totals, run.Ranked, run.Runner = messages.ListOf[float32](-1, 1.45, 3, -1, -1), messages.ListOf[uint32](4, 2, 1), 1
	r.Decision.Profiles = messages.ListOf(run)
	return r
}

// epidemic is a request over more sick endpoints than a line names.
func epidemic() messages.Record {
	r := crowd()
	var all []messages.Suspicion
	for i := range 20 {
		all = append(all, messages.Suspicion{At: i, Suspended: i%2 == 0, Why: messages.ServerError})
	}
	r.Decision.Suspicions = messages.TakeList(all)
	return r
}

// TestHealthTranscripts shows what is held against endpoints, in both forms.
func TestHealthTranscripts(t *testing.T) {
	for name, c := range map[string]struct {
		path   string
		record messages.Record
	}{
		"health":       {"/debug/endpoints", messages.Record{}},
		"health-json":  {"/debug/endpoints?format=json", messages.Record{}},
		"probing":      {"/debug/requests/x", probing()},
		"probing-json": {"/debug/requests/x?format=json", probing()},
		"epidemic":     {"/debug/requests/x", epidemic()},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(answering(c.record))
			cfg.Endpoints = func() []EndpointView { return Views(ward(), noon, 2*time.Second) }
			transcript(t, name, get(cfg, c.path))
		})
	}
}

// TestWhoIsLeftAloneIsNotStale: an endpoint without a total that something is held against was left alone for that, also if it comes last.
func TestWhoIsLeftAloneIsNotStale(t *testing.T) {
	all := []endpoint{{Address: "picked"}, {Address: "avoided"}, {Address: "suspended"}, {Address: "stale"}}
	run := messages.ProfileRun{Totals: messages.ListOf[float32](1, -1, -1, -1), Ranked: messages.ListOf[uint32](0, 1), Runner: -1}
	v := profile(&run, all, &messages.Decision{Suspicions: messages.ListOf(
		messages.Suspicion{At: 1, Why: messages.Overload}, messages.Suspicion{At: 2, Suspended: true, Why: messages.ServerError},
	)})
	for _, c := range v.Endpoints {
		want := map[string]string{"avoided": "avoided", "suspended": "suspended", "stale": "stale-sample"}[c.Address]
		if c.DroppedBy != want {
			t.Errorf("%s was dropped by %q, want %q", c.Address, c.DroppedBy, want)
		}
	}
}
