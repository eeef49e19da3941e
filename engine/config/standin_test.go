package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// Where the reference takes its default for a value that is none, or completes it, so does a file here, with a warning.
func TestDefaultsStandIn(t *testing.T) {
	const more = "algorithm: {type: threshold, threshold: {operator: LessThan, value: 1}}"
	tested := map[string]bool{}
	for _, c := range []struct{ typ, parameters, warns string }{
		{"active-request-scorer", "idleThreshold: -1", "idleThreshold: got -1, want 0 or more; the default counts, 0"},
		{prefixProducer, "blockSizeTokens: -1", "blockSizeTokens: got -1, want 0 or more; the default counts, 16"},
		{prefixProducer, "maxPrefixBlocksToMatch: -1", "maxPrefixBlocksToMatch: got -1, want 0"},
		{coreExtractor, "defaultEngine: ''", `defaultEngine: got "", want one of engineConfigs`},
		{coreExtractor, "engineLabelKey: ''", `engineLabelKey: got none, want a label key; the default counts, "llm-d`},
		{"data-parallel-profile-handler", "primaryPort: 0", "primaryPort: got 0, want 1 to 65535; the default counts,"},
		{"endpoint-attribute-filter", "attribute: queued-requests, onMissing: '', " + more, `onMissing: got "", want`},
		{"load-aware-scorer", "threshold: 0", "threshold: got 0, want 1 or more; the default counts, 128"},
		{"max-score-picker", "maxNumOfEndpoints: -1", "maxNumOfEndpoints: got -1, want 0 to 100; the default counts"},
		{"random-picker", "maxNumOfEndpoints: -1", "maxNumOfEndpoints: got -1, want 0 to 100; the default counts"},
		{"weighted-random-picker", "maxNumOfEndpoints: -1", "maxNumOfEndpoints: got -1, want 0 to 100; the default"},
		{"metrics-data-source", "path: ''", `path: got "", want a path that begins with /; the default counts, "/metr`},
		{"metrics-data-source", "scheme: ''", `scheme: got "", want http or https; the default counts, "http"`},
		{"metrics-data-source", "path: stats", "path: stats, which counts as /stats"},
		{"metrics-data-source", "interval: 1ms", "interval: got 1ms, which counts as 10ms, the least"},
		{"models-data-source", "path: ''", `path: got "", want a path that begins with /; the default counts, "/v1/mo`},
		{"mm-embeddings-cache-producer", "cacheSizeInMBPerServer: 0", "cacheSizeInMBPerServer: got 0, want 2"},
		{"no-hit-lru-scorer", "lruSize: 0", "lruSize: got 0, want 1 or more; the default counts, 1024"},
		{"p2p-source-producer", "prefillProfileName: ''", "prefillProfileName: missing; name a profile; the default"},
		{"prefix-cache-scorer", "matchLengthScaleTokens: 0", "matchLengthScaleTokens: got 0, want 1 or more"},
		{"session-affinity-filter", "encodedEndpointHeaderConfig: {header: ''}", "encodedEndpointHeaderConfig.header"},
		{"session-affinity-scorer", "sessionIdConfig: {evictionTtlSeconds: 0}", "sessionIdConfig.evictionTtlSeconds"},
		{"topology-affinity-filter", "minAffinity: ''", `minAffinity: got "", want host, rack, zone or region; the de`},
	} {
		tested[c.typ] = true
		got, err := Load([]byte(newHead+"plugins:\n- type: "+c.typ+"\n  parameters: {"+c.parameters+"}\n"), three)
		if err != nil {
			t.Errorf("%s {%s}: %v", c.typ, c.parameters, err)
			continue
		}
		if !slices.ContainsFunc(got.Warnings, func(p strictyaml.Problem) bool {
			return strings.HasPrefix(p.String(), "line 5: plugins[0].parameters."+c.warns)
		}) {
			t.Errorf("%s {%s}: warns %v, want %s", c.typ, c.parameters, got.Warnings, c.warns)
		}
	}
	for _, typ := range slices.Sorted(maps.Keys(standsIn)) {
		if !tested[typ] {
			t.Errorf("no row tests %s", typ)
		}
		for _, name := range standsIn[typ] {
			parameterAt(reflect.ValueOf(construct(typ)).Elem(), name) // panics if there is none
		}
	}
	got, err := Load([]byte(newHead+
		"plugins: [{type: metrics-data-source, parameters: {interval: 1ms, port: 9000.0}}]\n"+
		"dataLayer: {sources: [{pluginRef: metrics-data-source}]}"), three)
	if err != nil || got.Metrics.Interval != 10*time.Millisecond || got.Metrics.Port != 9000 {
		t.Errorf("got %+v, %v; want an interval of 10ms, and a port that is written as a fraction", got, err)
	}
}

// Parameters of a plugin that has none are a warning: the reference does not read them.
func TestParametersOfPluginsWithoutAnyAreWarnings(t *testing.T) {
	const file = "plugins:\n- type: %s\n  parameters:\n    threshold: 5\n    of: {more: [1]}\n"
	for _, typ := range []string{"queue-scorer", "kv-cache-utilization-scorer", "decode-filter"} {
		got, err := Load([]byte(newHead+strings.Replace(file, "%s", typ, 1)), three)
		if err != nil {
			t.Errorf("%s: %v", typ, err)
			continue
		}
		for _, want := range []string{
			"line 6: plugins[0].parameters.threshold: has no effect: unknown key, there are none",
			"line 7: plugins[0].parameters.of: has no effect: unknown key, there are none",
		} {
			if !slices.ContainsFunc(got.Warnings, func(p strictyaml.Problem) bool { return p.String() == want }) {
				t.Errorf("%s: warns %v, want %s", typ, got.Warnings, want)
			}
		}
	}
}
