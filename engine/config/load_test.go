package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/pickers"
	"github.com/signalbox-epp/signalbox/engine/rewrites"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// head begins a file of v1alpha1, newHead one of v1.
const (
	head    = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
	newHead = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\n"
)

var three = Settings{Destinations: 3}

// shape returns a configuration in few words.
func shape(c *Config) string {
	var b strings.Builder
	for _, p := range c.Plan.Profiles() {
		fmt.Fprintf(&b, "%s:", p.Name)
		for _, f := range p.Filters {
			fmt.Fprintf(&b, " %s", f.Name)
		}
		for _, s := range p.Scorers {
			fmt.Fprintf(&b, " %s*%v", s.Name, s.Weight)
		}
		fmt.Fprintf(&b, " > %s;", p.Picker.Name)
	}
	return b.String() + " " + c.Plan.HandlerLabels().Name
}

func TestLoad(t *testing.T) {
	const standard = "default: expected-completion*1 > max-score-picker; single-profile-handler"
	for name, c := range map[string]struct{ data, want string }{
		"the default written out": {builtIn, standard},
		"E3 E9 no plugins":        {head, "default: > max-score-picker; single-profile-handler"},
		"profile in order of file": {head + "plugins: [{type: queue-scorer}, {type: load-aware-scorer, name: b}, " +
			"{type: decode-filter}]",
			"default: decode-filter queue-scorer*1 b*1 > max-score-picker; single-profile-handler"},
		"JSON": {"{\"apiVersion\": \"llm-d.ai/v1alpha1\",\n" +
			"\t\"kind\": \"EndpointPickerConfig\", \"plugins\": [{\"type\": \"queue-scorer\"}]}",
			"default: queue-scorer*1 > max-score-picker; single-profile-handler"},
		"E8 weight defaults to 1": {head + "plugins: [{type: queue-scorer}]\nschedulingProfiles: [{name: p, " +
			"plugins: [{pluginRef: queue-scorer}]}]", "p: queue-scorer*1 > max-score-picker; single-profile-handler"},
		"a shadow beside the only profile": {head +
			"plugins: [{type: queue-scorer}, {type: single-profile-handler}]\n" +
			"schedulingProfiles: [{name: s, shadow: true, plugins: [{pluginRef: queue-scorer}]}, {name: p}]",
			"p: > max-score-picker;s: queue-scorer*1 > max-score-picker; single-profile-handler"},
		"first picker is shared": {head + "plugins: [{type: random-picker, name: r}, {type: max-score-picker}]\n" +
			"schedulingProfiles: [{name: p}]", "p: > r; single-profile-handler"},
		"E10 picker before scorer": {head + "plugins: [{type: random-picker}, {type: queue-scorer, name: q}]\n" +
			"schedulingProfiles: [{name: p, plugins: [{pluginRef: random-picker}, {pluginRef: q, weight: 0}]}]",
			"p: q*0 > random-picker; single-profile-handler"},
		"handler by name": {head + "plugins: [{type: single-profile-handler, name: h}]",
			"default: > max-score-picker; h"},
		"E2 older group": {strings.Replace(head, "llm-d.ai", "inference.networking.x-k8s.io", 1),
			"default: > max-score-picker; single-profile-handler"},
		"older name of a type": {newHead + "plugins: [{type: by-label-selector}]\n" +
			"schedulingProfiles: [{name: p, plugins: [{pluginRef: by-label-selector}]}]",
			"p: by-label-selector > max-score-picker; single-profile-handler"},
		"gates with their defaults": {head + "featureGates: [flowControl=false, haPopulateNonLeaderDatastore]",
			"default: > max-score-picker; single-profile-handler"},
		"aliases and merge keys": {head + "plugins: [&a {type: queue-scorer}, {<<: *a, name: b}]",
			"default: queue-scorer*1 b*1 > max-score-picker; single-profile-handler"},
		"flow control as it is": {head + "flowControl: {maxBytes: \"0\", defaultRequestTTL: 60s, priorityBands: " +
			"[{priority: 0, maxBytes: 1G, maxRequests: \"5000\", orderingPolicyRef: fcfs-ordering-policy}], " +
			"saturationDetector: {pluginRef: utilization-detector}}",
			"default: > max-score-picker; single-profile-handler"},
		"an observer that a scorer needs": {newHead + "plugins: [{type: latency-observation-scorer-hub}]",
			"default: latency-observation-scorer-hub*1 > max-score-picker; single-profile-handler"},
		"an observer among the sources": {newHead + "plugins: [{type: latency-observer-producer-hub, name: o}, " +
			"{type: latency-observation-scorer-hub, parameters: {ttftPercentilesProducerName: o}}]\n" +
			"dataLayer: {sources: [{pluginRef: o}]}",
			"default: latency-observation-scorer-hub*1 > max-score-picker; single-profile-handler"},
		"E5 utilization detector by id": {head + "plugins: [{type: utilization-detector, name: u}]\n" +
			"saturationDetector: {pluginRef: u}", "default: u > max-score-picker; single-profile-handler"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Load([]byte(c.data), three)
			if err != nil {
				t.Fatalf("Load(%q): %v", c.data, err)
			}
			if shape(got) != c.want {
				t.Errorf("Load(%q) = %s, want %s", c.data, shape(got), c.want)
			}
		})
	}
}

func TestLoadValues(t *testing.T) {
	data := head + `plugins:
- type: file-discovery
  parameters: {path: endpoints.yaml, watchFile: true}
- type: metrics-data-source
  name: page
  parameters: {scheme: https, path: /stats, port: 9000, interval: 250ms}
- type: core-metrics-extractor
  name: engines
  parameters: {engineLabelKey: engine}
- type: models-data-source
  parameters: {interval: 5s, insecureSkipVerify: false}
- type: models-data-extractor
- type: passthrough-parser
- type: queue-scorer
- type: lora-affinity-scorer
- type: max-score-picker
  parameters: {maxNumOfEndpoints: 1}
dataLayer:
  discovery: {pluginRef: file-discovery}
  sources:
  - {pluginRef: page, extractors: [{pluginRef: engines}]}
  - {pluginRef: models-data-source, extractors: [{pluginRef: models-data-extractor}]}
requestHandler: {parsers: [{pluginRef: passthrough-parser}]}
`
	got, err := Load([]byte(data), three)
	if err != nil {
		t.Fatal(err)
	}
	if n := got.Plan.Profiles()[0].Picker.Picker.(*pickers.MaxScore).MaxNumOfEndpoints; n != 1 {
		t.Errorf("destinations: got %d, want the file's 1", n)
	}
	readsThese(t, got.Plan, []attributes.Attribute{attributes.QueuedRequests, attributes.MaxLoRAs},
		[]attributes.Attribute{attributes.ActiveLoRAs, attributes.WaitingLoRAs, attributes.ResidentLoRAs,
			attributes.HostLoRAs, attributes.PinnedLoRAs, attributes.BaseModels})
	got.Plan = nil
	want := &Config{
		Discovery: Discovery{Path: "endpoints.yaml", Watch: true,
			At: strictyaml.Problem{Line: 5, Path: "plugins[0].parameters.path"}},
		Metrics:         Source{true, "https", "/stats", 9000, 250 * time.Millisecond, true, "", "", "", nil},
		Models:          Source{true, "http", "/v1/models", 0, 5 * time.Second, false, "", "", "", nil},
		ModelList:       "models-data-source",
		EngineLabelKeys: []string{"engine"},
		Trust:           Trust{By: TrustHeader, Headers: trustHeaders},
		Warnings: []strictyaml.Problem{{Line: 1, Path: "apiVersion",
			Text: "llm-d.ai/v1alpha1 is deprecated, write llm-d.ai/v1; " +
				"signalbox config convert prints the file so"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Load: want -, got +\n%s", d)
	}
}

func TestEnginesOfTheFile(t *testing.T) {
	got, err := Load([]byte(everyKey), three)
	if err != nil {
		t.Fatal(err)
	}
	want := []Engine{
		{
			Name: "mine", Queued: Series{Metric: "waiting"}, KVUsage: Series{Metric: "kv"},
			Running: Series{"requests", map[string]string{"state": "running", "kind": "a b"}},
			LoRA:    Series{Metric: "adapters"}, CacheInfo: Series{Metric: "cache"}, BlockTokensLabel: "tokens",
			BlocksLabel: "num_gpu_blocks",
		},
		{
			Name: "vllm", BlockTokens: Series{Metric: "size"}, Blocks: Series{Metric: "number"},
			BlockTokensLabel: "block_size", BlocksLabel: "num_gpu_blocks",
		},
	}
	if d := cmp.Diff(want, got.Engines); d != "" || got.DefaultEngine != "mine" {
		t.Errorf("default %q, engines: want -, got +\n%s", got.DefaultEngine, d)
	}
	for _, e := range got.Extractions {
		if e.Producer == "core-metrics-extractor" {
			t.Errorf("takes %+v, which no plugin reads", e)
		}
	}
}

// The page of the built-in attributes is that which names their extractor, or else the first.
func TestMetricsPages(t *testing.T) {
	const scheduling = "schedulingProfiles: [{name: d, plugins: [{pluginRef: endpoint-attribute-scorer}]}]\n"
	for name, c := range map[string]struct {
		first, second  string
		further, takes string // names of sources
	}{
		"the first":               {"", "{pluginRef: p}", "b", "b"},
		"the first, with another": {"{pluginRef: p}", "{pluginRef: p}", "", ""},
		"that which names it":     {"{pluginRef: p}", "{pluginRef: core-metrics-extractor}", "a", "a"},
		"which names others, too": {"{pluginRef: core-metrics-extractor}", "{pluginRef: p}", "b", "b"},
		"the last, with another":  {"{pluginRef: q}", "{pluginRef: core-metrics-extractor}, {pluginRef: p}", "a", "*"},
	} {
		t.Run(name, func(t *testing.T) {
			producer := "p"
			text := strings.Replace(twoPages(c.first, c.second, ", select: {gpu: a100}")+scheduling,
				"attributeKey: example.com/watts", "attributeKey: example.com/watts, producer: "+producer, 1)
			got, err := Load([]byte(text), three)
			if c.further == "" {
				if err == nil {
					t.Error("an extractor on two pages is taken")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			selected := got.Metrics.Select
			if c.further == "b" {
				selected = got.Further[0].Select
			}
			if len(got.Further) != 1 || got.Further[0].Name != c.further || selected["gpu"] != "a100" {
				t.Errorf("metrics %+v, further %+v", got.Metrics, got.Further)
			}
			want := strings.Trim(c.takes, "*")
			if len(got.Extractions) != 1 || got.Extractions[0].Source != want || !got.Plan.Layout().Samples(want) {
				t.Errorf("takes %+v, want it from %q", got.Extractions, want)
			}
		})
	}
}

// readsThese expects the attributes of a plan, numbers and names, in the order of its plugins.
func readsThese(t *testing.T, plan *schedule.Plan, numbers, names []attributes.Attribute) {
	t.Helper()
	if got := plan.Layout().Of(attributes.Number); !slices.Equal(got, numbers) {
		t.Errorf("reads %v, want %v", got, numbers)
	}
	if got := plan.Layout().Of(attributes.Names); !slices.Equal(got, names) {
		t.Errorf("reads %v, want %v", got, names)
	}
}

func TestLoadDefaults(t *testing.T) {
	got, err := Default(Settings{Destinations: 1})
	if err != nil {
		t.Fatal(err)
	}
	if n := got.Plan.Profiles()[0].Picker.Picker.(*pickers.MaxScore).MaxNumOfEndpoints; n != 1 {
		t.Errorf("destinations: got %d, want 1 of the settings", n)
	}
	readsThese(t, got.Plan, []attributes.Attribute{
		attributes.PromptWait, attributes.PromptRate, attributes.RequestRate, attributes.InflightRequests,
		attributes.PrefixBlocks,
	}, nil)
	if got.Queueing != nil || got.Plan.Gated() {
		t.Errorf("requests wait in the picker: %+v", got.Queueing)
	}
	if fmt.Sprint(got.Parsers) != "[openai-parser anthropic-parser vllmhttp-parser]" || got.Models.Enabled ||
		got.Metrics.Path != "/metrics" || len(got.EngineLabelKeys) != 2 ||
		len(got.Warnings) > 0 {
		t.Errorf("got %+v, want OpenAI parsed, metrics only, two engine labels, no warning", got)
	}
}

// Without a file, and with the feature gate, requests wait where there is no room, flow by flow in turn, as long as the
// command line says.
func TestDefaultHasRequestsWait(t *testing.T) {
	for wait, want := range map[time.Duration][2]time.Duration{ // for a turn, and for an endpoint
		0:           {time.Minute, 10 * time.Second},
		time.Hour:   {time.Hour, 10 * time.Second},
		time.Second: {time.Second, time.Second},
	} {
		got, err := Default(Settings{Destinations: 1, Wait: wait, Gates: []string{"flowControl=false", "flowControl"}})
		if err != nil {
			t.Fatal(err)
		}
		q := got.Queueing
		if q == nil || !got.Plan.Gated() || got.Plan.Detector().Type != "learning-detector" || len(q.Bands) > 0 {
			t.Fatalf("got %+v, and the detector %+v", q, got.Plan.Detector())
		}
		if _, ok := q.Default.Fairness.(*fairness.RoundRobin); !ok {
			t.Errorf("flows are served by %T", q.Default.Fairness)
		}
		if turn, without := q.Patience(0, 0); turn != want[0] || without != want[1] {
			t.Errorf("told %v: requests wait for %v and %v, want %v", wait, turn, without, want)
		}
	}
	if file, err := Load([]byte(head), three); err != nil || file.Plan.Gated() || file.Queueing != nil {
		t.Errorf("a file that says nothing has requests wait: %+v, %v", file, err)
	}
}

func TestLoadWarns(t *testing.T) {
	for name, c := range map[string]struct{ data, want string }{
		"an extractor too many": {head + "plugins: [{type: core-metrics-extractor}, {type: core-metrics-extractor, " +
			"name: e}, {type: metrics-data-source}]\ndataLayer: {sources: [{pluginRef: metrics-data-source, " +
			"extractors: [{pluginRef: e}]}]}", "line 3: plugins[0]: nothing names core-metrics-extractor"},
		"older version": {head, "line 1: apiVersion: llm-d.ai/v1alpha1 is deprecated, write llm-d.ai/v1"},
		"older name": {newHead + "plugins: [{type: by-label-selector, parameters: {matchLabels: {a: b}}}]",
			"line 3: plugins[0].type: by-label-selector is deprecated, write label-selector-filter"},
		"older group": {strings.Replace(head, "llm-d.ai", "inference.networking.x-k8s.io", 1),
			"line 1: apiVersion: inference.networking.x-k8s.io/v1alpha1 is deprecated"},
		"block size": {head + "plugins:\n- type: approx-prefix-cache-producer\n  parameters:\n" +
			"    blockSizeTokens: 32\n",
			"line 6: plugins[0].parameters.blockSizeTokens: got 32, which counts as 64, the least"},
		"sweeps": {newHead + "plugins:\n- type: session-affinity-filter\n  parameters:\n    sessionIdConfig:\n" +
			"      evictionSweepSeconds: 5\n",
			"line 7: plugins[0].parameters.sessionIdConfig.evictionSweepSeconds: has no effect"},
		"no such profile": {newHead + "plugins: [{type: session-affinity-scorer, parameters: {profileName: prefill}}]",
			"line 3: plugins[0].parameters.profileName: there is no profile prefill, so session-affinity-scorer"},
		"unused": {head + "plugins:\n- type: queue-scorer\nschedulingProfiles: [{name: p}]",
			"line 4: plugins[0]: nothing names queue-scorer"},
		"detector at the top": {head + "saturationDetector: {pluginRef: utilization-detector}",
			"line 3: saturationDetector: deprecated, write flowControl.saturationDetector"},
		"flow control": {head + "flowControl: {}",
			"line 3: flowControl: the feature gate flowControl is off, so this has no effect"},
		"flow control with a detector": {newHead + "flowControl: {maxBytes: 1, saturationDetector: {pluginRef: " +
			"utilization-detector}}", "line 3: flowControl: the feature gate flowControl is off, so only its " +
			"saturationDetector has an effect"},
		"nothing to detect by": {newHead + "dataLayer: {injectDefaults: false}\n" +
			"objectives: [{name: batch, priority: -1}]",
			"line 4: objectives: no metrics page is read, so requests of negative priority are not refused"},
		"weight of a filter": {head + "plugins: [{type: decode-filter}]\n" +
			"schedulingProfiles: [{name: p, plugins: [{pluginRef: decode-filter, weight: 2}]}]",
			"line 4: schedulingProfiles[0].plugins[0].weight: decode-filter is no scorer"},
		"a gate that cannot be off": {newHead + "featureGates: [flowControl=False, " +
			"haPopulateNonLeaderDatastore=false]", "line 3: featureGates[1]: haPopulateNonLeaderDatastore=false has " +
			"no effect: a standby knows the endpoints too"},
		"an unknown gate that is off": {newHead + "featureGates: [flowControll=0]",
			`line 3: featureGates[0]: unknown feature gate "flowControll", which is off; known are flowControl and`},
		"a gate of older files": {newHead + "featureGates: [prepareDataPlugins]",
			"line 3: featureGates[0]: prepareDataPlugins has no effect, leave it out"},
		"no restarts": {head + "plugins: [{type: prefix-cache-scorer}]\ndataLayer:\n  injectDefaults: false",
			"line 5: dataLayer.injectDefaults: no metrics page is read, so a server that restarts"},
		"rule for a model twice": {newHead + "modelRewrites:\n- {name: a, rules: [{matches: [{model: {value: m}}], " +
			"targets: [{modelRewrite: b}]}]}\n- {name: b, rules: [{matches: [{model: {value: m}}], " +
			"targets: [{modelRewrite: c}]}]}",
			"line 5: modelRewrites[1].rules[0].matches[0].model.value: a rule for m stands before, " +
				"modelRewrites[0].rules[0].matches[0].model.value, so this has no effect"},
		"rule for all twice": {newHead + "modelRewrites: [{name: a, rules: [{targets: [{modelRewrite: b}]}, " +
			"{targets: [{modelRewrite: c}]}]}]",
			"line 3: modelRewrites[0].rules[1]: a rule for all models stands before, modelRewrites[0].rules[0], so"},
		"rewrites without a parser": {newHead + "plugins: [{type: passthrough-parser}]\n" +
			"requestHandler: {parsers: [{pluginRef: passthrough-parser}]}\n" +
			"modelRewrites: [{name: a, rules: [{targets: [{modelRewrite: b}]}]}]",
			"line 5: modelRewrites: no parser reads the models of requests, so this has no effect"},
		"D62 some weights": {newHead + "modelRewrites: [{name: a, rules: [{targets: [{modelRewrite: b, weight: 5}, " +
			"{modelRewrite: c}]}]}]",
			"line 3: modelRewrites[0].rules[0].targets[1]: it has no weight and another one has, so it gets no"},
		"E6 older parser": {head + "plugins: [{type: openai-parser}]\nparser: {pluginRef: openai-parser}",
			"line 4: parser: deprecated"},
		"parser after all": {head + "plugins: [{type: openai-parser}, {type: passthrough-parser}]\n" +
			"requestHandler: {parsers: [{pluginRef: passthrough-parser}, {pluginRef: openai-parser}]}",
			"line 4: requestHandler.parsers[1].pluginRef: openai-parser stands after"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Load([]byte(c.data), three)
			if err != nil {
				t.Fatalf("Load(%q): %v", c.data, err)
			}
			if !slices.ContainsFunc(got.Warnings, func(p strictyaml.Problem) bool {
				return strings.HasPrefix(p.String(),
					c.want)
			}) {
				t.Errorf("Load(%q) warns %v, want %q", c.data, got.Warnings, c.want)
			}
		})
	}
}

// TestLoadAllAtOnce wants every problem of a file, in the order of its lines.
func TestLoadAllAtOnce(t *testing.T) {
	data := `apiVersion: llm-d.ai/v2
kind: EndpointPickerConfig
plugin: []
plugins:
- type: queue-scorer
- type: load-aware-scorer
  parameters:
    threshold: zero
    treshold: 5
- type: que-scorer
- type: latency-scorer
- name: queue-scorer
  type: random-picker
- name: x
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - pluginRef: queue-scorerr
  - pluginRef: load-aware-scorer
    weight: -1
  - weight: heavy
`
	want := `line 1: apiVersion: got "llm-d.ai/v2", want llm-d.ai/v1
line 3: plugin: unknown key, did you mean plugins?
line 8: plugins[1].parameters.threshold: got "zero", want a whole number
line 9: plugins[1].parameters.treshold: unknown key, did you mean threshold?
line 10: plugins[2].type: unknown plugin type "que-scorer", did you mean queue-scorer?
line 11: plugins[3].type: latency-scorer is not supported: ` + asksPredictor + `
line 12: plugins[4].name: queue-scorer stands twice, first as plugins[0]; give one of them another name
line 14: plugins[5].type: missing
line 19: schedulingProfiles[0].plugins[1].pluginRef: no plugin is named "queue-scorerr", did you mean queue-scorer?
line 21: schedulingProfiles[0].plugins[2].weight: got -1, want 0 or more
line 22: schedulingProfiles[0].plugins[3].weight: got "heavy", want a number
line 22: schedulingProfiles[0].plugins[3].pluginRef: missing`
	_, err := Load([]byte(data), three)
	if got := fmt.Sprint(err); got != want {
		t.Errorf("want -, got +\n%s", cmp.Diff(want, got))
	}
	var list *strictyaml.Error
	if !errors.As(err, &list) || len(list.Problems) != 12 {
		t.Errorf("got %T, want *Error with 12 problems", err)
	}
}

// TestParametersHaveDefaults fails when a parameter that only its default may have does not accept it.
func TestParametersHaveDefaults(t *testing.T) {
	for _, typ := range knownTypes() {
		p := construct(typ)
		v, ok := p.(interface{ Validate() error })
		if !ok || len(required[reflect.TypeOf(p).Elem()])+len(oneOf[reflect.TypeOf(p).Elem()]) > 0 {
			continue
		}
		if err := v.Validate(); err != nil {
			t.Errorf("%s: its own defaults are refused: %v", typ, err)
		}
		if reflect.ValueOf(p).Kind() != reflect.Pointer {
			t.Errorf("%s: the constructor gives no pointer, so that parameters cannot be decoded", typ)
		}
	}
}

// Both versions have objectives: absent is priority 0, and the whole range of 32 bits is taken.
func TestLoadObjectives(t *testing.T) {
	const list = `objectives:
- {name: chat, priority: 2147483647}
- {name: batch, priority: -2147483648}
- name: plain
- {name: null as absent, priority: null}
`
	want := map[string]int{"chat": math.MaxInt32, "batch": math.MinInt32, "plain": 0, "null as absent": 0}
	for _, version := range []string{head, newHead} {
		c, err := Load([]byte(version+list), three)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.Priorities); diff != "" {
			t.Errorf("after %q: want -, got +:\n%s", version, diff)
		}
		if c, err = Load([]byte(version+"objectives: []"), three); err != nil || len(c.Priorities) > 0 {
			t.Errorf("after %q, an empty list: %v, %v; want none", version, c.Priorities, err)
		}
	}
}

// Objectives and rewrites that stand elsewhere come behind those of the file.
func TestLoadAdditions(t *testing.T) {
	settings := three
	settings.Additions = Additions{
		Objectives: map[string]int{"chat": 1, "batch": -1},
		Rewrites: []rewrites.Rewrite{
			{Name: "added", Rules: []rewrites.Rule{{Targets: []rewrites.Target{{Model: "a", Weight: 1}}}}},
		},
	}
	const file = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
objectives: [{name: chat, priority: 10}]
modelRewrites: [{name: own, rules: [{targets: [{modelRewrite: b}]}]}]
`
	got, err := Load([]byte(file), settings)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"chat": 10, "batch": -1}, got.Priorities); diff != "" {
		t.Errorf("priorities, -want +got: %s", diff)
	}
	if len(got.Rewrites) != 2 || got.Rewrites[0].Name != "own" || got.Rewrites[1].Name != "added" {
		t.Errorf("rewrites: %v, want that of the file first", got.Rewrites)
	}
	if diff := cmp.Diff(map[string]int{"chat": 1, "batch": -1}, settings.Additions.Objectives); diff != "" {
		t.Errorf("the additions themselves changed: %s", diff)
	}
}
