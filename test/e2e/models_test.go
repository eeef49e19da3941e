package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fleet is the model servers of TestEnvoyModelServers: real ones that run already, or simulated ones.
type fleet struct {
	servers  []string
	model    string
	adapters []string
	// no servers were given
	simulated bool
	stop      func(t *testing.T) // ends the first server under load; nil = it may not be ended
	start     func(t *testing.T) // starts it again, at the same address; nil = it cannot be started
}

// TestEnvoyModelServers runs against the vLLMs of $ENDPOINTS (host:port,host:port; IP addresses), or two simulated
// ones. $STOP is a shell command that ends the first of them; without it the given servers are left alone.
func TestEnvoyModelServers(t *testing.T) {
	seenElsewhere(t)
	t.Parallel() // it mostly waits
	f := newFleet(t)
	t.Logf("servers %v, model %s, adapters %v", f.servers, f.model, f.adapters)
	t.Run("serve", f.serve)
	t.Run("stream", f.stream)
	t.Run("prefix", f.keepsPrefixes)
	t.Run("adapters", f.keepsAdapters)
	t.Run("tokens", f.countsTokens)
	t.Run("file default", f.keepsPromptsByFile)
	t.Run("file sessions-lora", f.keepsSessionsByFile)
	t.Run("stop", f.losesOne) // the last, for it leaves a server less
}

// shell runs the command in a variable; nil = there is none.
func shell(variable string) func(t *testing.T) {
	command := os.Getenv(variable)
	if command == "" {
		return nil
	}
	return func(t *testing.T) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
}

// newFleet takes flags for simulated servers.
func newFleet(t *testing.T, more ...string) *fleet {
	t.Helper()
	f := &fleet{servers: strings.FieldsFunc(os.Getenv("ENDPOINTS"), func(r rune) bool { return r == ',' || r == ' ' })}
	f.stop, f.start = shell("STOP"), shell("START")
	if f.simulated = len(f.servers) == 0; f.simulated {
		flags := append(slices.Clone(slow), "--adapters", "adapter-a,adapter-b", "--prefill-rate", "20000")
		flags = append(flags, more...)
		at := append(flags[:len(flags):len(flags)], "--port", strconv.Itoa(freePorts(t, 1)[0]))
		first, address := simulatedProcess(t, 1, at...)
		f.servers = append(address, simulated(t, 1, flags...)...)
		f.stop = func(*testing.T) { first.kill() }
		f.start = func(t *testing.T) { first, _ = simulatedProcess(t, 1, at...) }
	}
	status, text := get("http://" + f.servers[0] + "/v1/models")
	var list struct {
		Data []struct{ ID, Parent string }
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Data) == 0 {
		t.Fatalf("model list of %s: status %d, %v in %.300q", f.servers[0], status, err, text)
	}
	for _, m := range list.Data {
		if m.Parent != "" {
			f.adapters = append(f.adapters, m.ID)
		} else if f.model == "" {
			f.model = m.ID
		}
	}
	return f
}

// ask is a chat request of an exact length: real models end when they like, unless they may not.
func (f *fleet) ask(s *stack, name, prompt string, tokens int, stream bool) answer {
	body := map[string]any{
		"model": name, "max_tokens": tokens, "ignore_eos": true,
		"messages": []map[string]string{{"role": "user", "content": prompt}},
	}
	if stream {
		body["stream"], body["stream_options"] = true, map[string]bool{"include_usage": true}
	}
	return s.client.post("/v1/chat/completions", mustJSON(body))
}

func (f *fleet) serve(t *testing.T) {
	s := startStack(t, f.servers)
	for path, body := range map[string]map[string]any{
		"/v1/chat/completions": {"messages": []map[string]string{{"role": "user", "content": "What is a signal box?"}}},
		"/v1/completions":      {"prompt": "Once upon a time"},
	} {
		body["model"], body["max_tokens"], body["ignore_eos"] = f.model, 8, true
		a := s.client.post(path, mustJSON(body))
		if !a.whole() || !strings.Contains(a.body, `"completion_tokens":8`) {
			t.Errorf("%s: %s", path, a.String())
		}
	}
	if a := s.client.do(t.Context(), http.MethodGet, "/v1/models", "", nil); a.status != http.StatusOK ||
		!strings.Contains(a.body, f.model) {
		t.Error(a.String())
	}
	if s.picker.picks() != 3 {
		t.Errorf("%d picks for 3 requests", s.picker.picks())
	}
	s.picker.idle(t)
}

func (f *fleet) stream(t *testing.T) {
	s := startStack(t, f.servers)
	const clients, each, tokens = 8, 4, 16
	work := make(chan answer)
	for i := range clients {
		go func() {
			for n := range each {
				work <- f.ask(s, f.model, fmt.Sprintf("Client %d, question %d: tell me a story.", i, n), tokens, true)
			}
		}()
	}
	for range clients * each {
		a := <-work
		usage := slices.ContainsFunc(a.events, func(e event) bool {
			return strings.Contains(e.data,
				fmt.Sprintf(`"completion_tokens":%d`, tokens))
		})
		if !a.whole() || len(a.events) < 3 || !usage {
			t.Errorf("%s; want events, the usage of %d tokens, and [DONE]", a.String(), tokens)
		}
	}
	if s.picker.picks() != clients*each {
		t.Errorf("%d picks for %d requests", s.picker.picks(), clients*each)
	}
	s.picker.idle(t)
}

// keepsPrefixes compares what the servers themselves count: the default against random picking, with other prompts.
func (f *fleet) keepsPrefixes(t *testing.T) {
	picked := f.hitRatio(t, "default")
	random := f.hitRatio(t, "random", "--config-text", pickerOnly("random-picker"))
	t.Logf("tokens found in the servers' prefix caches: %.0f %%, with random picking %.0f %%", 100*picked, 100*random)
	if picked < 0.6 || picked <= random {
		t.Errorf("%.2f of the tokens were cached, with random picking %.2f; want 0.6 and more than that", picked,
			random)
	}
}

// hitRatio asks about six long texts, six times each, and reads how much of the prompts the servers had in their
// caches.
func (f *fleet) hitRatio(t *testing.T, name string, flags ...string) float64 {
	t.Helper()
	s := startStack(t, f.servers, flags...)
	const texts, rounds = 6, 6
	run := time.Now().UnixNano() // no text is like one of an earlier run
	count := func(series string) (sum float64) {
		for _, server := range f.servers {
			sum += seriesSum("http://"+server+"/metrics", series)
		}
		return sum
	}
	hits, queries := count("vllm:prefix_cache_hits_total"), count("vllm:prefix_cache_queries_total")
	for round := range rounds {
		for text := range texts {
			about := fmt.Sprintf("%s %d of %d: the line is clear, the points are set, the signal is green. ", name,
				text, run)
			a := f.ask(s, f.model, strings.Repeat(about, 16)+fmt.Sprint("Question ", round), 4, false)
			if !a.whole() {
				t.Fatal(a.String())
			}
		}
	}
	if got := count("vllm:prefix_cache_queries_total") - queries; got > 0 {
		return (count("vllm:prefix_cache_hits_total") - hits) / got
	}
	t.Fatal("the servers count no prefix cache queries; are they vLLMs with a prefix cache?")
	return 0
}

// keepsAdapters: the requests of an adapter go to the server that has it in a slot, if it is not to spread.
func (f *fleet) keepsAdapters(t *testing.T) {
	if len(f.adapters) == 0 {
		t.Log("*** THE SERVERS LIST NO ADAPTERS: nothing was tested here. ***")
		return
	}
	const scorer = "- type: lora-affinity-scorer\n"
	config := pickerOnly("max-score-picker", "lora-affinity-scorer")
	config = strings.Replace(config, scorer, scorer+"  parameters: {hotEndpoints: 1}\n", 1)
	s := startStack(t, f.servers, "--config-text", config)
	adapter := f.adapters[0]
	if first := f.ask(s, adapter, "SELECT", 2, false); !first.whole() {
		t.Fatal(first.String())
	}
	busy := startLoad(1, func(int, int) answer { return f.ask(s, adapter, "A long story, please.", 64, true) })
	const row = 12 // by chance on one of two servers once in 2 048
	eventually(t, time.Minute, fmt.Sprintf("%d requests of an adapter in a row on one server", row), func() bool {
		hosts := map[string]bool{}
		names := make([]string, 0, row)
		for range row {
			a := f.ask(s, adapter, "SELECT", 2, false)
			if !a.whole() {
				t.Fatal(a.String())
			}
			names = append(names, a.name)
		}
		log := s.envoy.attemptsOf(t, names)
		for _, name := range names {
			hosts[log[name].Hosts] = true
		}
		return len(hosts) == 1
	})
	for _, a := range busy.stop() {
		if !a.whole() {
			t.Error(a.String())
		}
	}
}

// series is the same request several times.
type series struct {
	model, prompt string
	times         int
	header        string // each request has this header of the answer before; "" = none
}

// hosts sends a series, and returns how many requests each server answered.
func (s *stack) hosts(t *testing.T, of series) map[string]int {
	t.Helper()
	names, more, header := make([]string, 0, of.times), http.Header{}, of.header
	for n := range of.times {
		body := mustJSON(map[string]any{
			"model": of.model, "max_tokens": 4, "ignore_eos": true, "stream": n%2 == 0,
			"messages": []map[string]string{{"role": "user", "content": of.prompt}},
		})
		a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", body, more)
		if !a.whole() {
			t.Fatal(a.String())
		}
		if header != "" {
			if a.header.Get(header) == "" {
				t.Fatalf("no %s in %s", header, a.String())
			}
			more = http.Header{header: {a.header.Get(header)}}
		}
		names = append(names, a.name)
		s.picker.idle(t)
	}
	log, count := s.envoy.attemptsOf(t, names), map[string]int{}
	for _, name := range names {
		count[log[name].Hosts]++
	}
	return count
}

// keepsPromptsByFile runs the reference's default file: a prompt goes where it was read, in both lanes.
func (f *fleet) keepsPromptsByFile(t *testing.T) {
	run := time.Now().UnixNano()
	for lane, bootstrap := range map[string]string{"light": overrideHost, "full": overrideHostFull} {
		s := startStackWith(t, bootstrap, f.servers, "--config-text", readFile(t, "testdata/run/default.yaml"))
		s.picker.sampled(t, len(f.servers))
		all := map[string]int{}
		for text := range 6 {
			prompt := strings.Repeat(fmt.Sprintf("%s, text %d of %d: the line is clear. ", lane, text, run), 24)
			hosts := s.hosts(t, series{model: f.model, prompt: prompt, times: 6})
			if len(hosts) != 1 {
				t.Errorf("%s: requests with one prompt went to %v", lane, hosts)
			}
			for host, n := range hosts {
				all[host] += n
			}
		}
		t.Logf("%s: 6 prompts, 6 times each, went to %v", lane, all)
	}
}

// keepsSessionsByFile runs the file of sessions and adapters: each session stays at its server, in both lanes.
func (f *fleet) keepsSessionsByFile(t *testing.T) {
	for lane, bootstrap := range map[string]string{"light": overrideHost, "full": overrideHostFull} {
		s := startStackWith(t, bootstrap, f.servers, "--config-text", readFile(t, "testdata/run/sessions-lora.yaml"))
		s.picker.sampled(t, len(f.servers))
		for _, model := range append([]string{f.model}, f.adapters...) {
			t.Logf("%s, %s: 6 sessions of 3 turns went to %v", lane, model, s.sessions(t, model))
		}
	}
}

// sessions runs six sessions of three turns, each of which stays at one server, and returns the turns of each server.
func (s *stack) sessions(t *testing.T, model string) map[string]int {
	t.Helper()
	all := map[string]int{}
	for range 6 {
		hosts := s.hosts(t, series{model: model, prompt: "hello", times: 3, header: "X-Session-Token"})
		if len(hosts) != 1 {
			t.Errorf("%s: the turns of a session went to %v", model, hosts)
		}
		for host, n := range hosts {
			all[host] += n
		}
	}
	return all
}

// losesOne: the first server ends under load; only what had been sent to it may fail.
func (f *fleet) losesOne(t *testing.T) {
	if f.stop == nil {
		t.Log("*** NO STOP COMMAND: no server was stopped. ***")
		return
	}
	s := startStack(t, f.servers)
	const clients = 8
	work := startLoad(clients, func(client, n int) answer {
		return f.ask(s, f.model, fmt.Sprintf("client %d, question %d", client, n), 16, true)
	})
	eventually(t, time.Minute, "requests are served", func() bool { return work.count() >= 4*clients })
	f.stop(t)
	stopped := work.count()
	eventually(t, time.Minute, "clients go on", func() bool { return work.count() > stopped+6*clients })
	onlySentOnesFailed(t, s, work.stop(), f.servers[0], clients)
}

// pickerOnly is a configuration of one picker and these scorers.
func pickerOnly(picker string, scorers ...string) string {
	var plugins, refs strings.Builder
	for _, p := range append(scorers, picker) {
		fmt.Fprintf(&plugins, "- type: %s\n", p)
		fmt.Fprintf(&refs, "  - pluginRef: %s\n", p)
	}
	return "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n" + plugins.String() +
		"schedulingProfiles:\n- name: default\n  plugins:\n" + refs.String()
}
