package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What Show prints is the whole effect of a file, and is its own effect.
func TestShowIsTheEffect(t *testing.T) {
	files, err := filepath.Glob("testdata/versions/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files")
	}
	capacity := head + "plugins: [{type: prefix-cache-scorer, parameters: {lruCapacityPerServer: 40000}}"
	texts := map[string]string{
		"the default": builtIn, "a capacity": capacity + "]",
		"two capacities": capacity + ", {type: approx-prefix-cache-producer, parameters: {lruCapacityPerServer: 9}}]",
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(data)
	}
	for name, file := range texts {
		shown, err := Show([]byte(file), three)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(effect(t, []byte(file)), effect(t, shown)); d != "" {
			t.Errorf("%s: the file -, what is shown of it +\n%s\n%s", name, d, shown)
		}
		again, err := Show(shown, three)
		if err != nil || string(again) != string(shown) {
			t.Errorf("%s: shown again, %v:\n%s", name, err, cmp.Diff(string(shown), string(again)))
		}
		c, err := Load(shown, three)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, w := range c.Warnings {
			if !strings.HasSuffix(w.Text, "has no scorer, so all endpoints are equally good to it") {
				t.Errorf("%s: what is shown has a warning: %v", name, w)
			}
		}
	}
}

func TestDiff(t *testing.T) {
	const scorers = newHead + "plugins: [{type: queue-scorer}, {type: load-aware-scorer, parameters: {threshold: 9}}]\n"
	for name, c := range map[string]struct {
		a, b string
		want []string
	}{
		"versions": {head, newHead, nil},
		"order of keys and what is written out": {newHead + "plugins: [{type: queue-scorer, name: queue-scorer}]",
			newHead + "plugins: [{name: queue-scorer, parameters: {}, type: queue-scorer}, {type: max-score-picker}]",
			nil},
		"a parameter": {scorers, strings.Replace(scorers, "9", "8", 1),
			[]string{"plugins[load-aware-scorer].parameters.threshold: 9 -> 8"}},
		"a weight": {
			scorers + "schedulingProfiles: [{name: p, plugins: [{pluginRef: queue-scorer}, " +
				"{pluginRef: load-aware-scorer}]}]",
			scorers + "schedulingProfiles: [{name: p, plugins: [{pluginRef: queue-scorer, weight: 2}, " +
				"{pluginRef: load-aware-scorer}]}]",
			[]string{"schedulingProfiles[p].plugins[queue-scorer].weight: 1 -> 2"}},
		"the order of objectives": {newHead + "objectives: [{name: a, priority: 1}, {name: b}]",
			newHead + "objectives: [{name: b, priority: 0}, {name: a, priority: 1}]", nil},
		"an objective": {newHead + "objectives: [{name: a, priority: 1}, {name: b}]",
			newHead + "objectives: [{name: a, priority: 3}]",
			[]string{"objectives[a].priority: 1 -> 3", `objectives[b].name: "b" -> absent`,
				"objectives[b].priority: 0 -> absent"}},
		"a threshold of the detector": {
			newHead + "plugins: [{type: utilization-detector}, {type: max-score-picker}, {type: queue-scorer}]\n" +
				"schedulingProfiles: [{name: a, plugins: [{pluginRef: queue-scorer}]}]\n" +
				"objectives: [{name: a, priority: -1}]",
			newHead + "plugins: [{type: utilization-detector, parameters: {queueDepthThreshold: 9}}, " +
				"{type: max-score-picker}, {type: queue-scorer}]\n" +
				"schedulingProfiles: [{name: a, plugins: [{pluginRef: queue-scorer}]}]\n" +
				"objectives: [{name: a, priority: -1}]\nflowControl: {saturationDetector: {pluginRef: " +
				"utilization-detector}}",
			[]string{"plugins[utilization-detector].parameters.queueDepthThreshold: 5 -> 9"}},
		"a rewrite, its defaults written": {
			newHead + "modelRewrites: [{name: a, rules: [{matches: [{model: {value: m}}], targets: [{modelRewrite: " +
				"b}]}]}]",
			newHead + "modelRewrites: [{name: a, rules: [{matches: [{model: {type: Exact, value: m}}], " +
				"targets: [{modelRewrite: b, weight: 1}]}]}]", nil},
		"the weight of a target": {
			newHead + "modelRewrites: [{name: a, rules: [{targets: [{modelRewrite: b}]}]}]",
			newHead + "modelRewrites: [{name: a, rules: [{targets: [{modelRewrite: b, weight: 2}]}]}]",
			[]string{"modelRewrites[a].rules[0].targets[0].weight: 1 -> 2"}},
		"a target without a weight beside one that has one": {
			newHead + "modelRewrites: [{name: a, rules: [{targets: [{modelRewrite: b}, {modelRewrite: c, " +
				"weight: 2}]}]}]",
			newHead + "modelRewrites: [{name: a, rules: [{targets: [{modelRewrite: b, weight: 2}, {modelRewrite: c, " +
				"weight: 2}]}]}]",
			[]string{"modelRewrites[a].rules[0].targets[0].weight: absent -> 2"}},
		"a plugin": {newHead + "plugins: [{type: queue-scorer}]",
			newHead + "plugins: [{type: decode-filter}, {type: queue-scorer}]",
			[]string{"plugins[decode-filter].name: absent -> \"decode-filter\"",
				"plugins[decode-filter].type: absent -> \"decode-filter\"",
				"schedulingProfiles[default].plugins[decode-filter].pluginRef: absent -> \"decode-filter\""}},
		"the order of filters": {newHead + "plugins: [{type: decode-filter}, {type: prefill-filter}]",
			newHead + "plugins: [{type: prefill-filter}, {type: decode-filter}]",
			[]string{"schedulingProfiles[default].plugins: the order is another one"}},
	} {
		a, err := Show([]byte(c.a), three)
		b, other := Show([]byte(c.b), three)
		if got := Diff(a, b); err != nil || other != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v, %v; want %q", name, got, err, other, c.want)
		}
	}
}

func TestPropagatedPriority(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "requestHandler: {propagatePriority: true}": true,
		"requestHandler: {propagatePriority: false}": false,
	} {
		got, err := Load([]byte(newHead+text), three)
		if err != nil || got.SetsPriority != want {
			t.Fatalf("%q: got %+v, %v, want priorities set: %t", text, got, err, want)
		}
		shown, err := Show([]byte(newHead+text), three)
		if line := fmt.Sprintf("propagatePriority: %t\n", want); err != nil || !strings.Contains(string(shown), line) {
			t.Errorf("%q: shown as\n%s%v, want a line %q", text, shown, err, line)
		}
	}
}
