package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/engine/flow"
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

// FuzzConvert wants of every file that Load takes one that Load takes too.
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
	})
}
