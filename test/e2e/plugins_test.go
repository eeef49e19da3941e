package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ownMain is the main of another module that adds plugins. README has the same code.
const ownMain = "testdata/plugins/main.go"

// buildOwn builds that main as the only file of a module of its own, and returns the program.
func buildOwn(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	const ours = "module github.com/signalbox-epp/signalbox\n"
	module := replaceOnce(t, readFile(t, filepath.Join(root, "go.mod")), ours, "module example.com/my-picker\n\n"+
		"require github.com/signalbox-epp/signalbox v0.0.0\n\nreplace github.com/signalbox-epp/signalbox => "+root+"\n")
	writeFile(t, filepath.Join(folder, "go.mod"), module)
	writeFile(t, filepath.Join(folder, "go.sum"), readFile(t, filepath.Join(root, "go.sum")))
	writeFile(t, filepath.Join(folder, "main.go"), readFile(t, ownMain))
	program := filepath.Join(folder, "my-picker")
	build := exec.Command("go", "build", "-mod=mod", "-o", program, ".")
	build.Dir, build.Env = folder, append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestEnvoyObeysPluginsOfAnotherModule serves with a program whose main is in another module. Its scorer, which reads a
// header, and its filter decide, its extractor feeds a
// filter that is built in, and a plugin refuses.
func TestEnvoyObeysPluginsOfAnotherModule(t *testing.T) {
	servers := simulated(t, 2, slow...)
	s := &stack{servers: servers, picker: newPicker(t, "127.0.0.1", "--config-text", `
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: example.com/not-busy, parameters: {maxQueue: 2}}
- {type: example.com/same-zone}
- {type: example.com/zone-needed}
- {type: example.com/lines-extractor}
- type: endpoint-attribute-filter
  parameters:
    attributeKey: example.com/lines
    onMissing: Fail
    algorithm: {type: threshold, threshold: {operator: GreaterThan, value: 50}}
- {type: metrics-data-source}
- {type: core-metrics-extractor}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: example.com/not-busy}
  - {pluginRef: endpoint-attribute-filter}
  - {pluginRef: example.com/same-zone}
dataLayer:
  sources:
  - pluginRef: metrics-data-source
    extractors: [{pluginRef: core-metrics-extractor}, {pluginRef: example.com/lines-extractor}]
`)}
	s.picker.binary = buildOwn(t)
	s.picker.label(t, servers, "topology.kubernetes.io/zone", "a", "b")
	s.picker.startAgain(t)
	s.picker.sampled(t, len(servers))
	s.envoy = startEnvoy(t, overrideHost, s.picker.grpcPort, servers)
	s.envoy.asksPicker(t)
	s.client = newClient(s.envoy.url)
	t.Cleanup(s.client.close)
	for i, zone := range []string{"a", "b", "a"} {
		want := i % 2
		before := served(servers[want])
		a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", chatBody(model, "hello", 2, false),
			http.Header{"X-Zone": {zone}})
		if !a.whole() || served(servers[want]) != before+1 {
			t.Errorf("zone %s: %s; server %d finished %d requests more, want 1", zone, a.String(), want,
				served(servers[want])-before)
		}
	}
	a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", chatBody(model, "hello", 2, false), nil)
	if a.status != http.StatusBadRequest || !strings.Contains(a.body, "the header x-zone is missing") {
		t.Errorf("without a zone: %s", a.String())
	}
	for _, args := range [][]string{{"plugins"}, {"plugins", "example.com/same-zone"}, {"config", "schema"}} {
		out, err := exec.Command(s.picker.binary, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "example.com/same-zone") {
			t.Errorf("%v: %v\n%s", args, err, tail(string(out), 20))
		}
	}
	if n := s.picker.metric("signalbox_plugin_duration_seconds_count", `plugin_type="example.com/not-busy"`); n < 3 {
		t.Errorf("the filter ran %v times, want 3 or more", n)
	}
}

// TestReadmeHasTheMainOfAnotherModule holds the code that README shows against the code that is built here.
func TestReadmeHasTheMainOfAnotherModule(t *testing.T) {
	if code := "```go\n" + readFile(t, ownMain) + "```\n"; !strings.Contains(readFile(t, "../../README.md"), code) {
		t.Errorf("README has not the code of %s", ownMain)
	}
}

// TestEnvoyKeepsSessions: a request that brings the header of an earlier response goes to the server that gave it, in
// both lanes, and a session of which the server is gone moves.
func TestEnvoyKeepsSessions(t *testing.T) {
	for _, config := range []string{overrideHost, overrideHostFull} {
		t.Run(config, func(t *testing.T) {
			servers := handlers(t, 4, mirror)
			s := &stack{servers: servers, picker: serve(t, servers, "--config-text", `
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: session-affinity-filter}, {type: random-picker}]
`)}
			s.picker.pooled(t, len(servers))
			s.envoy = startEnvoy(t, config, s.picker.grpcPort, servers)
			s.envoy.asksPicker(t)
			s.client = newClient(s.envoy.url)
			t.Cleanup(s.client.close)
			ask := func(token string) (server, next string) {
				t.Helper()
				header := http.Header{}
				if token != "" {
					header.Set("X-Session-Token", token)
				}
				a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions",
					chatBody(model, "hello", 2, false),
					header)
				server, next = a.header.Get("X-Server"), a.header.Get("X-Session-Token")
				if !a.whole() || next == "" {
					t.Fatalf("%s: session %q", a.String(), next)
				}
				return server, next
			}
			seen := map[string]bool{}
			for range 40 {
				server, token := ask("")
				seen[server] = true
				for range 3 {
					again, next := ask(token)
					if again != server || next != token {
						t.Fatalf("a session of %s went to %s, its token %s became %s", server, again, token, next)
					}
				}
			}
			if len(seen) < len(servers) {
				t.Errorf("40 sessions began at %d servers, want all %d", len(seen), len(servers))
			}
			ask("MTkyLjAuMi4xOjk=") // 192.0.2.1:9
		})
	}
}
