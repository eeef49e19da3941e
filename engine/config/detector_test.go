package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// With its feature gate off the section flowControl is taken whole, and nothing but its detector has an effect: the
// rest, and the policies that it alone names, cause one warning.
func TestLoadFlowControlWithoutItsGate(t *testing.T) {
	const plugins = `plugins:
- {type: queue-scorer}
- {type: round-robin-fairness-policy, name: turns}
- {type: program-aware-fairness, parameters: {strategy: las}}
- {type: edf-ordering-policy}
- {type: slo-deadline-ordering-policy}
- {type: fcfs-ordering-policy}
- {type: priority-holdback-policy, name: holdback, parameters: {minCeiling: 0.5}}
`
	const section = `flowControl:
  maxBytes: 8Gi
  maxRequests: 1k
  defaultRequestTTL: 5s
  noEndpointRequestTTL: 0s
  defaultPriorityBand: {maxRequests: 7, fairnessPolicyRef: global-strict-fairness-policy}
  defaultNegativePriorityBand: {maxBytes: 2G, orderingPolicyRef: fcfs-ordering-policy}
  priorityBands:
  - {priority: 2147483647, defaultRequestTTL: 1m, fairnessPolicyRef: turns, orderingPolicyRef: edf-ordering-policy}
  - {priority: -5, fairnessPolicyRef: program-aware-fairness, orderingPolicyRef: slo-deadline-ordering-policy}
  usageLimitPolicyPluginRef: holdback
  saturationDetector: {pluginRef: utilization-detector}
  enableEviction: true
objectives: [{name: batch, priority: -5}]
`
	for _, version := range []string{head, newHead} {
		c, err := Load([]byte(version+"featureGates: [flowControl=false]\n"+plugins+section), three)
		if err != nil {
			t.Fatal(err)
		}
		var warnings []string
		for _, w := range c.Warnings {
			if w.Path != "apiVersion" {
				warnings = append(warnings, w.String())
			}
		}
		want := []string{
			"line 12: flowControl: the feature gate flowControl is off, so only its saturationDetector has an effect",
		}
		if diff := cmp.Diff(want, warnings); diff != "" {
			t.Errorf("warnings: want -, got +:\n%s", diff)
		}
		shown, err := Show([]byte(version+plugins+section), three)
		without, other := Show([]byte(version+"plugins: [{type: queue-scorer}]\n"+
			"objectives: [{name: batch, priority: -5}]"), three)
		if err != nil || other != nil || string(shown) != string(without) {
			t.Errorf("%v, %v, the section has an effect:\n%s", err, other, cmp.Diff(string(without), string(shown)))
		}
	}
}

// TestLoadDetector: the detector that a file names counts, the newer key before the older one; a file that names none
// has the default one if an objective has a negative priority.
func TestLoadDetector(t *testing.T) {
	const shed = "objectives: [{name: batch, priority: -1}, {name: chat, priority: 1}]\n"
	const one = "schedulingProfiles: [{name: p}]\nplugins:\n- {type: utilization-detector, name: u}\n"
	const both = one + "- {type: concurrency-detector, name: c}\n"
	for name, c := range map[string]struct {
		data string
		want string // name and type
	}{
		"by default":     {newHead + shed, "utilization-detector utilization-detector"},
		"none is needed": {newHead + "objectives: [{name: a}]", " "},
		"the file's own": {newHead + "plugins: [{type: utilization-detector}]\n" + shed,
			"utilization-detector utilization-detector"},
		"one that it does not say": {newHead + one + shed, "utilization-detector utilization-detector"},
		"by name": {newHead + one + "flowControl: {saturationDetector: {pluginRef: u}}\n" + shed,
			"u utilization-detector"},
		"without objectives": {newHead + one + "flowControl: {saturationDetector: {pluginRef: u}}",
			"u utilization-detector"},
		"older key": {head + both + "saturationDetector: {pluginRef: c}\n",
			"c concurrency-detector"},
		"both keys": {head + both + "saturationDetector: {pluginRef: u}\n" +
			"flowControl: {saturationDetector: {pluginRef: c}}", "c concurrency-detector"},
		"nothing to read": {newHead + "dataLayer: {injectDefaults: false}\n" + shed, " "},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Load([]byte(c.data), three)
			if err != nil {
				t.Fatal(err)
			}
			var point schedule.Step
			got.Plan.Points(func(name string, of *schedule.Step) {
				if name == "SaturationDetector" {
					point = *of
				}
			})
			by := got.Plan.Detector()
			if by.Name+" "+by.Type != c.want || point.Name != by.Name {
				t.Errorf("got %s of type %s, observed %s, want %s", by.Name, by.Type, point.Name, c.want)
			}
			reads := 0
			if by.Type == "utilization-detector" {
				reads = 2
			} else if by.Type != "" {
				reads = 1
			}
			if len(point.Reads) != reads {
				t.Errorf("it declares %d attributes, want %d", len(point.Reads), reads)
			}
		})
	}
}
