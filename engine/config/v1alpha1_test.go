package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/deciders"
	"github.com/signalbox-epp/signalbox/engine/filters"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/profiles"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// A file of v1alpha1 and its twin of v1 have the same effect, and the second is what Convert makes of the first.
func TestVersionsAreTwins(t *testing.T) {
	files, err := filepath.Glob("testdata/versions/*.v1alpha1.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("got %d files, %v; want 10 or more", len(files), err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			older, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			converted, err := Convert(older)
			if err != nil {
				t.Fatal(err)
			}
			twin := strings.Replace(name, "v1alpha1", "v1", 1)
			if *update {
				if err := os.WriteFile(twin, converted, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			newer, err := os.ReadFile(twin)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(newer), string(converted)); d != "" {
				t.Errorf("Convert: want -, got +\n%s", d)
			}
			if again, err := Convert(newer); err != nil || string(again) != string(newer) {
				t.Errorf("Convert changes a file of v1, or refuses it: %v", err)
			}
			if d := cmp.Diff(effect(t, older), effect(t, newer)); d != "" {
				t.Errorf("v1alpha1 -, v1 +\n%s", d)
			}
		})
	}
}

// effect returns all that a file comes to, in words: values, and the parameters of the plugins that run.
func effect(t *testing.T, data []byte) string {
	c, err := Load(data, three)
	if err != nil {
		t.Fatalf("Load(%s): %v", data, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "prefix blocks %d\n", capacityOf(c))
	for _, p := range c.Plan.Profiles() {
		fmt.Fprintf(&b, "profile %s\n", p.Name)
		for _, f := range p.Filters {
			fmt.Fprintf(&b, "filter %s %s %+v\n", f.Type, f.Name, f.Filter)
		}
		for _, s := range p.Scorers {
			fmt.Fprintf(&b, "scorer %s %s %v %+v\n", s.Type, s.Name, s.Weight, s.Scorer)
		}
		fmt.Fprintf(&b, "picker %s %s %+v\n", p.Picker.Type, p.Picker.Name, p.Picker.Picker)
	}
	rest := *c
	rest.Plan, rest.Discovery.At = nil, strictyaml.Problem{}
	rest.Warnings, rest.LightLane = nil, nil // they name lines
	if q := rest.Queueing; q != nil {
		of := func(s flow.BandSettings) {
			fmt.Fprintf(&b, "band %+v %+v %v %v %+v %+v %+v\n", s.Limits, s.Names, s.Weights, s.TTL, s.Fairness,
				s.Ordering, s.Displacement)
		}
		of(q.Default)
		of(q.Negative)
		for _, priority := range slices.Sorted(maps.Keys(q.Bands)) {
			of(q.Bands[priority])
		}
		fmt.Fprintf(&b, "waiting %+v %v %+v %v %v %v\n", q.Limits, q.LimitedBy, q.UsageLimit, q.Priorities, q.Without,
			len(q.Evictions))
		d := c.Plan.Detector()
		fmt.Fprintf(&b, "detector %s %s\n", d.Type, d.Name)
		rest.Queueing = nil
	}
	fmt.Fprintf(&b, "%+v\n", rest)
	return b.String()
}

func TestConvertRefuses(t *testing.T) {
	for name, c := range map[string]struct{ data, want string }{
		"not YAML":   {"a: b: c", "line 1: not readable as YAML: "},
		"empty":      {"# nothing", "empty, there is nothing to convert"},
		"a list":     {"- a", "line 1: got a list, want a mapping"},
		"no version": {"kind: EndpointPickerConfig", "line 1: apiVersion: missing, want llm-d.ai/v1alpha1"},
		"unknown version": {"apiVersion: llm-d.ai/v2",
			`line 1: apiVersion: got "llm-d.ai/v2", want llm-d.ai/v1alpha1`},
		"an alias": {head + "plugins: [{parameters: &a {b: c}}]\ndataLayer: *a",
			"line 4: dataLayer: has an alias or a merge key"},
		"a merge key": {head + "plugins: [{parameters: &a {b: c}}]\ndataLayer: {<<: *a}",
			"line 4: dataLayer: has an alias or a merge key"},
		"an alias that would come first": {head + "plugins: []\nobjectives: [{name: a, priority: &a 5}]\n" +
			"saturationDetector: {queueDepthThreshold: *a}", "the file has an alias that cannot be converted"},
		"a section's kind": {head + "flowControl: []\nsaturationDetector: {pluginRef: a}",
			"line 3: flowControl: got a list, want a mapping"},
		"a section's value": {head + "dataLayer: none", `line 3: dataLayer: got "none", want a mapping`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Convert([]byte(c.data))
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("Convert(%q) = %s, %v; want %s", c.data, got, err, c.want)
			}
		})
	}
}

// hardToConvert has values that Load reads in another way than they look, and names that are taken.
var hardToConvert = []string{
	head + "plugins:\n- {type: queue-scorer}\n- {type: pd-profile-handler}\n" +
		"schedulingProfiles:\n- {name: prefill}\n- {name: decode, plugins: [{pluginRef: queue-scorer, weight}]}\n",
	head + "plugins:\n- {type: by-label, name: '', parameters: {label: a, validValues: [b], allowsNoLabel: True}}" +
		oneProfile("by-label"),
	head + "plugins:\n- {type: by-label, parameters: {label: a, validValues: [b], allowsNoLabel: off}}" +
		oneProfile("by-label"),
	head + "plugins:\n- {type: by-label, parameters: {label: a, validValues: [b c]}}" + oneProfile("by-label"),
	head + "plugins:\n- {type: by-label, parameters: {label: a, allowsNoLabel: on}}" + oneProfile("by-label"),
	head + "plugins:\n- {type: prefix-cache-affinity-filter, parameters: {maxTokensInFlightPenalty: 0x3e8, " +
		"peakPrefillThroughput: 3_000.5}}" + oneProfile("prefix-cache-affinity-filter"),
	head + "plugins:\n- {type: prefix-cache-affinity-filter, parameters: {maxTokensInFlightPenalty: 9, " +
		"peakPrefillThroughput: 1e-320}}" + oneProfile("prefix-cache-affinity-filter"),
	head + "plugins:\n- {type: prefix-cache-affinity-filter, parameters: {maxTokensInFlightPenalty: 0, " +
		"maxTTFTPenaltyMs: 7}}" + oneProfile("prefix-cache-affinity-filter"),
	head + "plugins:\n- {type: openai-parser, parameters: {propagatePriority: yes}}\n" +
		"requestHandler: {propagatePriority: false}\n",
	head + "plugins:\n- {type: openai-parser, parameters: {propagatePriority: True}}\n",
	head + "plugins:\n- {type: queue-scorer}\n- {type: prefill-filter}\n- {type: decode-filter}\n" +
		"- {type: pd-profile-handler, parameters: {threshold: 1_000, primaryPort: 0x0}}" +
		twoStages("prefill-filter", "decode-filter", "queue-scorer"),
	head + "plugins:\n- {type: queue-scorer, name: always-disagg-pd-decider}\n- {type: prefill-filter}\n" +
		"- {type: decode-filter}\n- {type: pd-profile-handler, name: ~, parameters: {threshold: ~}}" +
		twoStages("prefill-filter", "decode-filter", "always-disagg-pd-decider"),
	head + "plugins:\n- {type: queue-scorer}\n- {type: pd-profile-handler, parameters: {decodeProfile: encode}}\n" +
		"schedulingProfiles:\n- {name: encode, plugins: [{pluginRef: queue-scorer}]}\n" +
		"- {name: prefill, plugins: [{pluginRef: queue-scorer}]}\n",
	head + "plugins:\n- {type: disagg-profile-handler, parameters: {deciderPluginName: '', " +
		"prefillDeciderPluginName: y}}\n- {type: always-disagg-pd-decider, name: y}\n" +
		"- {type: queue-scorer}" + twoStages("queue-scorer", "queue-scorer", "queue-scorer"),
	head + "plugins:\n- {type: prefix-cache-scorer, parameters: {lruCapacityPerServer: 40_000, mode: approximate}}\n" +
		"- {type: prefix-cache-scorer, name: b, parameters: {lruCapacityPerServer: 0xc350, blockSize: 7}}\n" +
		"- {type: approx-prefix-cache-producer}" + oneProfile("b"),
	head + "plugins:\n- {type: prefix-cache-scorer, parameters: {lruCapacityPerServer: 100}}\n" +
		"- {type: prefix-cache-scorer, name: b, parameters: {lruCapacityPerServer: 500, blockSize: 70}}" +
		oneProfile("b"),
	head + "plugins:\n- {type: queue-scorer, name: approx-prefix-cache-producer}\n" +
		"- {type: prefix-cache-scorer, parameters: {lruCapacityPerServer: 100}}" + oneProfile("prefix-cache-scorer"),
	head + "plugins:\n- {type: max-score, name: ''}\n- {type: queue-scorer}\nschedulingProfiles:\n" +
		"- {name: default, plugins: [{pluginRef: max-score}, {pluginRef: queue-scorer}]}\n",
}

func TestConvertKeepsTheEffect(t *testing.T) {
	for _, file := range hardToConvert {
		converted, err := Convert([]byte(file))
		if err != nil {
			t.Fatalf("Convert(%q): %v", file, err)
		}
		if _, err := Load([]byte(file), three); err != nil {
			t.Fatalf("Load(%q): %v", file, err)
		}
		if d := Diff(shownNow(t, []byte(file)), shownNow(t, converted)); len(d) > 0 {
			t.Errorf("Convert(%q) = %q, which has another effect: %q", file, converted, d)
		}
	}
}

// oneProfile is the profile of files whose requests all run through one plugin.
func oneProfile(plugin string) string {
	return "\nschedulingProfiles:\n- {name: default, plugins: [{pluginRef: " + plugin + "}]}\n"
}

// shownNow returns what Show says of a file, with the plugins of older types as Convert writes them. Deciders that
// always say yes, and producers of the prefix index, are one each, and have the places of all.
func shownNow(t *testing.T, file []byte) []byte {
	t.Helper()
	shown, err := Show(file, three)
	if err != nil {
		t.Fatalf("Show(%q): %v", file, err)
	}
	l, err := load(file, three)
	if err != nil {
		t.Fatal(err)
	}
	root, _ := strictyaml.Parse(shown)
	list, capacity := strictyaml.Find(root, "plugins"), plain(strconv.Itoa(capacityOf(l.config)))
	kept := []*yaml.Node{mapping(pairOf("name", text("capacity")), pairOf("is", capacity))}
	for _, p := range list.Content {
		typ, parameters := strictyaml.Find(p, "type"), strictyaml.Find(p, "parameters")
		plugin := construct(typ.Value)
		if !read(plugin, parameters) {
			t.Fatalf("%s of %s cannot be read", typ.Value, shown)
		}
		switch x := plugin.(type) {
		case *ApproxPrefixCache, *deciders.Always:
			continue
		case *filters.ByLabel:
			if now := asSelector(x); now.Validate() == nil {
				typ.Value, *parameters = "label-selector-filter", *value(reflect.ValueOf(now))
			}
		case *profiles.PrefillDecode:
			if x.PrimaryPort == 0 {
				now, decider := inDisagg(l, x)
				typ.Value, *parameters = "disagg-profile-handler", *value(reflect.ValueOf(now))
				kept = append(kept, decider...)
			}
		case *profiles.Disagg:
			if always(l, x.Deciders.Prefill) {
				x.Deciders.Prefill = "always"
			}
			if x.Deciders.Encode == "" {
				x.Profiles.Encode = "" // the stage never runs
			}
			*parameters = *value(reflect.ValueOf(x))
		}
		kept = append(kept, p)
	}
	list.Content = kept
	shown, err = encode(&yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{root}})
	if err != nil {
		t.Fatal(err)
	}
	return shown
}

// asSelector returns a selector that does the same as a by-label, or one that is not valid.
func asSelector(x *filters.ByLabel) *filters.LabelSelector {
	condition := filters.Requirement{Key: x.Label, Operator: "In", Values: x.ValidValues}
	switch {
	case x.AllowsNoLabel && len(x.ValidValues) == 0:
		condition.Operator, condition.Values = "DoesNotExist", nil
	case x.AllowsNoLabel:
		condition.Operator = "InOrDoesNotExist"
	}
	return &filters.LabelSelector{MatchExpressions: []filters.Requirement{condition}}
}

// capacityOf returns how many blocks of an endpoint the prefix index keeps.
func capacityOf(c *Config) int {
	if n := c.Plan.Prefixes().Capacity; n > 0 {
		return n
	}
	return blockindex.DefaultCapacity
}

func always(l *loader, name string) bool {
	x := l.named[name]
	return x != nil && x.typ == "always-disagg-pd-decider"
}

// inDisagg returns what a pd-profile-handler comes to, with the decider that it has of its own.
func inDisagg(l *loader, x *profiles.PrefillDecode) (now *profiles.Disagg, decider []*yaml.Node) {
	now = construct("disagg-profile-handler").(*profiles.Disagg)
	now.Profiles = profiles.DisaggProfiles{Decode: x.DecodeProfile, Prefill: x.PrefillProfile}
	now.Deciders.Prefill = x.DeciderPluginName
	switch {
	case x.DeciderPluginName == "" && x.Threshold > 0:
		now.Deciders.Prefill = "prefix-based-pd-decider"
		name, by := text(now.Deciders.Prefill), &deciders.PrefixBased{NonCachedTokens: x.ThresholdTokens()}
		decider = append(decider, mapping(pairOf("name", name), pairOf("type", name),
			pairOf("parameters", value(reflect.ValueOf(by)))))
	case x.DeciderPluginName == "" || always(l, x.DeciderPluginName):
		now.Deciders.Prefill = "always"
	}
	return now, decider
}

// FuzzConvert wants of every file that Load takes one that has the same effect.
func FuzzConvert(f *testing.F) {
	files, _ := filepath.Glob("testdata/versions/*.yaml")
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, c := range olderFiles {
		f.Add([]byte(c.file))
	}
	for _, file := range hardToConvert {
		f.Add([]byte(file))
	}
	f.Add([]byte(head + "plugins:\n- {name: always-disagg-pd-decider}\n- {type: pd-profile-handler}\n")) // of no type
	f.Fuzz(func(t *testing.T, data []byte) {
		converted, err := Convert(data)
		if err != nil {
			return
		}
		if _, err := Load(data, three); err != nil {
			return
		}
		if _, err := Load(converted, three); err != nil {
			t.Fatalf("Convert(%q) = %q, which is refused: %v", data, converted, err)
		}
		if d := Diff(shownNow(t, data), shownNow(t, converted)); len(d) > 0 {
			t.Fatalf("Convert(%q) = %q, which has another effect: %q", data, converted, d)
		}
	})
}
