package app

import (
	"io"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/signalbox-epp/signalbox/messages"
)

// A model that the configuration in force has serve is a label of metrics before any request for it is answered; one
// that a client's header names is not.
func TestTargetsOfTheConfigurationAreLabels(t *testing.T) {
	rules := func(target string) string {
		return "modelRewrites: [{name: a, rules: [{matches: [{model: {value: m}}], targets: [{modelRewrite: " + target +
			"}]}]}]\n"
	}
	file := configFile(t, pickingBy("a")+rules("first"))
	tr, end := quietTree(t, io.Discard, "--config-file", file)
	defer end()
	rewrite(t, file, pickingBy("a")+rules("second"))
	if err := tr.configuration.reload(); err != nil {
		t.Fatal(err)
	}
	for i, target := range []string{"first", "second", "made-up"} {
		now, under := tr.picker.System().Now(), tr.configuration.streams()
		answer := make(listener, 1)
		_, ok := under.Start(messages.RequestArrived{
			Request: messages.Request{
				ID: messages.RequestID(i + 1), Model: target, Rewrite: messages.Rewrite{Made: true, From: "m"},
			},
			Configuration: under.Number, ArrivedAt: now, Flow: messages.FlowKey{Fairness: messages.DefaultFairness},
			Deadline: now.Add(time.Hour), Stream: answer,
		})
		if !ok {
			t.Fatal("no room for a request")
		}
		<-answer
	}
	got := tr.runningByTarget(t)
	if got["first"] != 1 || got["second"] != 1 || got["other"] != 1 {
		t.Errorf("requests run by target: %v, want one each of first, second, and other", got)
	}
}

// runningByTarget returns how many requests run for each target model, as metrics say.
func (t *tree) runningByTarget(tt *testing.T) map[string]float64 {
	tt.Helper()
	families, err := t.registry.Gather()
	if err != nil {
		tt.Fatal(err)
	}
	at := slices.IndexFunc(families,
		func(f *dto.MetricFamily) bool { return f.GetName() == "llm_d_epp_request_running" })
	if at < 0 {
		tt.Fatal("llm_d_epp_request_running has no series")
	}
	running := map[string]float64{}
	for _, m := range families[at].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "target_model_name" {
				running[l.GetValue()] += m.GetGauge().GetValue()
			}
		}
	}
	return running
}
