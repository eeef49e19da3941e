package app

import (
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/messages"
)

// pluginMetrics are those that there are once plugins of certain types are configured.
const pluginMetrics = `
disagg_decision_total COUNTER decision_type,model_name,plugin_name,plugin_type
encoder_cache_hit_ratio HISTOGRAM plugin_name,plugin_type 0..1/11
encoder_cache_hits_total COUNTER modality,plugin_name,plugin_type,pod
encoder_cache_queries_total COUNTER modality,plugin_name,plugin_type
flow_control_detector_saturation GAUGE detector,stage
prefix_cache_affinity_filter_decisions_total COUNTER outcome,plugin_name
`

const pluginMetricsFile = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins: [{type: decode-filter}, {type: prefix-cache-affinity-filter}, {type: max-score-picker},
  {type: mm-embeddings-cache-producer}, {type: mm-embeddings-cache-scorer},
  {type: always-disagg-pd-decider}, {type: prefill-filter},
  {type: utilization-detector, parameters: {metricsStalenessThreshold: 1h}}, {type: concurrency-detector},
  {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}},
  {type: max-saturation-detector, parameters: {detectors: [utilization-detector, concurrency-detector],
    stages: {concurrency-detector: [prefill]}}}]
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: prefix-cache-affinity-filter},
    {pluginRef: mm-embeddings-cache-scorer}, {pluginRef: max-score-picker}]}
- {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: max-score-picker}]}
flowControl: {saturationDetector: {pluginRef: max-saturation-detector}}
`

func TestPluginsHaveTheReferencesMetrics(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr, end := quietTree(t, io.Discard, "--config-text", pluginMetricsFile)
	defer end()
	endpoints.SampleWriter{
		Endpoint: tr.picker.Pool().Snapshot().Endpoints[0],
	}.Publish(&endpoints.Sample{At: tr.picker.System().Now(), Values: endpointstest.Load(0, 0, 0)})
	for id := range messages.RequestID(2) { // the second one's image was sent before
		seen := messages.ListOf(messages.Medium{Hash: 7})
		tr.requestOf(t, messages.Request{ID: 1 + id, Model: "m", Items: seen}, "f", 200)
		tr.settled(t, float64(1+id))
	}
	var got, parts, outcomes []string
	families := tr.settled(t, 2)
	checkBuckets(t, families)
	for _, f := range families {
		name := strings.TrimPrefix(f.GetName(), "llm_d_epp_")
		if strings.Contains(pluginMetrics, "\n"+name+" ") {
			got = append(got, strings.TrimSpace(name+" "+f.GetType().String()+" "+shape(f)))
		}
		for _, m := range f.GetMetric() {
			label, n := m.GetLabel(), m.GetCounter().GetValue()
			switch {
			case name == "flow_control_detector_saturation":
				parts = append(parts, label[0].GetValue()+" "+label[1].GetValue())
			case name == "prefix_cache_affinity_filter_decisions_total" && n == 2:
				outcomes = append(outcomes, label[0].GetValue())
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(pluginMetrics), "\n"), got); diff != "" {
		t.Errorf("metrics, want -, got +:\n%s", diff)
	}
	// The only server has no role, and so is one for decoding.
	if want := []string{"utilization-detector decode"}; !slices.Equal(parts, want) {
		t.Errorf("saturation of %v, want %v", parts, want)
	}
	if want := []string{"not_applicable"}; !slices.Equal(outcomes, want) {
		t.Errorf("decisions %v, want %v: there is one server", outcomes, want)
	}
}

// furtherMetrics are those whose tests stand beside what counts: the rewriting of models, and revocations.
const furtherMetrics = `
flow_control_revocations_issued_total COUNTER inference_pool,priority
model_rewrite_decisions_total COUNTER model_name,model_rewrite_name,target_model
`

// Each metric of the reference is there, with its type, labels and buckets, or deploy/docs/differences.md says that it
// is not.
func TestEachMetricOfTheReferenceIsThereOrNamed(t *testing.T) {
	list, err := os.ReadFile("testdata/reference-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]bool{}
	for _, all := range []string{referenceMetrics, gateMetrics, pluginMetrics, furtherMetrics} {
		for line := range strings.SplitSeq(strings.TrimSpace(all), "\n") {
			ours[line] = true
		}
	}
	absent := absentMetrics(t)
	for line := range strings.SplitSeq(strings.TrimSpace(string(list)), "\n") {
		name, _, _ := strings.Cut(line, " ")
		named := slices.ContainsFunc(absent, func(pattern string) bool {
			match, _ := path.Match(pattern, name)
			return match
		})
		if ours[line] == named {
			t.Errorf("%s: there %v, differences.md says that it is absent %v", line, ours[line], named)
		}
		delete(ours, line)
	}
	for line := range ours {
		t.Errorf("%s is no metric of the reference", line)
	}
}

// checkBuckets wants every bucket of a histogram where the reference has one.
func checkBuckets(t *testing.T, families []*dto.MetricFamily) {
	t.Helper()
	list, err := os.ReadFile("testdata/reference-buckets.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(list)) {
		name, bounds, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[name] = bounds
	}
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "llm_d_epp_")
		if !ours || f.GetType() != dto.MetricType_HISTOGRAM {
			continue
		}
		var bounds []string
		for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
			bounds = append(bounds, strconv.FormatFloat(b.GetUpperBound(), 'f', -1, 64))
		}
		if got := strings.Join(bounds, " "); got != want[name] {
			t.Errorf("%s has the buckets\n%s, want\n%s", name, got, want[name])
		}
	}
}

// absentMetrics returns the names, and the patterns of names, of which differences.md says that Signalbox lacks them.
func absentMetrics(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/docs/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile("`([a-z_*]+)`")
	for _, item := range strings.Split(string(text), "\n- ") {
		rest, ok := strings.CutPrefix(item, "Signalbox does not have ")
		if !ok {
			continue
		}
		for part := range strings.SplitSeq(rest, "\n  - ") {
			list, _, _ := strings.Cut(part, ": ") // what follows is the reason
			for _, of := range quoted.FindAllStringSubmatch(list, -1) {
				names = append(names, of[1])
			}
		}
	}
	return names
}
