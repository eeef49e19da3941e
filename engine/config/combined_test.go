package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const combined = `plugins:
- {type: concurrency-detector, name: count, parameters: {maxConcurrency: 3}}
- {type: utilization-detector}
- type: max-saturation-detector
  name: all
  parameters: {detectors: [count, utilization-detector], stages: {count: [decode]}}
- {type: queue-scorer}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: count}, {pluginRef: utilization-detector}, {pluginRef: queue-scorer}]}
flowControl: {saturationDetector: {pluginRef: all}}
`

// A detector that is made of others reads what they read, and they are no filters while the gate asks it.
func TestLoadDetectorOfOthers(t *testing.T) {
	for gates, filters := range map[string]int{"": 2, "featureGates: [flowControl]\n": 0} {
		c, err := Load([]byte(newHead+gates+combined), three)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(c.Plan.Profiles()[0].Filters); n != filters {
			t.Errorf("%q: %d filters, want %d", gates, n, filters)
		}
		if by := c.Plan.Detector(); by.Name != "all" || len(by.Reads) != 3 {
			t.Errorf("%q: the detector is %+v, want all, which reads three attributes", gates, by)
		}
		if len(c.Warnings) > 0 {
			t.Errorf("%q: %v", gates, c.Warnings)
		}
		shown, err := Show([]byte(newHead+gates+combined), three)
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := Show(shown, three); err != nil || string(twice) != string(shown) {
			t.Errorf("%v, shown again:\n%s", err, cmp.Diff(string(shown), string(twice)))
		}
	}
}
