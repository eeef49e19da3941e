package config

import (
	"strings"
	"testing"
)

// disaggregated is a file in which servers of their own read prompts. begin stands before its other plugins, decider is
// how the handler names it.
func disaggregated(begin, decider string) string {
	return `
plugins:
- type: ` + begin + `
- type: disagg-profile-handler
  parameters: {` + decider + `: always-disagg-pd-decider}
- type: always-disagg-pd-decider
- type: decode-filter
- type: prefill-filter
- type: active-request-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: queue-scorer
- type: max-score-picker
schedulingProfiles:
- name: decode
  plugins:
  - {pluginRef: decode-filter}
  - {pluginRef: active-request-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
  - {pluginRef: max-score-picker}
- name: prefill
  plugins:
  - {pluginRef: prefill-filter}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: max-score-picker}
`
}

// wellKnown are files of the shapes that guides of the reference have, with the warnings that each gets, in the order
// in which Load has them.
var wellKnown = map[string]struct {
	file     string
	warnings []string
}{
	"optimized-baseline": {`
plugins:
- type: prefix-cache-scorer
- type: queue-scorer
- type: no-hit-lru-scorer
- type: kv-cache-utilization-scorer
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: prefix-cache-scorer, weight: 3}
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: no-hit-lru-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
`, nil},
	"tiered-prefix-cache-cpu": {`
plugins:
- type: prefix-cache-scorer
  name: of-gpu
- type: prefix-cache-scorer
  name: of-cpu
  parameters: {prefixMatchInfoProducerName: in-memory}
- type: approx-prefix-cache-producer
  name: in-memory
  parameters: {autoTune: false, lruCapacityPerServer: 4000000, maxPrefixBlocksToMatch: 256}
- type: kv-cache-utilization-scorer
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: of-gpu}
  - {pluginRef: of-cpu}
`, []string{
		"parameters.lruCapacityPerServer: got 4000000, which counts as 1048576, the most",
	}},
	"two producers": {`
plugins:
- type: approx-prefix-cache-producer
- {type: approx-prefix-cache-producer, name: in-memory}
- {type: inflight-load-producer, name: a}
- {type: inflight-load-producer, name: b}
- {type: active-request-scorer, parameters: {inFlightLoadProducerName: inflight-load-producer}}
- type: token-load-scorer
- type: prefix-cache-scorer
- type: no-hit-lru-scorer
- {type: prefix-cache-scorer, name: of-cpu, parameters: {prefixMatchInfoProducerName: in-memory}}
`, nil},
	"pd-disaggregation": {disaggregated("disagg-headers-handler", "deciderPluginName"), []string{
		"plugins[0]: disagg-headers-handler has no effect, because disagg-profile-handler sets its headers",
		"plugins[1].parameters.deciderPluginName: deprecated, write deciders.prefill",
	}},
	"wide-ep-lws": {disaggregated("prefill-header-handler\n  parameters: {prefillProfile: fill}",
		"prefillDeciderPluginName"), []string{
		"plugins[0]: prefill-header-handler has no effect, because disagg-profile-handler sets its headers",
		"plugins[0].parameters.prefillProfile: has no effect",
		"plugins[1].parameters.prefillDeciderPluginName: deprecated, write deciders.prefill",
	}},
	"flow-control": {`
featureGates: [flowControl]
plugins:
- type: concurrency-detector
  parameters: {concurrencyMode: requests, maxConcurrency: 64, headroom: 0.0}
- type: fcfs-ordering-policy
- type: round-robin-fairness-policy
- type: prefix-cache-scorer
- type: queue-scorer
schedulingProfiles:
- name: default
  plugins: [{pluginRef: prefix-cache-scorer, weight: 3}, {pluginRef: queue-scorer, weight: 2}]
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  maxBytes: 4Gi
  maxRequests: "2k"
  defaultRequestTTL: "30s"
  priorityBands:
  - {priority: 10, maxRequests: "400", fairnessPolicyRef: round-robin-fairness-policy}
  - {priority: -1, maxRequests: "40", orderingPolicyRef: fcfs-ordering-policy}
`, nil},
	"payload-agnostic": {`
plugins:
- type: passthrough-parser
- type: active-request-scorer
  parameters: {requestTimeout: 2m}
- type: session-affinity-scorer
requestHandler: {parsers: [{pluginRef: passthrough-parser}]}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: active-request-scorer}, {pluginRef: session-affinity-scorer}]
`, []string{"parameters.requestTimeout: has no effect"}},
	"notified of endpoints": {`
plugins:
- type: endpoint-notification-source
- type: inflight-load-producer
  parameters: {syncCrossReplicaState: false}
- type: mm-embeddings-cache-producer
- type: token-load-scorer
- type: mm-embeddings-cache-scorer
schedulingProfiles:
- name: default
  plugins: [{pluginRef: token-load-scorer}, {pluginRef: mm-embeddings-cache-scorer}]
dataLayer:
  sources:
  - pluginRef: endpoint-notification-source
    extractors: [{pluginRef: inflight-load-producer}, {pluginRef: mm-embeddings-cache-producer}]
`, []string{"parameters.syncCrossReplicaState: has no effect"}},
}

// Files of the shapes that the reference's guides have run, with a warning for each thing that has no effect.
func TestWellKnownFilesLoad(t *testing.T) {
	for name, c := range wellKnown {
		t.Run(name, func(t *testing.T) {
			got, err := Load([]byte(newHead+c.file), three)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Warnings) != len(c.warnings) {
				t.Fatalf("warned %v, want %q", got.Warnings, c.warnings)
			}
			for i, w := range got.Warnings {
				if !strings.Contains(w.String(), c.warnings[i]) {
					t.Errorf("warning %d: %v, want %q", i, w, c.warnings[i])
				}
			}
			shown, err := Show([]byte(newHead+c.file), three)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Show(shown, three)
			if err != nil || string(again) != string(shown) {
				t.Errorf("what is shown is read as another file: %v\n%s\n%s", err, shown, again)
			}
		})
	}
}

// A file that needs a predictor of latency is refused with that reason, for each plugin that asks it.
func TestPredictedLatencyIsRefused(t *testing.T) {
	_, err := Load([]byte(newHead+`
plugins:
- type: predicted-latency-producer
  parameters: {streamingMode: true}
- type: latency-scorer
- type: latency-slo-admitter
- type: prefix-cache-affinity-filter
- type: slo-headroom-tier-filter
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: prefix-cache-affinity-filter}
  - {pluginRef: slo-headroom-tier-filter}
  - {pluginRef: latency-scorer}
`), three)
	if err == nil || strings.Count(err.Error(), " is not supported: "+asksPredictor) != 4 {
		t.Errorf("got %v, want 4 plugins that are not supported: %s", err, asksPredictor)
	}
}
