package e2e

import (
	"os"
	"os/exec"
	"testing"
)

const stacksText = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 1}}
- {type: example.com/stacks}
- {type: example.com/as-queued}
- {type: example.com/cheap, parameters: {fairnessID: cheap}}
- {type: random-picker}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  maxRequests: 3
  defaultRequestTTL: 60s
  defaultPriorityBand:
    orderingPolicyRef: example.com/as-queued
    queueRef: example.com/stacks
    displacementPolicyRef: example.com/cheap
`

// TestEnvoyQueuesAndDisplacesByAnotherModule: what waits stands in queues of another module, and makes way by a policy
// of it. The module's own test holds the queues against what they say that they can do.
func TestEnvoyQueuesAndDisplacesByAnotherModule(t *testing.T) {
	const id = "x-llm-d-inference-fairness-id"
	g := gatedOwn(t, "testdata/queues/main.go", stacksText)
	g.sends("room")
	g.holds(1, 1)
	g.sends("displaced", id, "cheap")
	g.waits(1)
	g.sends("oldest", id, "good")
	g.waits(2)
	g.sends("newer", id, "good")
	g.waits(3)
	g.sends("newest", id, "good")
	g.got("displaced", 429, "evicted-queue-pressure")
	g.serves("room", "newest", "newer", "oldest")

	test := exec.CommandContext(t.Context(), "go", "test", "-mod=mod", ".")
	test.Dir = ownModule(t, "testdata/queues/main.go", "testdata/queues/main_test.go")
	test.Env = append(os.Environ(), "GOWORK=off")
	if out, err := test.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

const policiesText = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 1}}
- {type: example.com/by-deadline}
- {type: example.com/adapter-first, parameters: {model: adapter-x}}
- {type: random-picker}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultRequestTTL: 60s
  defaultPriorityBand: {orderingPolicyRef: example.com/by-deadline}
  priorityBands: [{priority: 5, orderingPolicyRef: example.com/adapter-first}]
objectives: [{name: adapters, priority: 5}]
`

// TestEnvoyOrdersByWhatRequestsAskFor: an ordering of another module goes by a header that it has declared, another one
// by the model.
func TestEnvoyOrdersByWhatRequestsAskFor(t *testing.T) {
	const deadline, objective = "x-deadline", "x-llm-d-inference-objective"
	g := gatedOwn(t, "testdata/policies/main.go", policiesText)
	g.sends("room")
	g.holds(1, 1)
	g.sends("whenever")
	g.waits(1)
	g.sends("late", deadline, "900")
	g.waits(2)
	g.sends("soon", deadline, "100")
	g.waits(3)
	g.sends("base", objective, "adapters")
	g.waits(4)
	g.sendsBody("adapter", chatBody("adapter-x", "adapter", 2, false), objective, "adapters")
	g.waits(5)
	g.serves("room", "adapter", "base", "soon", "late", "whenever")
}

// serves has the server, which takes one request at a time, answer all that came, and wants them in this order.
func (g *gated) serves(prompts ...string) {
	g.Helper()
	for i, prompt := range prompts {
		g.holds(1, i+1)
		g.server.release(1)
		g.got(prompt, 200, "")
	}
}
