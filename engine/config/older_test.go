package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/engine/filters"
	"github.com/signalbox-epp/signalbox/engine/profiles"
	"github.com/signalbox-epp/signalbox/engine/scorers"
)

const oldestHead = "apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\n"

// twoStages are the profiles of files in which servers of their own read prompts, picked by filters of these names.
func twoStages(prefill, decode, scorer string) string {
	return `
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: ` + prefill + `}, {pluginRef: ` + scorer + `, weight: 2}]
- name: decode
  plugins: [{pluginRef: ` + decode + `}, {pluginRef: ` + scorer + `, weight: 2}]
`
}

// olderFiles have the shapes that files of older versions of the reference have, each with the warnings beside that of
// apiVersion that it gets.
var olderFiles = map[string]struct {
	file     string
	warnings string
	left     string // of what Convert makes of it
}{
	"every prompt is read elsewhere": {oldestHead + `
plugins:
- type: prefill-header-handler
- type: prefill-filter
- type: decode-filter
- type: queue-scorer
- type: pd-profile-handler
  parameters: {threshold: 0, hashBlockSize: 5}
` + twoStages("prefill-filter", "decode-filter", "queue-scorer"), `
plugins[0]: prefill-header-handler has no effect, because disagg-profile-handler sets its headers; leave it out
plugins[4].type: pd-profile-handler is deprecated, write disagg-profile-handler
plugins[4].parameters.hashBlockSize: has no effect`, `
plugins[0]: prefill-header-handler has no effect, because disagg-profile-handler sets its headers; leave it out`},
	"a threshold, and sizes at the scorer": {oldestHead + `
plugins:
- type: prefix-cache-scorer
  parameters: {hashBlockSize: 5, maxPrefixBlocksToMatch: 256, lruCapacityPerServer: 31250}
- {type: prefill-filter}
- {type: decode-filter}
- {type: pd-profile-handler, parameters: {threshold: 10, prefillProfile: prefill}}
` + twoStages("prefill-filter", "decode-filter", "prefix-cache-scorer"), `
plugins[0].parameters.lruCapacityPerServer: deprecated, write it at an approx-prefix-cache-producer
plugins[0].parameters.hashBlockSize: has no effect
plugins[3].type: pd-profile-handler is deprecated, write disagg-profile-handler`, ``},
	"a decider, labels and a sidecar's port": {oldestHead + `
featureGates: [prepareDataPlugins]
plugins:
- {type: by-label, name: reads, parameters: {label: role, validValues: [prefill]}}
- {type: by-label, name: writes, parameters: {label: role, validValues: [decode], allowsNoLabel: true}}
- {type: prefix-cache-scorer, parameters: {autoTune: false, blockSize: 5}}
- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 8}}
- {type: pd-profile-handler, parameters: {deciderPluginName: prefix-based-pd-decider, primaryPort: 8000}}
` + twoStages("reads", "writes", "prefix-cache-scorer"), `
featureGates[0]: prepareDataPlugins has no effect, leave it out
plugins[0].type: by-label is deprecated, write label-selector-filter
plugins[1].type: by-label is deprecated, write label-selector-filter
plugins[4].type: pd-profile-handler is deprecated, write disagg-profile-handler`, `
plugins[1].type: by-label is deprecated, write label-selector-filter
plugins[4].type: pd-profile-handler is deprecated, write disagg-profile-handler
plugins[5].parameters.blockSizeTokens: got 5, which counts as 64, the least`},
	"the first names": {oldestHead + `
plugins:
- {type: prefix-cache, parameters: {lruCapacityPerServer: 500}}
- {type: kv-cache-scorer, parameters: {threshold: 3}}
- {type: max-score}
- {type: single-profile}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: prefix-cache, weight: 50}, {pluginRef: kv-cache-scorer}, {pluginRef: max-score}]
`, `
plugins[0].type: prefix-cache is deprecated, write prefix-cache-scorer
plugins[0].parameters.lruCapacityPerServer: deprecated, write it at an approx-prefix-cache-producer
plugins[1].type: kv-cache-scorer is deprecated, write kv-cache-utilization-scorer
plugins[1].parameters.threshold: has no effect: unknown key, there are none
plugins[2].type: max-score is deprecated, write max-score-picker
plugins[3].type: single-profile is deprecated, write single-profile-handler`, ``},
	"pages and bounds without plugins": {oldestHead + `
featureGates: [dataLayer, flowControl]
plugins: [{type: queue-scorer}, {type: metrics-data-source}, {type: core-metrics-extractor}]
saturationDetector: {queueDepthThreshold: 8, kvCacheUtilThreshold: 0.75, metricsStalenessThreshold: 150ms}
data:
  sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
`, `
featureGates[0]: dataLayer has no effect, leave it out
saturationDetector: deprecated, write a utilization-detector and name it in flowControl.saturationDetector
data: deprecated, write dataLayer`, ``},
	"a bound in tokens, headers of sessions": {"apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n" + `
plugins:
- type: prefix-cache-affinity-filter
  parameters: {affinityThreshold: 0.8, maxTokensInFlightPenalty: 286720, maxTTFTPenaltyMs: 0}
- {type: session-affinity-filter, parameters: {headerName: x-conversation}}
- {type: openai-parser, parameters: {propagatePriority: true}}
- {type: token-load-scorer}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: prefix-cache-affinity-filter}
  - {pluginRef: session-affinity-filter}
  - {pluginRef: token-load-scorer}
`, `
plugins[0].parameters.maxTokensInFlightPenalty: deprecated, write maxTTFTPenaltyMs: 18001
plugins[1].parameters.headerName: deprecated, write encodedEndpointHeaderConfig.header
plugins[2].parameters.propagatePriority: deprecated, write requestHandler.propagatePriority`, ``},
	"no label": {oldestHead + `
plugins:
- {type: by-label, parameters: {label: role, validValues: [], allowsNoLabel: true}}
- {type: queue-scorer}
schedulingProfiles: [{name: default, plugins: [{pluginRef: by-label}, {pluginRef: queue-scorer}]}]
`, `
plugins[0].type: by-label is deprecated, write label-selector-filter`, ``},
}

// warned returns the warnings of a file but that of apiVersion, without lines.
func warned(t *testing.T, file []byte) (list []string) {
	t.Helper()
	c, err := Load(file, three)
	if err != nil {
		t.Fatalf("Load(%s): %v", file, err)
	}
	for _, w := range c.Warnings {
		if w.Path != "apiVersion" {
			list = append(list, w.Path+": "+w.Text)
		}
	}
	return list
}

// Files of older versions load, with each deprecation said, and Convert makes files of them that come to the same.
func TestOlderFilesLoad(t *testing.T) {
	for name, c := range olderFiles {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(strings.TrimSpace(c.warnings), strings.Join(warned(t, []byte(c.file)), "\n")); d != "" {
				t.Errorf("warnings: want -, got +\n%s", d)
			}
			converted, err := Convert([]byte(c.file))
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(warned(t, converted), "\n")
			if d := cmp.Diff(strings.TrimSpace(c.left), got); d != "" {
				t.Errorf("warnings of what is converted: want -, got +\n%s\n%s", d, converted)
			}
			if d := cmp.Diff(sameTypes(effect(t, []byte(c.file))), sameTypes(effect(t, converted))); d != "" {
				t.Errorf("the older file -, converted +\n%s\n%s", d, converted)
			}
		})
	}
}

// sameTypes takes a filter by a label for a selector that does the same.
func sameTypes(effect string) string {
	return strings.NewReplacer("filter by-label reads &{Label:role ValidValues:[prefill] AllowsNoLabel:false}",
		"filter label-selector-filter reads &{MatchLabels:map[] "+
			"MatchExpressions:[{Key:role Operator:In Values:[prefill]}]}",
		"filter by-label by-label &{Label:role ValidValues:[] AllowsNoLabel:true}",
		"filter label-selector-filter by-label &{MatchLabels:map[] "+
			"MatchExpressions:[{Key:role Operator:DoesNotExist Values:[]}]}",
	).Replace(effect)
}

// What a handler of an older file decides by, and how Convert writes it.
func TestOlderHandlersDecide(t *testing.T) {
	const decider = "- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 16}}\n"
	for name, c := range map[string]struct {
		parameters, more string
		want, converted  string // the decider; of the converted file, with the plugin that it adds
	}{
		"nothing":      {"", "", "", "prefill: always-disagg-pd-decider"},
		"threshold 0":  {"threshold: 0", "", "", "- type: always-disagg-pd-decider"},
		"threshold 10": {"threshold: 10", "", "", "nonCachedTokens: 3"},
		"a plugin of its day": {"threshold: 10", decider, "prefix-based-pd-decider",
			"prefill: prefix-based-pd-decider"},
		"a plugin by name": {"deciderPluginName: always",
			decider + "- {type: always-disagg-pd-decider, name: always}\n", "always", "prefill: always"},
	} {
		t.Run(name, func(t *testing.T) {
			file := oldestHead + "plugins: # of two stages\n- {type: queue-scorer}\n- {type: prefill-filter}\n" +
				"- {type: decode-filter}\n" + c.more +
				"- {type: pd-profile-handler, parameters: {" + c.parameters + "}}" +
				twoStages("prefill-filter", "decode-filter", "queue-scorer")
			got, err := Load([]byte(file), three)
			if err != nil {
				t.Fatal(err)
			}
			if h := got.Plan.Handler().(*profiles.PrefillDecode); h.DeciderPluginName != c.want {
				t.Errorf("decider %q, want %q", h.DeciderPluginName, c.want)
			}
			converted, err := Convert([]byte(file))
			if err != nil || !strings.Contains(string(converted), c.converted) {
				t.Fatalf("%v, want %q in\n%s", err, c.converted, converted)
			}
			got, err = Load(converted, three)
			if err != nil {
				t.Fatalf("%v in\n%s", err, converted)
			}
			if _, ok := got.Plan.Handler().(*profiles.Disagg); !ok {
				t.Errorf("got a %T, want a disagg-profile-handler", got.Plan.Handler())
			}
		})
	}
}

// Older names of parameters are as the present ones, which go before them.
func TestOlderNamesAreAsThePresentOnes(t *testing.T) {
	const names = "decode prefill encode"
	for name, c := range map[string]struct{ parameters, want, warnings string }{
		"none": {"", names + " /", ""},
		"all": {"decodeProfile: d, prefillProfile: p, encodeProfile: e, prefillDeciderPluginName: x, " +
			"encodeDeciderPluginName: y", "d p e x/y", "decodeProfile: deprecated, write profiles.decode; " +
			"prefillProfile: deprecated, write profiles.prefill; encodeProfile: deprecated, write profiles.encode; " +
			"prefillDeciderPluginName: deprecated, write deciders.prefill; " +
			"encodeDeciderPluginName: deprecated, write deciders.encode"},
		"the oldest": {"deciderPluginName: x", names + " x/", "deciderPluginName: deprecated, write deciders.prefill"},
		"empty":      {"prefillProfile: ''", names + " /", "prefillProfile: deprecated, write profiles.prefill"},
		"beside the present": {"deciders: {prefill: x}, deciderPluginName: x, prefillDeciderPluginName: y",
			names + " x/", "prefillDeciderPluginName: has no effect beside deciders.prefill; " +
				"deciderPluginName: deprecated, write deciders.prefill"},
		"beside the default, written": {"profiles: {decode: decode}, decodeProfile: d", names + " /",
			"decodeProfile: has no effect beside profiles.decode"},
	} {
		t.Run(name, func(t *testing.T) {
			file := head + "plugins:\n- {type: always-disagg-pd-decider, name: x}\n" +
				"- {type: always-disagg-multimodal-decider, name: y}\n- {type: queue-scorer}\n" +
				"- {type: disagg-profile-handler, parameters: {" + c.parameters + "}}\nschedulingProfiles:\n"
			for _, p := range strings.Fields(names + " d p e") {
				file += "- {name: " + p + ", plugins: [{pluginRef: queue-scorer}]}\n"
			}
			both := [][]byte{[]byte(file)}
			if converted, err := Convert([]byte(file)); err != nil {
				t.Error(err)
			} else {
				both = append(both, converted)
			}
			for i, data := range both {
				got, err := Load(data, three)
				if err != nil {
					t.Fatalf("%v in\n%s", err, data)
				}
				h := got.Plan.Handler().(*profiles.Disagg)
				is := strings.Join([]string{h.Profiles.Decode, h.Profiles.Prefill, h.Profiles.Encode,
					h.Deciders.Prefill + "/" + h.Deciders.Encode}, " ")
				if is != c.want {
					t.Errorf("got %q, want %q of\n%s", is, c.want, data)
				}
				var said []string
				for _, w := range warned(t, data) {
					rest, ok := strings.CutPrefix(w, "plugins[3].parameters.")
					if ok && !strings.Contains(rest, "names no decider") {
						said = append(said, rest)
					}
				}
				if want := c.warnings; i == 0 && strings.Join(said, "; ") != want || i == 1 && len(said) > 0 {
					t.Errorf("warned %q, want %q, and nothing of what is converted", said, want)
				}
			}
		})
	}
}

// Values that older files have elsewhere are in force.
func TestOlderValuesAreInForce(t *testing.T) {
	shown, err := Show([]byte(olderFiles["pages and bounds without plugins"].file), three)
	if err != nil {
		t.Fatal(err)
	}
	for _, bound := range []string{"queueDepthThreshold: 8\n", "kvCacheUtilThreshold: 0.75\n",
		"metricsStalenessThreshold: 150ms\n"} {
		if !strings.Contains(string(shown), bound) {
			t.Errorf("no %q in\n%s", bound, shown)
		}
	}
	c, err := Load([]byte(olderFiles["a bound in tokens, headers of sessions"].file), three)
	if err != nil {
		t.Fatal(err)
	}
	list := c.Plan.Profiles()[0].Filters
	if f := list[0].Filter.(*filters.PrefixCacheAffinity); int(f.MaxTTFTPenaltyMs) != 286720*1000/15928 {
		t.Errorf("%v ms, want those of 286720 tokens at 15928 a second", f.MaxTTFTPenaltyMs)
	}
	if f := list[1].Filter.(*filters.SessionAffinity); f.EncodedEndpointHeaderConfig.Header != "x-conversation" {
		t.Errorf("header %q, want x-conversation", f.EncodedEndpointHeaderConfig.Header)
	}
	if !c.SetsPriority {
		t.Error("propagatePriority of the parser has no effect")
	}
	c, err = Load([]byte(head+"plugins: [{type: prefix-cache-scorer, parameters: "+
		"{prefixLengthWeight: 0.5, maxModelLen: 4096}}, {type: mm-embeddings-cache-producer, parameters: "+
		"{cacheSizeInMB: 64}}]"), three)
	if err != nil {
		t.Fatal(err)
	}
	s := c.Plan.Profiles()[0].Scorers[0].Scorer.(*scorers.PrefixCache)
	if s.MatchLengthWeight != 0.5 || s.MatchLengthScaleTokens != 4096 {
		t.Errorf("weight %v, scale %d; want 0.5, 4096", s.MatchLengthWeight, s.MatchLengthScaleTokens)
	}
}

// In the oldest files a parameter may be unknown, at any depth. Convert leaves it out, unless there is an alias.
func TestOldestFilesMayHaveUnknownParameters(t *testing.T) {
	const file = oldestHead + "plugins:\n- type: session-affinity-filter\n" +
		"  parameters: {maxAge: 5, sessionIdConfig: {cookie: x, sources: [{header: y, cookie: z}]}}\n"
	got := warned(t, []byte(file))
	if len(got) != 4 || !strings.Contains(got[1], "maxAge: has no effect: unknown key") {
		t.Errorf("warned %q, want three unknown keys, and that there is no scorer", got)
	}
	converted, err := Convert([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(converted), "cookie") || !strings.Contains(string(converted), "header: y") {
		t.Errorf("want the known parameters alone, got\n%s", converted)
	}
	warned(t, converted)
	aliased := oldestHead + "plugins:\n- {type: queue-scorer, parameters: &a {b: 1}}\n" +
		"- {type: kv-cache-scorer, parameters: *a}\n"
	_, err = Convert([]byte(aliased))
	if err == nil || !strings.Contains(err.Error(), "plugins: the file has an alias") {
		t.Errorf("got %v, want that an alias is not converted", err)
	}
}

// Certificates of pages are in force; of the page of another source, too.
func TestSourcesHaveCertificates(t *testing.T) {
	got, err := Load([]byte(newHead+`
plugins:
- type: metrics-data-source
  parameters: {scheme: https, insecureSkipVerify: false, caCertPath: /ca, clientCertPath: /crt, clientKeyPath: /key,
    families: [a]}
- type: models-data-source
  parameters: {scheme: https, caCertPath: /ca}
- type: document-data-source
  parameters: {url: "http://a/b", scheme: https, insecureSkipVerify: false, caCertPath: /ca}
- {type: document-data-source, name: b, parameters: {url: "https://a/b", clientCertPath: /crt, clientKeyPath: /key}}
- {type: document-data-source, name: c, parameters: {path: /b, clientCertPath: /crt, clientKeyPath: /key}}
- type: queue-scorer
dataLayer:
  sources: [{pluginRef: metrics-data-source}, {pluginRef: models-data-source}]
`), three)
	if err != nil {
		t.Fatal(err)
	}
	m := got.Metrics
	if m.InsecureSkipVerify || m.CACertPath != "/ca" || m.ClientCertPath != "/crt" || m.ClientKeyPath != "/key" {
		t.Errorf("got %+v, want /ca, /crt and /key", m)
	}
	want := "plugins[0].parameters.families: has no effect; " +
		"plugins[1].parameters.caCertPath: has no effect while insecureSkipVerify is true; " +
		"plugins[2].parameters.caCertPath: has no effect without https; " +
		"plugins[4].parameters.clientCertPath: has no effect without https; " +
		"plugins[4].parameters.clientKeyPath: has no effect without https"
	var said []string
	for _, w := range got.Warnings {
		if strings.Contains(w.Path, ".parameters.") {
			said = append(said, w.Path+": "+w.Text)
		}
	}
	if strings.Join(said, "; ") != want {
		t.Errorf("warned %q, want %q", said, want)
	}
	for _, half := range []string{"clientCertPath", "clientKeyPath"} {
		_, err := Load([]byte(newHead+"plugins: [{type: metrics-data-source, parameters: {"+half+": /x}}]"), three)
		if err == nil || !strings.Contains(err.Error(), ": missing beside "+half) {
			t.Errorf("%s alone: got %v, want that the other one is missing", half, err)
		}
	}
}

func TestOlderFilesAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"a handler of older files without its profiles": {newHead + "plugins: [{type: pd-profile-handler}]",
			`line 3: plugins[0].parameters.decodeProfile: no profile is named "decode", want one of default`},
		"a fallback that is a stage": {newHead + "plugins: [{type: disagg-profile-handler, parameters: " +
			"{profiles: {fallback: decode}}}]\nschedulingProfiles: [{name: decode}]",
			`line 3: plugins[0].parameters.profiles.fallback: got "decode", which profiles.decode is too, want another`},
		"an older handler's port": {newHead + "plugins: [{type: pd-profile-handler, parameters: {primaryPort: 70000}}]",
			"line 3: plugins[0].parameters.primaryPort: got 70000, want 1 to 65535, or 0"},
		"an older handler's threshold": {newHead + "plugins: [{type: pd-profile-handler, parameters: {threshold: -1}}]",
			"line 3: plugins[0].parameters.threshold: got -1, want 0 or more"},
		"an older handler's decider": {newHead + "plugins: [{type: pd-profile-handler, parameters: " +
			"{deciderPluginName: x}}]\nschedulingProfiles: [{name: decode}, {name: prefill}]",
			`line 3: plugins[0].parameters.deciderPluginName: no plugin is named "x"`},
		"a label of older files": {newHead + "plugins: [{type: by-label, parameters: {label: a b, validValues: [c]}}]",
			`line 3: plugins[0].parameters.label: got "a b", want a label key`},
		"no values of a label": {newHead + "plugins: [{type: by-label, parameters: {label: a}}]",
			"line 3: plugins[0].parameters.validValues: got none, want at least one"},
		"a prefix scorer by KV events": {newHead + "plugins: [{type: prefix-cache-scorer, parameters: " +
			"{mode: cache_tracking}}]", "line 3: plugins[0].parameters.mode: cache_tracking needs KV events over ZMQ"},
		"a mode of a prefix scorer": {newHead + "plugins: [{type: prefix-cache-scorer, parameters: {mode: x}}]",
			`line 3: plugins[0].parameters.mode: got "x", want approximate`},
		"a scorer's capacity": {newHead + "plugins: [{type: prefix-cache-scorer, parameters: " +
			"{lruCapacityPerServer: -1}}]",
			"line 3: plugins[0].parameters.lruCapacityPerServer: got -1, want 0 or more"},
		"a backend of tokens": {newHead + "plugins: [{type: token-producer, parameters: {backend: vllm}}]",
			"line 3: plugins[0].parameters.backend: the tokens are estimated, no service is asked; remove it"},
		"an unknown backend": {newHead + "plugins: [{type: token-producer, parameters: {backend: x}}]",
			`line 3: plugins[0].parameters.backend: got "x", want estimate`},
		"a bound of the oldest files": {head + "saturationDetector: {queueDepthThreshold: 0}",
			"line 3: saturationDetector.queueDepthThreshold: got 0, want 1 or more"},
		"an unknown parameter of files that are not the oldest": {"apiVersion: llm-d.ai/v1alpha1\n" +
			"kind: EndpointPickerConfig\nplugins: [{type: load-aware-scorer, parameters: {hashBlockSize: 5}}]",
			"line 3: plugins[0].parameters.hashBlockSize: unknown key, the only one is threshold"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Load([]byte(c.file), three); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Load(%q): got %v, want %s", c.file, err, c.want)
			}
		})
	}
}
