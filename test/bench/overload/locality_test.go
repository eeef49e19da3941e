package overload

import (
	"fmt"
	"testing"
	"time"
)

// tokenOrder shares tokens between flows, by locality as far as a quantum goes.
func tokenOrder(quantum int) string {
	return fmt.Sprintf(`apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: prefix-cache-scorer}
- type: approx-prefix-cache-producer
  parameters: {maxPrefixTokensToMatch: 0, maxPrefixBlocksToMatch: 0, followCaches: true}
- {type: active-request-scorer}
- {type: concurrency-detector, parameters: {maxConcurrency: 8}}
- {type: token-fairness-policy, parameters: {localityTokens: %d}}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: prefix-cache-scorer, weight: 3}
  - {pluginRef: active-request-scorer, weight: 1}
flowControl:
  defaultRequestTTL: 10m
  saturationDetector: {pluginRef: concurrency-detector}
  defaultPriorityBand: {maxRequests: 20k, fairnessPolicyRef: token-fairness-policy}
`, quantum)
}

// Eight tenants, whose prompts each begin with a long text of its own, of which a server keeps two: by locality their
// requests go where that is kept, and each is given as much as the others.
func TestLocalityKeepsPromptsWhereTheyAre(t *testing.T) {
	engine := medium
	engine.KVBlocks = 1400
	var tenants []Source
	for i := range 8 {
		tenants = append(tenants, Source{
			Name: fmt.Sprint("tenant-", i), Flow: flow(fmt.Sprint("tenant-", i), 0), Clients: 24,
			Prompt: Length{8200, 100}, Prefix: 8000, Output: Length{30, 10},
		})
	}
	from, to := 40*time.Second, 160*time.Second
	p := Play{Text: tokenOrder(0), Length: 170 * time.Second, Servers: servers(4, engine), Load: tenants}
	plain := played(t, p)
	p.Text = tokenOrder(100_000)
	local := played(t, p)
	served := func(r *Result) float64 { return float64(r.between("", from, to).served) }
	hits := func(all []*Result) interval {
		return over(len(all), func(i int) float64 {
			cached, prompt := 0, 0
			for _, a := range all[i].Answers {
				if a.Ended >= from && a.Ended < to {
					cached, prompt = cached+a.Cached, prompt+a.Prompt
				}
			}
			return float64(cached) / float64(prompt)
		})
	}
	even := over(len(local), func(i int) float64 {
		sum, squares := 0., 0.
		for _, s := range tenants {
			n := float64(local[i].between(s.Name, from, to).served)
			sum, squares = sum+n, squares+n*n
		}
		return sum * sum / (8 * squares)
	})
	gain := ratio(local, plain, served)
	t.Logf("requests %v of plain token order, of prompts %v were cached, in plain order %v; Jain's index %v", gain,
		hits(local), hits(plain), even)
	if gain.mean < 1.5 || even.mean < .95 {
		t.Error("want 1.5 times as many, and an index of 0.95")
	}
}
