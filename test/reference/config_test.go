package reference

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConfigurations shows files to the command, which prints what a file comes to, or everything that is wrong.
func TestConfigurations(t *testing.T) {
	const gate = header + "featureGates: [flowControl]\n"
	profile := func(entry string) string {
		return header + "plugins: [{type: queue-scorer}]\n" +
			"schedulingProfiles: [{name: default, plugins: [" + entry + "]}]\n"
	}
	for name, tc := range map[string]struct {
		file  string
		shown []string // parts of what is printed, white space aside
		wrong string   // the problem, if there is one
	}{
		"E1 everything": {file: full, shown: []string{
			"pluginRef: queue-scorer weight: 2", "pluginRef: few weight: 0.5",
			"priority: 2 maxBytes: 2000000000 maxRequests: 9",
			"flowControl=true", "pluginRef: full", "noEndpointRequestTTL: 10m0s", "interval: 250ms",
		}},
		"E13 no-endpoint TTL follows": {file: gate + "flowControl: {defaultRequestTTL: 30s}\n",
			shown: []string{"defaultRequestTTL: 30s noEndpointRequestTTL: 30s"}},
		"E18 an empty data layer": {file: header + "plugins: [{type: queue-scorer}]\ndataLayer: {}\n",
			shown: []string{"sources: " +
				"- pluginRef: metrics-data-source extractors: - pluginRef: core-metrics-extractor"}},
		"E19 no sources": {file: header + "plugins: [{type: active-request-scorer}]\n" +
			"dataLayer: {injectDefaults: false}\n",
			shown: []string{"dataLayer: injectDefaults: false sources: []"}},
		"E20 a further source": {file: header + "plugins: [{type: queue-scorer}, {type: models-data-source}, " +
			"{type: models-data-extractor}]\ndataLayer: {sources: [{pluginRef: models-data-source, " +
			"extractors: [{pluginRef: models-data-extractor}]}]}\n",
			shown: []string{"pluginRef: metrics-data-source extractors: - pluginRef: core-metrics-extractor",
				"pluginRef: models-data-source extractors: - pluginRef: models-data-extractor"}},
		"a source of another name": {file: header + "plugins: [{type: queue-scorer}, {type: metrics-data-source, " +
			"name: pages}]\ndataLayer: {sources: [{pluginRef: pages}]}\n", shown: []string{
			"sources: - pluginRef: pages extractors: - pluginRef: core-metrics-extractor requestHandler:"}},
		"E21 E23 names before their plugins": {file: header + `plugins:
- {type: disagg-profile-handler, parameters: {deciders: {prefill: late}}}
- {type: always-disagg-pd-decider, name: late}
schedulingProfiles: [{name: decode}, {name: prefill}]
`, shown: []string{"prefill: late"}},
		"E22 a name that may be left out": {file: header + "plugins: [{type: active-request-scorer, parameters: " +
			"{inFlightLoadProducerName: late}}, {type: inflight-load-producer, name: late}]\n",
			shown: []string{"inFlightLoadProducerName: late"}},
		"D29 parser twice": {file: header + "plugins: [{type: openai-parser}, {type: openai-parser, name: b}]\n" +
			"requestHandler: {parsers: [{pluginRef: openai-parser}, {pluginRef: b}]}\n",
			wrong: "parsers[1].pluginRef: a second openai-parser"},
		"E27 no type": {file: header + "plugins: [{name: a}]\n", wrong: "plugins[0].type: missing"},
		"E30 name twice": {file: header + "plugins: [{type: queue-scorer, name: a}, {type: queue-scorer, name: a}]\n",
			wrong: "plugins[1].name: a stands twice"},
		"E33 no plugin named": {file: profile("{weight: 2}"), wrong: "plugins[0].pluginRef: missing"},
		"E34 a plugin that is not there": {file: profile("{pluginRef: b}"),
			wrong: `schedulingProfiles[0].plugins[0].pluginRef: no plugin is named "b"`},
		"E49 E50 bounds of a band": {
			file: gate + "flowControl: {priorityBands: [{priority: 1}, {priority: 2, maxBytes: 0, maxRequests: 0}]}\n",
			shown: []string{"priority: 1 maxBytes: 1000000000 maxRequests: 5000",
				"priority: 2 maxBytes: 1000000000 maxRequests: 5000"},
		},
		"E57 negative priorities": {file: gate + "flowControl: {defaultPriorityBand: {maxRequests: 7}}\n",
			shown: []string{"defaultPriorityBand: maxBytes: 1000000000 maxRequests: 7",
				"defaultNegativePriorityBand: maxBytes: 1000000000 maxRequests: 7"}},
		"D61 targets without weights": {file: header + "modelRewrites: [{name: r, rules: [{targets: " +
			"[{modelRewrite: a}, {modelRewrite: b}]}]}]\n",
			shown: []string{"weight: 1 modelRewrite: a - weight: 1 modelRewrite: b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			if tc.wrong != "" {
				if out, status := command(t, "config", "check", path); status != 1 || !strings.Contains(out, tc.wrong) {
					t.Errorf("exit status %d, want %s:\n%s", status, tc.wrong, out)
				}
				return
			}
			out, status := command(t, "config", "show", path)
			plain := strings.Join(strings.Fields(out), " ")
			for _, want := range tc.shown {
				if status != 0 || !strings.Contains(plain, want) {
					t.Errorf("exit status %d, want %q in:\n%s", status, want, out)
				}
			}
		})
	}
}

// full has something in every section.
const full = header + `featureGates: [flowControl, haPopulateNonLeaderDatastore=true]
plugins:
- type: queue-scorer
- {type: active-request-scorer, name: few, parameters: {idleThreshold: 1}}
- {type: label-selector-filter, parameters: {matchLabels: {app: vllm}}}
- type: weighted-random-picker
- type: single-profile-handler
- {type: concurrency-detector, name: full, parameters: {maxConcurrency: 8}}
- {type: round-robin-fairness-policy, name: turns}
- type: edf-ordering-policy
- {type: metrics-data-source, name: pages, parameters: {interval: 250ms}}
- type: core-metrics-extractor
- {type: openai-parser, name: chat}
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: label-selector-filter
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: few, weight: 0.5}
  - pluginRef: weighted-random-picker
dataLayer:
  injectDefaults: false
  sources: [{pluginRef: pages, extractors: [{pluginRef: core-metrics-extractor}]}]
requestHandler: {parsers: [{pluginRef: chat}]}
flowControl:
  maxBytes: 8Gi
  maxRequests: 1k
  defaultRequestTTL: 30s
  noEndpointRequestTTL: 10m
  defaultPriorityBand: {maxRequests: 7}
  priorityBands:
  - {priority: 2, maxBytes: 2G, maxRequests: "9", fairnessPolicyRef: turns, orderingPolicyRef: edf-ordering-policy}
  saturationDetector: {pluginRef: full}
`
