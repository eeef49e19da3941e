package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// heldBack has requests of low priority fill half of a server.
const heldBack = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 4}}
- {type: priority-holdback-policy, parameters: {minCeiling: 0.5}}
- {type: random-picker}
schedulingProfiles: [{name: default, plugins: [{pluginRef: random-picker}]}]
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  usageLimitPolicyPluginRef: priority-holdback-policy
  defaultRequestTTL: 20s
objectives: [{name: urgent, priority: 5}, {name: batch, priority: -1}]
`

// holds waits until the server works on so many requests, after so many ever came.
func (g *gated) holds(on, ever int) {
	g.Helper()
	eventually(g.T, 10*time.Second, fmt.Sprintf("the server works on %d of %d", on, ever), func() bool {
		g.server.mu.Lock()
		defer g.server.mu.Unlock()
		return len(g.server.prompts) == on && len(g.server.began) == ever
	})
}

// Requests of low priority wait while half of the server is free, which takes urgent ones at once.
func TestEnvoyLowPrioritiesLeaveRoom(t *testing.T) {
	const objective = "X-Llm-D-Inference-Objective"
	g := newGatedBy(t, heldBack, overrideHost)
	for i := range 5 {
		g.sends(fmt.Sprint("batch-", i), objective, "batch")
	}
	g.holds(2, 2)
	g.waits(3)
	for i := range 3 {
		g.sends(fmt.Sprint("urgent-", i), objective, "urgent")
	}
	g.holds(4, 4)
	g.waits(4)
	g.server.release(2) // those of low priority: the third urgent one takes a place, and nobody else
	g.holds(3, 5)
	g.waits(3)
	g.server.release(-1)
	for i := range 5 {
		g.got(fmt.Sprint("batch-", i), http.StatusOK, "")
	}
	for i := range 3 {
		g.got(fmt.Sprint("urgent-", i), http.StatusOK, "")
	}
}
