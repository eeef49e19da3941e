package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

func resolvedSchema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	text, err := Schema(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(text, s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

// schemaFiles returns files that Load takes, by name, as values of JSON.
func schemaFiles(t *testing.T) map[string]any {
	t.Helper()
	texts := map[string][]byte{"the default": []byte(builtIn), "every key": []byte(everyKey)}
	names, err := filepath.Glob("testdata/versions/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatal("no files")
	}
	for _, name := range names {
		if texts[name], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range maps.Clone(texts) {
		if texts[name+", shown"], err = Show(text, three); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	files := map[string]any{}
	for name, text := range texts {
		var value any
		if err := yaml.Unmarshal(text, &value); err != nil {
			t.Fatal(err)
		}
		files[name] = value
	}
	return files
}

// everyKey has what no other file of these tests has.
const everyKey = newHead + `
featureGates: [flowControl=false, haPopulateNonLeaderDatastore]
plugins:
- {type: file-discovery, parameters: {path: endpoints.yaml}}
- {type: metrics-data-source, parameters: {interval: 500ms, port: 8000}}
- type: label-selector-filter
  parameters: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}]}
- type: core-metrics-extractor
  parameters:
    engineLabelKey: engine
    defaultEngine: mine
    engineConfigs:
    - name: mine
      queuedRequestsSpec: waiting
      runningRequestsSpec: "requests{state=running, kind=\"a b\"}"
      kvUsageSpec: kv{}
      loraSpec: adapters
      cacheInfoSpec: cache
      cacheBlockSizeLabelName: tokens
      customMetrics: [{attributeKey: example.com/watts, metricSpec: "watts{gpu=1}"}]
    - {name: vllm, cacheBlockSizeSpec: size, cacheNumBlocksSpec: number}
- {type: openai-parser, name: parser}
- {type: round-robin-fairness-policy, name: turns}
- {type: edf-ordering-policy, name: edf}
- {type: concurrency-detector, parameters: {maxConcurrency: 8}}
- type: prometheus-extractor
  parameters:
    attributes:
    - {name: example.com/watts, metric: gpu_watts, labels: {gpu: "1"}, aggregation: max}
    - {name: example.com/errors, metric: errors_total, aggregation: ratio, per: requests_total}
- {type: document-data-source, parameters: {path: /state.json, interval: 5s}}
- {type: json-extractor, parameters: {attributes: [{name: example.com/slack, field: a.0.b}]}}
- type: endpoint-attribute-scorer
  parameters:
    attributeKey: example.com/watts
    producer: prometheus-extractor
    algorithm: {type: linear_higher_is_better, normalization: {fixedRange: {min: 0, max: 700}}}
- type: endpoint-attribute-filter
  parameters:
    attribute: example.com/errors
    onMissing: Fail
    fallbackOnEmpty: true
    algorithm: {threshold: {operator: LessThan, value: 0.5}}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: label-selector-filter}
  - {pluginRef: endpoint-attribute-filter}
  - {pluginRef: endpoint-attribute-scorer}
objectives: [{name: chat, priority: 10}, {name: batch}]
modelRewrites:
- name: canary
  rules:
  - matches: [{model: {type: Exact, value: chat}}, {model: {value: talk}}]
    targets: [{modelRewrite: chat-v1, weight: 70}, {modelRewrite: chat-v2, weight: 30}]
  - targets: [{modelRewrite: other}]
flowControl:
  maxBytes: 8Gi
  maxRequests: 100
  defaultRequestTTL: 5s
  noEndpointRequestTTL: 1m
  defaultPriorityBand: {maxRequests: 5k, maxBytes: "1G", orderingPolicyRef: fcfs-ordering-policy}
  priorityBands:
  - {priority: 10, maxBytes: 1e9, defaultRequestTTL: 60s, fairnessPolicyRef: turns, orderingPolicyRef: edf}
  - {priority: -1}
  usageLimitPolicyPluginRef: static-usage-limit-policy
  saturationDetector: {pluginRef: concurrency-detector}
  enableEviction: true
requestHandler: {parsers: [{pluginRef: parser}], propagatePriority: false}
dataLayer:
  injectDefaults: false
  sources:
  - pluginRef: metrics-data-source
    extractors: [{pluginRef: core-metrics-extractor}, {pluginRef: prometheus-extractor}]
    select: {app: vllm}
  - {pluginRef: document-data-source, extractors: [{pluginRef: json-extractor}]}
  discovery: {endpoints: {pluginRef: file-discovery}}
  crossReplica: {syncInterval: 200ms}
`

// A problem with one of these texts is one of keys and kinds, which the schema holds too.
var ofSchema = regexp.MustCompile("^(unknown key|unknown plugin type|unknown feature gate|missing|" +
	".* is not supported " +
	"yet$|.* was removed from the format|got .*, want (a mapping|a list|a string|true or false|a whole number|a " +
	"number|a duration .*|a quantity .*))")

// The schema takes every file that Load takes, and refuses every one with a problem of keys and kinds.
func TestSchemaIsTheLoaders(t *testing.T) {
	schema := resolvedSchema(t)
	refused := map[bool]int{}
	for name, file := range schemaFiles(t) {
		if err := schema.Validate(file); err != nil {
			t.Errorf("%s: the schema refuses it: %v", name, err)
			continue
		}
		if strings.HasSuffix(name, ", shown") {
			continue // as good as those that it was shown of
		}
		for what, changed := range mutants(file) {
			text, err := json.Marshal(changed)
			if err != nil {
				t.Fatal(err)
			}
			var value any
			if err := json.Unmarshal(text, &value); err != nil {
				t.Fatal(err)
			}
			_, loaded := Load(text, three)
			checked := schema.Validate(value)
			refused[checked != nil]++
			switch problem := schemaProblem(t, loaded); {
			case loaded == nil && checked != nil:
				t.Errorf("%s, %s: Load takes it, the schema refuses it: %v", name, what, checked)
			case problem != "" && checked == nil:
				t.Errorf("%s, %s: the schema takes it, Load says %s", name, what, problem)
			}
		}
	}
	if refused[true] < 1000 || refused[false] < 100 {
		t.Errorf("the schema refused %d changed files and took %d, want many of both", refused[true], refused[false])
	}
}

// schemaProblem returns the first problem of keys and kinds, "" = there is none.
func schemaProblem(t *testing.T, err error) string {
	if err == nil {
		return ""
	}
	var all *strictyaml.Error
	if !errors.As(err, &all) {
		t.Fatal(err)
	}
	for _, p := range all.Problems {
		if ofSchema.MatchString(p.Text) {
			return p.String()
		}
	}
	return ""
}

// mutants returns copies of a value in which one value is another, or one key is gone or new, by what was done.
func mutants(file any) map[string]any {
	out := map[string]any{}
	var visit func(path string, v any, set func(any) any)
	visit = func(path string, v any, set func(any) any) {
		for _, other := range []any{nil, true, 7, 7.5, "", "text", "5s", []any{}, []any{nil}, []any{"x"},
			map[string]any{},
			map[string]any{"x": "y"}} {
			out[fmt.Sprintf("%s = %#v", path, other)] = set(other)
		}
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				visit(path+"."+key, value, func(x any) any { return set(with(v, key, x)) })
				less := maps.Clone(v)
				delete(less, key)
				out[path+"."+key+" gone"] = set(less)
			}
			out[path+".nobody"] = set(with(v, "nobody", 1))
		case []any:
			for i, value := range v {
				visit(fmt.Sprintf("%s[%d]", path, i), value, func(x any) any {
					list := slices.Clone(v)
					list[i] = x
					return set(list)
				})
			}
		}
	}
	visit("", file, func(x any) any { return x })
	return out
}

func with(m map[string]any, key string, value any) map[string]any {
	m = maps.Clone(m)
	m[key] = value
	return m
}

// Editors show these texts: of every plugin and every parameter there is one.
func TestSchemaHasDocumentation(t *testing.T) {
	text, err := Schema(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range (*Catalogue)(nil).Describe() {
		for _, p := range family.Plugins {
			for _, want := range append(textsOf(p.Parameters), p.Text) {
				contains(t, string(text), p.Type, want)
			}
		}
	}
}

func contains(t *testing.T, schema, typ, want string) {
	t.Helper()
	quoted, err := json.Marshal(want)
	if err != nil || !strings.Contains(schema, strings.Trim(string(quoted), `"`)) {
		t.Errorf("%s: the schema lacks %q, %v", typ, want, err)
	}
}

func textsOf(list []Parameter) []string {
	var texts []string
	for _, p := range list {
		texts = append(texts, p.Text)
	}
	return texts
}
