package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// ownMain is the main of another module that adds plugins. README has the same code.
const ownMain = "testdata/plugins/main.go"

// ownModule makes a module of these files, and returns its folder.
func ownModule(t *testing.T, files ...string) string {
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
	for _, file := range files {
		writeFile(t, filepath.Join(folder, filepath.Base(file)), readFile(t, file))
	}
	return folder
}

// buildOwn builds a main as the only file of a module of its own, and returns the program.
func buildOwn(t *testing.T, main string) string {
	t.Helper()
	folder := ownModule(t, main)
	program := filepath.Join(folder, "my-picker")
	build := exec.Command("go", "build", "-mod=mod", "-o", program, ".")
	build.Dir, build.Env = folder, append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// startOwn puts Envoy and the program of a main of another module before servers.
func startOwn(t *testing.T, main string, servers []string, flags ...string) *stack {
	t.Helper()
	s := &stack{servers: servers, picker: newPicker(t, "127.0.0.1", flags...)}
	s.picker.binary = buildOwn(t, main)
	s.picker.setEndpoints(t, servers)
	s.picker.startAgain(t)
	s.picker.pooled(t, len(servers))
	s.envoy = startEnvoy(t, overrideHost, s.picker.grpcPort, servers, share(t, 0))
	s.envoy.asksPicker(t)
	s.client = newClient(s.envoy.url)
	t.Cleanup(s.client.close)
	return s
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
	s.picker.binary = buildOwn(t, ownMain)
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

// TestEnvoyPicksByAPrefixIndexOfAnotherModule: a scorer of another module that keeps a prefix index of its own sends
// each conversation to the server that was sent its beginning.
func TestEnvoyPicksByAPrefixIndexOfAnotherModule(t *testing.T) {
	s := startOwn(t, "testdata/blocks/main.go", simulated(t, 3, quick...), "--config-text", `
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: example.com/blocks}, {type: max-score-picker}]
schedulingProfiles:
- {name: default, plugins: [{pluginRef: example.com/blocks}, {pluginRef: max-score-picker}]}
`)
	homes := map[int]bool{}
	for talk := range 12 {
		prompt, seen := fmt.Sprintf("Talk %d. ", talk), map[int]bool{}
		for range 4 {
			prompt += strings.Repeat("It goes on and on and on. ", 40)
			at := s.servedAt(t, prompt)
			seen[at], homes[at] = true, true
		}
		if len(seen) != 1 {
			t.Errorf("talk %d goes to the servers %v, want one", talk, seen)
		}
	}
	if len(homes) < 2 {
		t.Errorf("all talks go to the servers %v, want several", homes)
	}
}

// servedAt sends a prompt and returns which server has served it.
func (s *stack) servedAt(t *testing.T, prompt string) int {
	t.Helper()
	var before []int
	for _, server := range s.servers {
		before = append(before, served(server))
	}
	if a := s.client.chat(model, prompt, 2); !a.whole() {
		t.Fatal(a.String())
	}
	return slices.IndexFunc(s.servers, func(server string) bool {
		return served(server) != before[slices.Index(s.servers, server)]
	})
}

// namedBlock are blocks of a page that have the name of a file: language, name, text.
var namedBlock = regexp.MustCompile("(?ms)^```[a-z]+ ([^\n ]+)\n(.*?)^```$")

// familiesText names every type of deploy/docs/write-a-plugin.md.
const familiesText = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: example.com/labelled}
- {type: example.com/not-full}
- {type: example.com/last}
- {type: example.com/first}
- {type: example.com/long-prompts}
- {type: example.com/count-full}
- {type: example.com/awake}
- {type: example.com/no-books}
- {type: example.com/cost}
- {type: example.com/followed}
- {type: example.com/shortest}
- {type: example.com/rarest}
- {type: example.com/oldest}
- {type: example.com/lists}
- {type: example.com/half}
- {type: example.com/newcomers}
- {type: example.com/lines}
- {type: fcfs-ordering-policy}
- {type: endpoint-attribute-scorer, parameters: {attributeKey: example.com/cost}}
- {type: metrics-data-source}
- {type: core-metrics-extractor}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: example.com/not-full}
  - {pluginRef: example.com/labelled}
  - {pluginRef: endpoint-attribute-scorer}
  - {pluginRef: example.com/last}
flowControl:
  enableEviction: true
  usageLimitPolicyPluginRef: example.com/half
  defaultPriorityBand: {orderingPolicyRef: fcfs-ordering-policy, queueRef: example.com/lists}
  priorityBands:
  - {priority: -1, orderingPolicyRef: example.com/shortest, fairnessPolicyRef: example.com/rarest,
     displacementPolicyRef: example.com/oldest}
objectives: [{name: batch, priority: -1}]
dataLayer:
  sources:
  - pluginRef: metrics-data-source
    extractors: [{pluginRef: core-metrics-extractor}, {pluginRef: example.com/lines}]
`

// TestPageOfPluginsBuilds builds the module of deploy/docs/write-a-plugin.md as it stands, and has it check a file that
// names all of its types, and run its test.
func TestPageOfPluginsBuilds(t *testing.T) {
	folder := ownModule(t)
	for _, block := range namedBlock.FindAllStringSubmatch(readFile(t, "../../deploy/docs/write-a-plugin.md"), -1) {
		writeFile(t, filepath.Join(folder, block[1]), block[2])
	}
	writeFile(t, filepath.Join(folder, "families.yaml"), familiesText)
	for _, line := range []string{
		"go vet -mod=mod .", "go build -mod=mod -o my-picker .", "go test -mod=mod .",
		"./my-picker config check config.yaml", "./my-picker config check families.yaml",
		"./my-picker plugins example.com/labelled",
	} {
		args := strings.Fields(line)
		run := exec.CommandContext(t.Context(), args[0], args[1:]...)
		run.Dir, run.Env = folder, append(os.Environ(), "GOWORK=off")
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
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

// remembering returns a stack of servers each of which says its address. The pool has them, and Envoy knows of these.
func remembering(t *testing.T, envoyFile string, servers, known []string, plugins string) *stack {
	t.Helper()
	s := &stack{servers: servers, picker: serve(t, servers, "--config-text",
		"apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n"+plugins)}
	s.picker.pooled(t, len(servers))
	s.envoy = startEnvoy(t, envoyFile, s.picker.grpcPort, known)
	s.envoy.asksPicker(t)
	s.client = newClient(s.envoy.url)
	t.Cleanup(s.client.close)
	return s
}

// askIn sends a request of a session, and returns which server served it.
func (s *stack) askIn(t *testing.T, session, prompt string) string {
	t.Helper()
	a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", chatBody(model, prompt, 2, false),
		http.Header{"X-Session-Id": {session}})
	if !a.whole() || a.header.Get("X-Session-Token") != "" {
		t.Fatalf("session %s: %s", session, a.String())
	}
	return a.header.Get("X-Server")
}

// TestEnvoyKeepsSessionsWithAnID: requests with the same session id go to the same server, in both lanes, and to
// another one, again and again, once that server is gone.
func TestEnvoyKeepsSessionsWithAnID(t *testing.T) {
	for name, plugin := range map[string]string{
		"filter": "- {type: random-picker}\n- type: session-affinity-filter\n  parameters: {strategy: session_id}\n",
		"scorer": "- {type: max-score-picker}\n- type: session-affinity-scorer\n  parameters: {strategy: session_id}\n",
	} {
		for _, envoyFile := range []string{overrideHost, overrideHostFull} {
			t.Run(name+" "+envoyFile, func(t *testing.T) {
				servers := handlers(t, 4, mirror)
				s := remembering(t, envoyFile, servers, servers, plugin)
				first := map[string]string{}
				for i := range 20 {
					session := fmt.Sprintf("session-%d", i)
					first[session] = s.askIn(t, session, "hello")
				}
				gone := s.servers[3]
				s.keeps(t, first, "")
				if n := s.picker.metric("signalbox_memory_entries", `table="sessions"`); n != 20 {
					t.Errorf("%v sessions are kept, want 20", n)
				}
				s.picker.setEndpoints(t, s.servers[:3])
				s.picker.pooled(t, 3)
				moved := s.keeps(t, first, gone)
				if len(moved) == 0 {
					t.Errorf("of 20 sessions none was at one of four servers: %v", first)
				}
				s.keeps(t, moved, "")
			})
		}
	}
}

// keeps asks three times in each session, and returns where those now are whose server is gone. All others must have
// stayed.
func (s *stack) keeps(t *testing.T, sessions map[string]string, gone string) (moved map[string]string) {
	t.Helper()
	moved = map[string]string{}
	for session, server := range sessions {
		for range 3 {
			switch got := s.askIn(t, session, "hello"); {
			case server != gone && got != server:
				t.Errorf("%s went to %s, before to %s", session, got, server)
			case server == gone && got == gone:
				t.Errorf("%s went to %s, which is gone", session, got)
			case server == gone && moved[session] != "" && got != moved[session]:
				t.Errorf("%s moved from %s to %s and to %s", session, server, moved[session], got)
			case server == gone:
				moved[session] = got
			}
		}
	}
	return moved
}

// TestEnvoyMovesASessionWhoseServerDied: a server that answers no more, and that the pool still has, loses its sessions
// once it is ejected.
func TestEnvoyMovesASessionWhoseServerDied(t *testing.T) {
	for _, plugin := range []string{"session-affinity-filter", "session-affinity-scorer"} {
		t.Run(plugin, func(t *testing.T) {
			servers := handlers(t, 2, mirror)
			own := httptest.NewServer(http.HandlerFunc(mirror))
			defer own.Close()
			first := own.Listener.Addr().String() // at first the only one, so that the session begins there
			s := remembering(t, overrideHost, []string{first}, append(servers, first), "- {type: max-score-picker, "+
				"parameters: {maxNumOfEndpoints: 1}}\n- type: "+plugin+"\n  parameters: {strategy: session_id}\n")
			died := s.askIn(t, "a", "hello")
			s.picker.setEndpoints(t, append(servers, died))
			s.picker.pooled(t, 3)
			if got := s.askIn(t, "a", "hello"); got != died {
				t.Fatalf("the session went to %s, before to %s", got, died)
			}
			own.Close()
			moved := ""
			eventually(t, 15*time.Second, "the session moves", func() bool {
				a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions",
					chatBody(model, "hello", 2, false), http.Header{"X-Session-Id": {"a"}})
				moved = a.header.Get("X-Server")
				return a.whole()
			})
			for range 5 {
				if got := s.askIn(t, "a", "hello"); got != moved || got == died {
					t.Errorf("the session went to %s, after it moved from %s to %s", got, died, moved)
				}
			}
		})
	}
}

// TestEnvoySpreadsColdPrompts: prompts of which no server holds the beginning go to the servers in turn, in both lanes.
func TestEnvoySpreadsColdPrompts(t *testing.T) {
	for _, envoyFile := range []string{overrideHost, overrideHostFull} {
		t.Run(envoyFile, func(t *testing.T) {
			servers := handlers(t, 4, mirror)
			s := remembering(t, envoyFile, servers, servers,
				"- {type: max-score-picker}\n- {type: no-hit-lru-scorer}\n")
			var order []string
			for i := range 12 {
				prompt := strings.Repeat(fmt.Sprintf("prompt %d ", i), 100)
				order = append(order, s.askIn(t, "", prompt))
			}
			seen := map[string]bool{}
			for i, server := range order {
				if seen[server] = true; i >= 4 && server != order[i-4] {
					t.Fatalf("the order of servers is %v, want the same four again and again", order)
				}
			}
			if len(seen) != 4 {
				t.Errorf("12 cold prompts went to %d servers, want 4: %v", len(seen), order)
			}
		})
	}
}
