package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/sessions"
)

// Files as users of the reference have them load without a warning, and so does what Show makes of them.
func TestFilesOfTheReferenceLoad(t *testing.T) {
	for name, file := range map[string]string{
		"sticky until saturated": `
plugins:
- type: prefix-cache-affinity-filter
  parameters: {affinityThreshold: 0.8, maxTTFTPenaltyMs: 5000, ttftSource: prefillThroughput}
- type: token-load-scorer
- type: token-producer
schedulingProfiles:
- name: default
  plugins: [{pluginRef: prefix-cache-affinity-filter}, {pluginRef: token-load-scorer, weight: 2}]
`,
		"E7 prefill near decode": `
plugins:
- type: endpoint-notification-source
- type: topology-extractor
- type: topology-affinity-filter
  parameters: {minAffinity: zone}
- type: topology-affinity-scorer
- type: prefill-filter
- type: decode-filter
- type: queue-scorer
- type: always-disagg-pd-decider
- type: p2p-source-producer
- type: disagg-profile-handler
  parameters: {deciders: {prefill: always-disagg-pd-decider}}
schedulingProfiles:
- name: decode
  plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer}]
- name: prefill
  plugins: [{pluginRef: prefill-filter}, {pluginRef: topology-affinity-filter}, {pluginRef: topology-affinity-scorer}]
dataLayer:
  sources:
  - pluginRef: endpoint-notification-source
    extractors: [{pluginRef: topology-extractor}]
`,
		"sessions of agents": `
plugins:
- type: session-affinity-filter
  parameters:
    strategy: session_id
    sessionIdConfig: {sources: [{header: x-session-id}, {attribute: agent-identity}]}
- type: queue-scorer
schedulingProfiles:
- name: default
  plugins: [{pluginRef: session-affinity-filter}, {pluginRef: queue-scorer}]
`,
		"sessions of a cookie": `
plugins:
- type: session-id-producer
  name: cookies
  parameters: {cookieName: sid}
- type: session-affinity-scorer
  parameters:
    strategy: session_id
    sessionIdConfig: {sources: [{attribute: SessionIDDataKey, producer: cookies}]}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: session-affinity-scorer}]
`,
		"kinds of servers": `
plugins:
- type: label-producer
  name: endpoint-labels
  parameters:
    labels:
    - {label: topology.kubernetes.io/region, attributeKey: region}
    - {label: nvidia.com/gpu.product, attributeKey: gpu.product}
- type: endpoint-attribute-weight-scorer
  name: region-preference
  parameters: {attributeKey: region, producer: endpoint-labels, weights: {region-1: 2, region-2: 1}}
- type: context-length-aware
  parameters: {enableFiltering: true}
- type: header-label-affinity-scorer
  parameters: {headerName: X-Region, labelKey: topology.kubernetes.io/region}
- type: utilization-filter
  parameters:
    conditions: [{metric: waiting-queue, maxValue: 10}, {metric: kv-cache-utilization, maxValue: 0.9}]
    fallbackOnEmpty: true
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: utilization-filter}
  - {pluginRef: context-length-aware, weight: 0}
  - {pluginRef: region-preference, weight: 3}
  - {pluginRef: header-label-affinity-scorer}
`,
		"conformance": `
plugins:
- type: header-based-testing-filter
- type: destination-endpoint-served-verifier
- type: random-picker
schedulingProfiles:
- name: default
  plugins: [{pluginRef: header-based-testing-filter}, {pluginRef: random-picker}]
`,
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Load([]byte(newHead+file), three)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range c.Warnings {
				if !strings.Contains(w.Text, "has no scorer") {
					t.Errorf("warned: %v", w)
				}
			}
			shown, err := Show([]byte(newHead+file), three)
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

// An agent-identity names flows, whether or not a plugin for sessions reads it.
func TestAgentIdentityNamesFlows(t *testing.T) {
	agents := []string{"x-claude-code-session-id", "x-session-affinity", "session-id", "session_id"}
	for name, c := range map[string]struct {
		plugins string
		want    []string
	}{
		"none": {"[]", nil},
		"one":  {"[{type: agent-identity}]", agents},
		"mine": {"[{type: agent-identity, parameters: {additionalSessionHeaders: [X-A]}}]",
			append([]string{"x-a"}, agents...)},
		"named": {"[{type: agent-identity, name: a}]", agents},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Load([]byte(newHead+"plugins: "+c.plugins), three)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.FlowHeaders, c.want) || len(got.FlowHeaders) > len(got.Plan.Layout().Headers()) {
				t.Errorf("got %v of %v, want %v", got.FlowHeaders, got.Plan.Layout().Headers(), c.want)
			}
		})
	}
}

// HTTP names have no case: each parameter that names a header takes capitals, and plugins read and set it in lower
// case.
func TestHeadersInCapitals(t *testing.T) {
	for name, c := range map[string]struct{ typ, parameters string }{
		"token":            {"session-affinity-filter", "encodedEndpointHeaderConfig: {header: X-Own}"},
		"token, scored":    {"session-affinity-scorer", "encodedEndpointHeaderConfig: {header: X-Own}"},
		"token, as before": {"session-affinity-filter", "headerName: X-Own"},
		"session": {"session-affinity-filter", "strategy: session_id, " +
			"sessionIdConfig: {sources: [{header: X-Own}]}"},
		"agent":    {"agent-identity", "additionalSessionHeaders: [X-Own]"},
		"label":    {"header-label-affinity-scorer", "headerName: X-Own, labelKey: a"},
		"profile":  {"header-profile-handler", "headerName: X-Own, defaultProfile: default"},
		"topology": {"topology-affinity-filter", "peerTopologyHeader: X-Own"},
	} {
		got, err := Load([]byte(newHead+fmt.Sprintf("plugins: [{type: %s, parameters: {%s}}]", c.typ, c.parameters)),
			three)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if all := got.Plan.Layout().Headers(); !slices.Contains(all, "x-own") {
			t.Errorf("%s: plugins read %v", name, all)
		}
	}
	a := sessions.Standard()
	a.EncodedEndpointHeaderConfig.Header = "X-Own"
	if a.Adapt(); a.EncodedEndpointHeaderConfig.Header != "x-own" {
		t.Errorf("responses have the header %s", a.EncodedEndpointHeaderConfig.Header)
	}
}

// Parsers need no entry in plugins. Those of the reference's default hold if a file names none.
func TestParsers(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"E16 default": {"{}", "[openai-parser anthropic-parser vllmhttp-parser]"},
		"one":         {"{parsers: [{pluginRef: sglanghttp-parser}]}", "[sglanghttp-parser]"},
		"E15 several": {
			"{parsers: [{pluginRef: anthropic-parser}, {pluginRef: openai-parser}, {pluginRef: passthrough-parser}]}",
			"[anthropic-parser openai-parser]"},
		"E17 none": {"{parsers: [{pluginRef: passthrough-parser}]}", "[]"},
		"E14 by name": {"{parsers: [{pluginRef: p}]}\nplugins: [{type: vllmhttp-parser, name: p}]",
			"[vllmhttp-parser]"},
		"by type": {"{parsers: [{pluginRef: vllmhttp-parser}]}\nplugins: [{type: vllmhttp-parser, name: p}]",
			"[vllmhttp-parser]"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Load([]byte(newHead+"requestHandler: "+c.file), three)
			if err != nil || fmt.Sprint(got.Parsers) != c.want {
				t.Fatalf("%v, want %s; %v", got, c.want, err)
			}
			shown, err := Show([]byte(newHead+"requestHandler: "+c.file), three)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := Load(shown, three); err != nil || fmt.Sprint(again.Parsers) != c.want {
				t.Errorf("what is shown has parsers %v, want %s; %v", again, c.want, err)
			}
		})
	}
}

// A models-responder has the model list read, from the source that the file names, or else from one by default.
func TestModelsResponder(t *testing.T) {
	for name, c := range map[string]struct {
		file, source string
		answers      bool
		every        time.Duration
	}{
		"none": {"plugins: []", "", false, 0},
		"no answers": {"plugins: [{type: models-data-source}]\ndataLayer: {sources: [{pluginRef: models-data-source}]}",
			"models-data-source", false, 0},
		"by default": {"plugins: [{type: models-responder}]", "models-data-source", true, 2 * time.Second},
		"of the file": {"plugins: [{type: models-responder}, {type: models-data-source, name: list}]\n" +
			"dataLayer: {sources: [{pluginRef: list}]}", "list", true, 2 * time.Second},
		"unnamed of the file": {"plugins: [{type: models-responder}, {type: models-data-source, name: list, " +
			"parameters: {path: /models, interval: 5s}}]", "list", true, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Load([]byte(newHead+c.file), three)
			if err != nil || got.AnswersModels != c.answers || got.ModelList != c.source ||
				got.Models.Enabled != (c.source != "") || len(got.Warnings) > 1 || got.Models.Interval != c.every {
				t.Fatalf("%+v, %v; want source %q each %v", got, err, c.source, c.every)
			}
			shown, err := Show([]byte(newHead+c.file), three)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Load(shown, three)
			if err != nil || again.AnswersModels != c.answers || again.Models.Path != got.Models.Path {
				t.Errorf("what is shown has %+v; %v", again, err)
			}
		})
	}
}

// What a parameter says of another plugin must hold.
func TestReferencesToOtherPluginsAreChecked(t *testing.T) {
	sources := func(source, more string) string {
		return "plugins: [{type: session-affinity-filter, parameters: {strategy: session_id, sessionIdConfig: " +
			"{sources: [" + source + "]}}}" + more + "]"
	}
	weights := "plugins: [{type: endpoint-attribute-weight-scorer, parameters: {attributeKey: a, weights: {x: 1}"
	const at = "plugins[0].parameters."
	for name, c := range map[string]struct{ file, want string }{
		"no producer": {sources("{attribute: mine}", ""),
			at + "sessionIdConfig.sources[0].producer: missing; name the plugin that emits mine"},
		"unknown producer": {sources("{attribute: mine, producer: nowhere}", ""),
			at + "sessionIdConfig.sources[0].producer: no plugin is named \"nowhere\""},
		"another type": {sources("{attribute: mine, producer: queue-scorer}", ", {type: queue-scorer}"),
			at + "sessionIdConfig.sources[0].attribute: the producer has no attribute mine"},
		"no such attribute": {sources("{attribute: mine, producer: agent-identity}", ""),
			at + "sessionIdConfig.sources[0].attribute: the producer has no attribute mine"},
		"not without parameters": {sources("{attribute: SessionIDDataKey}", ""),
			at + "sessionIdConfig.sources[0].producer: no plugin is named \"session-id-producer\""},
		"two of the type": {sources("{attribute: agent-identity}",
			", {type: agent-identity, name: a}, {type: agent-identity, name: b}"),
			at + "sessionIdConfig.sources[0].producer: 2 plugins are of type agent-identity: name one of them"},
		"both": {sources("{header: x, attribute: agent-identity}", ""),
			at + "sessionIdConfig.sources[0].attribute: stands beside header, want one of them"},
		"none": {sources("{}", ""),
			at + "sessionIdConfig.sources[0].header: missing, and so is attribute; want one of them"},
		"no labels": {weights + "}}]", at + "producer: no plugin is named \"label-producer\""},
		"other labels": {weights + ", producer: l}}, {type: label-producer, name: l, parameters: {labels: [{" +
			"label: b, attributeKey: b}]}}]", at + "attributeKey: l has no attribute \"a\""},
		"a tokenizer": {"plugins: [{type: token-producer, parameters: {vllm: {url: http://x}}}]",
			at + "vllm: the tokens are estimated, no service is asked; remove it"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Load([]byte(newHead+c.file), three); !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
