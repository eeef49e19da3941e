package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// countedText has requests wait by an ordering of another module, beside a plugin that serves every point and a profile
// that is compared.
const countedText = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 2}}
- {type: example.com/counted}
- {type: example.com/order}
- {type: random-picker}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: random-picker}]}
- {name: other, shadow: true, plugins: [{pluginRef: random-picker}]}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  maxRequests: 4
  defaultRequestTTL: 60s
  defaultPriorityBand: {orderingPolicyRef: example.com/order}
objectives: [{name: urgent, priority: 5}, {name: batch, priority: -1}]
`

// callsOf reads how often each point was called for each prompt, as "point of".
func callsOf(t *testing.T, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	byID, prompts := map[string][]string{}, map[string]string{}
	for line := range strings.Lines(string(text)) {
		id, call, _ := strings.Cut(strings.TrimSpace(line), " ")
		byID[id] = append(byID[id], call)
		if prompt, ok := strings.CutPrefix(call, "RequestHeaders "); ok {
			prompts[id] = prompt
		}
	}
	all := map[string][]string{}
	for id, of := range byID {
		slices.Sort(of)
		all[prompts[id]] = append(all[prompts[id]], of...)
	}
	return all
}

// gatedOwn is a server behind Envoy and a program of another module, whose requests wait.
func gatedOwn(t *testing.T, main, text string) *gated {
	t.Helper()
	return gatedWith(t, text, nil, func(servers, flags []string) *stack {
		return startOwn(t, main, servers, flags...)
	})
}

// TestEnvoyCallsEachPointOnce counts the calls of a plugin of another module for each way that a request can take: it
// finds room, waits and has turns in vain, is classed anew because an endpoint joins, is displaced, and gives up.
func TestEnvoyCallsEachPointOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls")
	t.Setenv("CALLS", path)
	g := gatedOwn(t, "testdata/counted/main.go", countedText)
	g.sends("room-1")
	g.sends("room-2")
	g.server.works(t, 2)
	const batch, objective = "batch", "x-llm-d-inference-objective"
	for i, prompt := range []string{"waits-1", "waits-2"} {
		g.sends(prompt)
		g.waits(i + 1)
	}
	g.sends("displaced", objective, batch)
	g.waits(3)
	g.sends("gives-up", "x-llm-d-inference-ttl", "5s")
	g.waits(4)
	before := g.picker.metric("signalbox_flow_turns_failed_total")
	g.picker.setEndpoints(t, []string{g.server.address(), "127.0.0.1:9"}) // all are classed anew
	g.picker.pooled(t, 2)
	eventually(t, 10*time.Second, "turns are in vain", func() bool {
		return g.picker.metric("signalbox_flow_turns_failed_total") > before
	})
	g.sends("urgent", objective, "urgent")
	g.got("displaced", 429, "evicted-priority")
	g.got("gives-up", 429, "rejected-ttl-expired")
	g.server.release(-1)
	for _, prompt := range []string{"room-1", "room-2", "waits-1", "waits-2", "urgent"} {
		g.got(prompt, 200, "")
	}
	g.picker.idle(t)
	for prompt, waited := range map[string]bool{
		"room-1": false, "room-2": false, "waits-1": true, "waits-2": true, "urgent": true, "displaced": true,
		"gives-up": true,
	} {
		g.checkCalls(prompt, callsOf(t, path)[prompt], waited)
	}
}

// checkCalls wants each point to have been called once for a request. Screeners may be asked once more, about the
// endpoint that joined alone.
func (g *gated) checkCalls(prompt string, got []string, waited bool) {
	g.Helper()
	count := map[string]int{}
	for _, call := range got {
		point, of, _ := strings.Cut(call, " ")
		if point == "Screen" && of == "1" && count[point] == 1 && waited {
			continue
		}
		count[point]++
	}
	served := prompt != "displaced" && prompt != "gives-up"
	want := map[string]int{"RequestHeaders": 1, "Screen": 1, "Admit": 1}
	if waited {
		want["Key"] = 1
	}
	if served {
		want["PreRequest"], want["ResponseHeaders"], want["ResponseEnd"] = 1, 1, 1
	}
	if served && count["FirstToken"] == 1 { // it comes with the access log's entry, if that tells
		delete(count, "FirstToken")
	}
	if fmt.Sprint(count) != fmt.Sprint(want) {
		g.Errorf("%s: calls %v, want %v; all: %q", prompt, count, want, got)
	}
}

// TestEnvoyLogsPanicsOfPolicies: what a policy of another module panics with is in the log, with its stack and how
// often, and requests are served in the order of their arrival all the same.
func TestEnvoyLogsPanicsOfPolicies(t *testing.T) {
	g := gatedOwn(t, "testdata/counted/main.go", strings.NewReplacer("- {type: example.com/counted}\n", "",
		"example.com/order", "example.com/broken").Replace(countedText))
	g.sends("room-1")
	g.sends("room-2")
	g.server.works(t, 2)
	for i := range 4 {
		g.sends(fmt.Sprint("waits-", i))
		g.waits(i + 1)
	}
	g.server.release(-1)
	for _, prompt := range []string{"room-1", "room-2", "waits-0", "waits-1", "waits-2", "waits-3"} {
		g.got(prompt, 200, "")
	}
	if n := g.picker.metric("signalbox_flow_policy_panics_total"); n != 3 {
		t.Errorf("%v panics, want 3, after which a policy that is built in orders", n)
	}
	var lines []string
	for line := range strings.Lines(g.picker.log.text()) {
		if strings.Contains(line, `"msg":"a policy panicked"`) {
			lines = append(lines, line)
		}
	}
	for i, line := range lines {
		if !containsAll(line, []string{
			`"panic":"it has no key"`, "main.broken.Key", `"plugin_type":"example.com/broken"`,
			`"policy":"ordering policy"`, fmt.Sprintf(`"times":%d`, i+1),
		}) {
			t.Errorf("the log says %s", line)
		}
	}
	if len(lines) != 2 {
		t.Errorf("%d lines of the log tell panics, want those of the first and the second", len(lines))
	}
}
