package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// documented is a parameter as deploy/docs/plugins.md has it.
type documented struct{ plugin, name, standard string }

// documentedParameters reads the parameters of the page of plugins.
func documentedParameters(t *testing.T) (list []documented) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/docs/plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, plugin := range strings.Split(string(text), "\n### `")[1:] {
		typ, rest, _ := strings.Cut(plugin, "`")
		list = append(list, documentedOf(t, typ, rest)...)
	}
	return list
}

var parameterItem = regexp.MustCompile("^- `([^`]+)` \\(([^`)]*)(?:`([^`]*)`)?")

// documentedOf reads the parameters of one plugin.
func documentedOf(t *testing.T, typ, text string) (list []documented) {
	t.Helper()
	for line := range strings.Lines(text) {
		found := parameterItem.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		if strings.Contains(found[2], "default ") != (found[3] != "") {
			t.Errorf("%s: %q tells of a default and has none", typ, line)
		}
		list = append(list, documented{typ, found[1], found[3]})
	}
	return list
}

// fieldAt returns the value of a plugin's parameter by its path. What a list or an absent object would have is zero.
func fieldAt(v reflect.Value, path string) (reflect.Value, bool) {
	for name := range strings.SplitSeq(path, ".") {
		name, list := strings.CutSuffix(name, "[]")
		found := false
		for _, f := range strictyaml.FieldsOf(v.Type()) {
			if f.Name == name {
				v, found = v.FieldByIndex(f.Index), true
				break
			}
		}
		if !found {
			return v, false
		}
		object := v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct
		switch {
		case list:
			v = reflect.New(v.Type().Elem()).Elem()
		case object && strings.Contains(path, name+"."):
			v = reflect.New(v.Type().Elem()).Elem()
		}
	}
	return v, true
}

// The page of plugins has the defaults of the constructors.
func TestPluginsPageHasTheDefaultsOfTheCode(t *testing.T) {
	list := documentedParameters(t)
	if len(list) < 150 {
		t.Fatalf("%d parameters are documented, want all of them", len(list))
	}
	for _, d := range list {
		v, ok := fieldAt(reflect.ValueOf(construct(d.plugin)).Elem(), d.name)
		if !ok {
			t.Errorf("%s has no parameter %s", d.plugin, d.name)
			continue
		}
		if got := strings.Replace(strings.Replace(show(v), "none", "", 1), `""`, "", 1); got != d.standard {
			t.Errorf("%s.%s defaults to %q, documented is %q", d.plugin, d.name, got, d.standard)
		}
	}
}

// sectionDefaults has each default that the documentation of the sections tells of, with what the file below has then.
var sectionDefaults = map[string]struct{ says, shown string }{
	"entrySection.weight":            {"absent = 1.", "  - pluginRef: queue-scorer\n    weight: 1\n"},
	"targetSection.weight":           {"absent = 1.", "    - weight: 1\n      modelRewrite: a\n"},
	"flowControlSection.maxBytes":    {"0 = no bound.", "flowControl:\n  maxBytes: 0\n  maxRequests: 0\n"},
	"flowControlSection.maxRequests": {"0 = no bound.", "flowControl:\n  maxBytes: 0\n  maxRequests: 0\n"},
	"bandSection.maxBytes":           {"0 = 1G.", "  - priority: 0\n    maxBytes: 1000000000\n"},
	"bandSection.maxRequests":        {"0 = 5000.", "    maxRequests: 5000\n    defaultRequestTTL: 7s\n"},
	"bandSection.queueRef": {
		"absent = the first of list-queue and max-min-heap that is.",
		"    maxRequests: 5000\n    defaultRequestTTL: 7s\n",
	},
	"bandSection.minShare": {"0 = none.", "    minShare: 0\n"},
	"bandSection.defaultRequestTTL": {
		"absent = the section's.", "    maxRequests: 5000\n    defaultRequestTTL: 7s\n",
	},
	"dataLayerSection.injectDefaults":       {"absent = true.", "  - pluginRef: metrics-data-source\n"},
	"dataLayerV1Alpha1.injectDefaults":      {"absent = true.", "  - pluginRef: metrics-data-source\n"},
	"flowControlSection.saturationDetector": {"absent = learning-detector.", "    pluginRef: learning-detector\n"},
	"flowControlSection.defaultRequestTTL":  {"0s = as long as its client does.", "  defaultRequestTTL: 7s\n"},
	"flowControlSection.noEndpointRequestTTL": {
		"absent = defaultRequestTTL.", "  noEndpointRequestTTL: 7s\n",
	},
	"flowControlSection.defaultNegativePriorityBand": {
		"absent = defaultPriorityBand.",
		"  defaultNegativePriorityBand:\n    maxBytes: 1000000000\n    maxRequests: 9\n",
	},
	"requestSection.parsers": {
		"none = openai-parser, anthropic-parser, vllmhttp-parser, passthrough-parser.",
		"  - pluginRef: openai-parser\n  - pluginRef: anthropic-parser\n  - pluginRef: vllmhttp-parser\n" +
			"  - pluginRef: passthrough-parser\n",
	},
	"pluginSection.name":  {"empty = its type.", "- name: queue-scorer\n  type: queue-scorer\n"},
	"ruleSection.matches": {"none = all.", "  - matches: []\n"},
	"sourceSection.extractors": {
		"none = the extractor of the source's type.", "    - pluginRef: core-metrics-extractor\n",
	},
}

// What the documentation of the sections says of defaults is what a file without these keys is read as.
func TestSectionsHaveTheDefaultsThatTheyTellOf(t *testing.T) {
	shown, err := Show([]byte(newHead+`
featureGates: [flowControl]
plugins: [{type: queue-scorer}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
flowControl: {defaultRequestTTL: 7s, defaultPriorityBand: {maxRequests: 9}, priorityBands: [{priority: 0}]}
modelRewrites: [{name: r, rules: [{targets: [{modelRewrite: a}]}]}]
`), three)
	if err != nil {
		t.Fatal(err)
	}
	for key, c := range sectionDefaults {
		if !strings.Contains(sectionDocs[key], c.says) {
			t.Errorf("%s: the documentation is %q, want %q", key, sectionDocs[key], c.says)
		}
		if !strings.Contains(string(shown), c.shown) {
			t.Errorf("%s: %s the file is read as\n%s, want\n%s", key, c.says, shown, c.shown)
		}
	}
	tells := regexp.MustCompile(`\b(absent|none|empty|0s?) = `)
	for key, text := range sectionDocs {
		_, checked := sectionDefaults[key]
		if tells.MatchString(text) && !checked && !strings.HasPrefix(key, "discoverySection.") &&
			!strings.HasPrefix(key, "dataLayerV1Alpha1.discovery") && key != "sourceSection.select" {
			t.Errorf("%s tells of a default, which no row of sectionDefaults checks: %s", key, text)
		}
	}
}
