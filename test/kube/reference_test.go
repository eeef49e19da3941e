package kube

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The reference tests its picker with an API server that has definitions of all its objects, with one that has them and
// a label selector in the pool's place, and with one that has none. Here are those cases, by the numbers of
// test/reference/README.md, which has all cases from files: the objects come from a kube-apiserver, and the pods' pages
// from servers at their addresses, which are 127.0.0.1 and so on, where the reference has 192.168.1.1 and no pages. The
// cases G are what of the conformance tests of the gateway API a picker can fail.

// fixturePool is the name of the InferencePool, and the label app of its pods.
const fixturePool = "vllm-qwen3-32b-pool"

const scored = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: prefix-cache-scorer}
- {type: lora-affinity-scorer}
- {type: openai-parser}
requestHandler: {parsers: [{pluginRef: openai-parser}]}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 1}
  - {pluginRef: kv-cache-utilization-scorer, weight: 1}
  - {pluginRef: prefix-cache-scorer, weight: 1}
  - {pluginRef: lora-affinity-scorer, weight: 1}
`

const unparsed = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: queue-scorer}, {type: kv-cache-utilization-scorer}, {type: passthrough-parser}]
requestHandler: {parsers: [{pluginRef: passthrough-parser}]}
`

const forGateways = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: header-based-testing-filter}, {type: destination-endpoint-served-verifier}, {type: random-picker}]
schedulingProfiles:
- {name: default, plugins: [{pluginRef: header-based-testing-filter}, {pluginRef: random-picker}]}
`

// calls is scored for vLLM's service for gRPC.
var calls = strings.ReplaceAll(scored, "openai-parser", "vllmgrpc-parser")

// shownLoad is what the page of a pod says.
type shownLoad struct {
	queue    int
	kv       float64
	adapters string
}

func (l shownLoad) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "vllm:num_requests_waiting %d\nvllm:num_requests_running 0\nvllm:kv_cache_usage_perc %g\n"+
		"vllm:lora_requests_info{max_lora=\"%d\",running_lora_adapters=%q,waiting_lora_adapters=\"\"} 1\n", l.queue,
		l.kv, strings.Count(l.adapters, ",")+1, l.adapters)
}

// pages has pods serve their pages at 127.0.0.1, 127.0.0.2 and so on, all at one port, which it returns.
func pages(t *testing.T, all []shownLoad) (port int) {
	t.Helper()
	var listeners []net.Listener
	eventually(t, "a port that is free at each address", func() (free bool) {
		listeners, free = listenAtAll(t, len(all))
		return free
	})
	for i, l := range all {
		server := &httptest.Server{
			Listener: listeners[i], Config: &http.Server{Handler: l, ReadHeaderTimeout: time.Minute},
		}
		server.Start()
		t.Cleanup(server.Close)
		port = listeners[i].Addr().(*net.TCPAddr).Port
	}
	return port
}

// listenAtAll listens at the addresses of so many pods, at one port, unless another process has it at one of them.
func listenAtAll(t *testing.T, pods int) (all []net.Listener, free bool) {
	t.Helper()
	port, err := quietPort()
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", address(i), port))
		if err != nil {
			for _, l := range all {
				l.Close()
			}
			return nil, false
		}
		all = append(all, l)
	}
	return all, true
}

// patient are flags for a picker whose pods have pages that never change: they count also if the machine is late.
var patient = []string{"--metrics-staleness-threshold", "1m"}

func address(pod int) string { return fmt.Sprintf("127.0.0.%d", pod+1) }

// objects creates the objectives and the rewrite of the reference's fixture.
func (s *space) objects() {
	s.t.Helper()
	pool := object{"group": poolGroup, "name": fixturePool}
	for name, priority := range map[string]any{
		"my-model": 2, "sql-lora": 2, "direct-model": 2, "sql-lora-sheddable": nil,
		"inference-objective-with-priority-4": 4,
	} {
		spec := object{"poolRef": pool}
		if priority != nil {
			spec["priority"] = priority
		}
		s.must(http.MethodPost, s.extra("llm-d.ai", "inferenceobjectives"), "", object{
			"apiVersion": "llm-d.ai/v1alpha2", "kind": "InferenceObjective", "metadata": object{"name": name},
			"spec": spec,
		})
	}
	s.must(http.MethodPost, s.extra("llm-d.ai", "inferencemodelrewrites"), "", object{
		"apiVersion": "llm-d.ai/v1alpha2", "kind": "InferenceModelRewrite", "metadata": object{"name": "rewrite"},
		"spec": object{"poolRef": pool, "rules": []object{{
			"matches": []object{{"model": object{"value": "model-to-be-rewritten"}}},
			"targets": []object{{"modelRewrite": "rewritten-model"}},
		}}},
	})
}

// body is that of a request for a completion.
func body(prompt, model string) string {
	return fmt.Sprintf(`{"max_tokens":100,"model":%q,"prompt":%q,"temperature":0}`, model, prompt)
}

// llm is a request for a model, by its objective, that is to be served as target.
func llm(prompt, model, target string) asked {
	return asked{headers: about(model, target), body: []string{body(prompt, model)}}
}

func about(objective, target string) []string {
	return []string{"hi: mom", "x-request-id: test-request-id", "x-llm-d-inference-objective: " + objective,
		"x-llm-d-model-name-rewrite: " + target}
}

// frame puts a message into the frame that gRPC has.
func frame(fields ...[]byte) string {
	message := slices.Concat(fields...)
	return string(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...))
}

func bytesField(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

func numberField(number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value)
}

// call is a call of a method of vLLM's service; without an objective "".
func call(method, objective string, pieces ...string) asked {
	headers := []string{":method: POST", ":path: /vllm.grpc.engine.VllmEngine/" + method, ":authority: models",
		"content-type: application/grpc", "te: trailers", "hi: mom"}
	if objective != "" {
		headers = append(headers, "x-llm-d-inference-objective: "+objective)
	}
	return asked{headers: headers, body: pieces}
}

func inTwo(text string) []string { return []string{text[:len(text)/2], text[len(text)/2:]} }

func (q asked) halved() asked {
	q.body = inTwo(q.body[0])
	return q
}

// of has the proxy name a subset: pods by their number.
func (q asked) of(pods ...int) asked {
	q.subset = []string{}
	for _, i := range pods {
		q.subset = append(q.subset, address(i))
	}
	return q
}

// labels are those of a request that counts.
func labels(model, target, priority string) []string {
	return []string{fmt.Sprintf("model_name=%q", model), fmt.Sprintf("target_model_name=%q", target),
		fmt.Sprintf("priority=%q", priority)}
}

// played is one case.
type played struct {
	config string // "" = scored
	pods   []shownLoad
	ports  int // of the pool, beyond the first, at which nothing serves a page
	ask    asked
	to     int      // the pod that is picked
	refuse string   // in place of a pick: answered.refused
	body   string   // that goes on
	counts []string // labels of the request's metric; nil = it is not looked at
	served bool     // the response names the server
	rule   string   // labels of the decision of a rewrite
	pool   bool     // not by labels: the case is about objects
}

var (
	near   = []shownLoad{{3, .2, ""}, {0, .1, ""}, {10, .2, ""}}
	lora   = []shownLoad{{0, .2, "foo,bar"}, {0, .1, "foo,sql-lora-1fdg2"}, {10, .2, "foo,bar"}}
	uneven = []shownLoad{{6, .2, "foo,bar,sql-lora-1fdg2"}, {0, .85, "foo"}, {10, .9, "foo"}}
)

func casesOfHTTP() map[string]played {
	const stranger, none = 98, "503 rejected-no-endpoints"
	sql, sqlBody := llm("test2", "sql-lora", "sql-lora-1fdg2"), body("test2", "sql-lora-1fdg2")
	counts := labels("sql-lora", "sql-lora-1fdg2", "2")
	return map[string]played{
		"A1 lower queue and cache": {pods: near, ask: llm("test1", "my-model", "my-model-12345"), to: 1,
			body: body("test1", "my-model-12345"), counts: labels("my-model", "my-model-12345", "2")},
		"A2 adapter, and a low queue": {pods: lora, ask: sql, to: 1, body: sqlBody, counts: counts},
		"A3 no pods, no body":         {ask: asked{headers: []string{"hi: mom"}}, refuse: none},
		"A4 no model": {pods: near, ask: asked{body: []string{`{"prompt":"hello world"}`}}, to: 1,
			body: `{"prompt":"hello world"}`},
		"A5 adapter beats cache": {pods: []shownLoad{{10, .2, "foo,bar"}, {10, .4, "foo,sql-lora-1fdg2"},
			{10, .3, "foo"}}, ask: sql, to: 1, body: sqlBody, counts: counts},
		"A6 passthrough": {config: unparsed, pods: near, ask: asked{headers: about("my-model", "my-model-12345"),
			body: []string{"passthrough-parser"}}, to: 1, body: "passthrough-parser", counts: labels("", "", "2")},
		"A7 nothing is shed": {pods: uneven, ask: sql, to: 0, body: sqlBody, counts: counts},
		"A8 no JSON": {pods: near, ask: asked{headers: about("my-model", "x"), body: []string{"no healthy upstream"}},
			refuse: "400 invalid-request"},
		"A9 body in two, no priority": {pods: []shownLoad{{4, .2, "foo,bar,sql-lora-1fdg3"},
			{4, .85, "foo,sql-lora-1fdg3"}}, ask: llm("test6", "sql-lora-sheddable", "sql-lora-1fdg3").halved(), to: 0,
			body: body("test6", "sql-lora-1fdg3"), counts: labels("sql-lora-sheddable", "sql-lora-1fdg3", "0")},
		"A10 subset, the best of three": {pods: lora, ask: sql.of(0, 1, 2), to: 1, body: sqlBody, counts: counts},
		"A11 subset of one":             {pods: lora, ask: sql.of(2), to: 2, body: sqlBody, counts: counts},
		"A12 subset of others":          {pods: lora, ask: sql.of(stranger), refuse: none},
		"A13 the model itself": {pods: []shownLoad{{4, .2, ""}},
			ask: llm("test6", "direct-model", "direct-model").halved(), to: 0, body: body("test6", "direct-model"),
			counts: labels("direct-model", "direct-model", "2")},
		"A14 rewrite by an object": {pods: []shownLoad{{}}, pool: true,
			rule: `model_name="model-to-be-rewritten",model_rewrite_name="rewrite",target_model="rewritten-model"`,
			ask:  asked{body: []string{body("test", "model-to-be-rewritten")}}, to: 0,
			body: body("test", "rewritten-model"), counts: labels("model-to-be-rewritten", "rewritten-model", "0")},
		"A15 no body": {pods: []shownLoad{{}}, ask: asked{headers: []string{"status: 200"}}, to: 0},
		"G1 header names the pod": {config: forGateways, pods: near, served: true,
			ask: asked{headers: []string{"test-epp-endpoint-selection: " + address(2)}}, to: 2},
		"G2 header names no pod": {config: forGateways, pods: near,
			ask: asked{headers: []string{"test-epp-endpoint-selection: 127.0.0.99"}}, refuse: none},
		"G3 ports of one pod": {config: forGateways, pods: []shownLoad{{}}, ports: 2, served: true,
			ask: asked{headers: []string{"test-epp-endpoint-selection: " + address(0)}}, to: 0},
	}
}

func casesOfCalls() map[string]played {
	const urgent, stranger, none = "inference-objective-with-priority-4", 98, "200 14 rejected-no-endpoints"
	prompt, tokens := frame(bytesField(3, []byte("test1"))), frame(bytesField(2, bytesField(2, []byte{1, 2, 3})))
	streamed := frame(bytesField(3, []byte("test1")), numberField(5, 1))
	all := map[string]played{
		"B1 generate":     {pods: near, ask: call("Generate", urgent, prompt), to: 1, body: prompt},
		"B2 embed":        {pods: near, ask: call("Embed", urgent, tokens), to: 1, body: tokens},
		"B3 a stream":     {pods: near, ask: call("Generate", urgent, streamed), to: 1, body: streamed},
		"B4 no objective": {pods: uneven, ask: call("Generate", "", prompt), to: 0, body: prompt},
		"B5 frame in two": {pods: uneven, ask: call("Generate", "", prompt).halved(), to: 0, body: prompt},
		"B6 no pods, no body": {
			ask: call("Generate", ""), refuse: none},
		"B7 subset, the best of three": {pods: near, ask: call("Generate", "", prompt).of(0, 1, 2), to: 1,
			body: prompt},
		"B8 subset of one":    {pods: near, ask: call("Generate", "", prompt).of(2), to: 2, body: prompt},
		"B9 subset of others": {pods: near, ask: call("Generate", "", prompt).of(stranger), refuse: none},
	}
	for name, tc := range all {
		tc.config = calls
		if tc.refuse == "" {
			tc.counts = labels("", "", "0")
		}
		if slices.Contains(tc.ask.headers, "x-llm-d-inference-objective: "+urgent) {
			tc.counts = labels("", "", "4")
		}
		all[name] = tc
	}
	return all
}

// The cases of the reference for requests, each with an InferencePool and its objects, and with a label selector.
func TestCasesOfTheReference(t *testing.T) {
	c := newCluster(t)
	if err := c.define("testdata/inferenceobjectives.yaml", "testdata/inferencemodelrewrites.yaml"); err != nil {
		t.Fatal(err)
	}
	for _, all := range []map[string]played{casesOfHTTP(), casesOfCalls()} {
		for name, tc := range all {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newSpace(t, c)
				port := tc.stage(s)
				tc.play(s.inFixture(tc.config, len(tc.pods)), port)
				if !tc.pool {
					tc.withoutObjects().play(s.byLabels(tc.config, len(tc.pods), tc.portsFrom(port)), port)
				}
			})
		}
	}
	responses(t, c)
}

// withoutObjects is the case for a picker that knows no objective: all requests have priority 0.
func (tc played) withoutObjects() played {
	tc.counts = slices.Clone(tc.counts)
	if len(tc.counts) > 0 {
		tc.counts[len(tc.counts)-1] = `priority="0"`
	}
	return tc
}

func (tc played) portsFrom(first int) []int {
	all := []int{first}
	for i := range tc.ports {
		all = append(all, first%60000+i+1)
	}
	return all
}

// stage creates the pods, the pool and the objects. It returns the port of the pods' pages.
func (tc played) stage(s *space) (port int) {
	port = max(1, pages(s.t, tc.pods))
	for i := range tc.pods {
		s.pod(fmt.Sprintf("pod-%d", i), address(i), map[string]string{"app": fixturePool}, nil)
	}
	pool := poolObject(poolGroup, fixturePool, tc.portsFrom(port)...)
	pool["spec"].(object)["selector"] = object{"matchLabels": object{"app": fixturePool}}
	s.must(http.MethodPost, s.pools(poolGroup), "", pool)
	s.objects()
	return port
}

// inFixture starts a picker of the pool, which knows its objects and has read the pages of its pods.
func (s *space) inFixture(config string, pods int) *picker {
	flags := s.inPool("--pool-name", fixturePool, "--config-text", orScored(config))
	p := startPicker(s.t, append(flags, patient...)...)
	p.ready(true)
	p.configured(`objective "inference-objective-with-priority-4", priority 4`, `objective "my-model", priority 2`,
		`objective "direct-model", priority 2`, `objective "sql-lora", priority 2`,
		`objective "sql-lora-sheddable", priority 0`, `rewrite   "rewrite"`)
	p.hasRead(config, pods)
	return p
}

// byLabels starts a picker of the same pods by their label.
func (s *space) byLabels(config string, pods int, ports []int) *picker {
	flags := []string{"--kubeconfig", s.kubeconfig(), "--pool-namespace", s.name, "--endpoint-selector",
		"app=" + fixturePool, "--config-text", orScored(config)}
	for _, port := range ports {
		flags = append(flags, "--endpoint-target-ports", fmt.Sprint(port))
	}
	p := startPicker(s.t, append(flags, patient...)...)
	p.ready(true)
	p.hasRead(config, pods)
	return p
}

func orScored(config string) string {
	if config == "" {
		return scored
	}
	return config
}

func (p *picker) hasRead(config string, pods int) {
	p.t.Helper()
	eventually(p.t, "every page was read", func() bool {
		return config == forGateways ||
			strings.Count(p.page("/metrics"), "\nllm_d_epp_per_endpoint_queue_size{") == pods
	})
}

func (tc played) play(p *picker, port int) {
	p.t.Helper()
	ask := tc.ask
	ask.subset = slices.Clone(ask.subset)
	for i := range ask.subset {
		ask.subset[i] += fmt.Sprint(":", port)
	}
	a := p.exchange(ask)
	if tc.refuse != "" || a.refused != "" {
		if a.refused != tc.refuse {
			p.t.Errorf("refused with %q, want %q", a.refused, tc.refuse)
		}
		return
	}
	first, _, _ := strings.Cut(a.picked, ",")
	if host, _, _ := strings.Cut(first, ":"); host != address(tc.to) || a.body != tc.body {
		p.t.Errorf("picked %q, and %s goes on; want %s and %s", a.picked, a.body, address(tc.to), tc.body)
	}
	if slices.Contains(ask.headers, "hi: mom") && a.sent.Get("hi") != "mom" {
		p.t.Error("the server does not get the client's header")
	}
	if tc.counts != nil {
		p.requestCounts(tc.counts)
	}
	if tc.rule != "" {
		p.counts("llm_d_epp_model_rewrite_decisions_total{"+tc.rule+"}", func(n float64) bool { return n == 1 })
	}
	if by := a.got.Get("x-conformance-test-served-endpoint"); tc.served && by != first {
		p.t.Errorf("the response names %q, want %q, which served", by, first)
	}
	if tc.ports > 0 {
		p.reaches(tc, port)
	}
}

// reaches asks until each port of a pod was picked.
func (p *picker) reaches(tc played, first int) {
	p.t.Helper()
	picked := map[string]bool{}
	eventually(p.t, "every port is picked", func() bool {
		to, _, _ := strings.Cut(p.exchange(tc.ask).picked, ",")
		picked[to] = true
		return len(picked) == tc.ports+1
	})
	if !picked[fmt.Sprintf("%s:%d", address(tc.to), first)] {
		p.t.Errorf("picked %v, want port %d among them", picked, first)
	}
}
