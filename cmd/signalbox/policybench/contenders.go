package policybench

import (
	"fmt"
	"slices"
)

// Contender is a policy that is held against others.
type Contender struct {
	Name     string
	rule     func() policy // nil = File, in the product
	File     File
	Baseline string // of the same configuration with flow control off; "" = it has none
}

const threeTwoTwo = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: prefix-cache-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: queue-scorer, weight: 2}, {pluginRef: kv-cache-utilization-scorer, weight: 2},
	{pluginRef: prefix-cache-scorer, weight: 3}]
`

// sticky returns the reference's sticky guide for servers that compute so many tokens of prompts a second.
func sticky(rate float64) string {
	return fmt.Sprintf(`apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: inflight-load-producer}
- {type: prefix-cache-affinity-filter, parameters: {peakPrefillThroughput: %.0f}}
- {type: token-load-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: prefix-cache-affinity-filter}, {pluginRef: token-load-scorer}]
`, rate)
}

// oracleName is the name of the policy that all others' hits are divided by.
const oracleName = "oracle-greedy"

// denominator is the name of the policy that all others are divided by.
const denominator = "ideal-sticky"

// newIdealSticky has the patience that was best of 0.5, 1, 2, 4, 8 and 18 s over the loads of the agentic trace.
func newIdealSticky() policy { return idealSticky{patience: 8} }

// Contenders returns all policies, for servers that compute so many tokens of prompts a second.
func Contenders(rate float64) []Contender {
	estimates := func(cost func(*estimator, *world, *exchange, int) float64) func() policy {
		return func() policy { return &estimator{cost: cost} }
	}
	knows := func(cost func(*world, *exchange, *node) float64) func() policy {
		return func() policy { return oracle{cost: cost} }
	}
	all := []Contender{
		{Name: denominator, rule: newIdealSticky},
		{Name: "random", rule: func() policy { return random{} }},
		{Name: "round-robin", rule: func() policy { return &roundRobin{} }},
		{Name: "least-request", rule: estimates(leastRequest)},
		{Name: "lmetric", rule: estimates(lmetric)},
		{Name: "greedy", rule: estimates(greedy)},
		{Name: oracleName, rule: knows(trueGreedy)},
		{Name: "oracle-lmetric", rule: knows(trueProduct)},
	}
	return append(all, slices.Concat(
		both("without-file", ""), both("3:2:2", threeTwoTwo), both("sticky", sticky(rate)),
		both("sticky-4x", sticky(4*rate))[:1], both("sticky-quarter", sticky(rate/4))[:1],
	)...)
}

// heldSuffix ends the names of policies with flow control.
const heldSuffix = "+fc"

// both returns a configuration of the product with flow control off and on.
func both(name, text string) []Contender {
	return []Contender{
		{Name: name, File: File{Text: text}},
		{Name: name + heldSuffix, File: File{Text: text, FlowControl: true}, Baseline: name},
	}
}
