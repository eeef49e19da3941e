package kube

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// The reference tests its picker with an API server that has definitions of all its objects. Here are those cases, by
// the numbers of test/reference/README.md: the objects come from a kube-apiserver, and the pods' pages from servers at
// their addresses. test/reference has all cases, from files. The cases G are what of the conformance tests of the
// gateway API a picker can fail.

const scored = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: prefix-cache-scorer}
- {type: lora-affinity-scorer}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 1}
  - {pluginRef: kv-cache-utilization-scorer, weight: 1}
  - {pluginRef: prefix-cache-scorer, weight: 1}
  - {pluginRef: lora-affinity-scorer, weight: 1}
`

const forGateways = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: header-based-testing-filter}, {type: destination-endpoint-served-verifier}, {type: random-picker}]
schedulingProfiles:
- {name: default, plugins: [{pluginRef: header-based-testing-filter}, {pluginRef: random-picker}]}
`

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
	for i, l := range all {
		at := fmt.Sprintf("%s:%d", address(i), port)
		listener, err := net.Listen("tcp", at)
		if err != nil {
			t.Skipf("another process has %s: %v", at, err) //nolint:forbidigo // a port is not free everywhere
		}
		server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: l, ReadHeaderTimeout: time.Minute}}
		server.Start()
		t.Cleanup(server.Close)
		port = listener.Addr().(*net.TCPAddr).Port
	}
	return port
}

func address(pod int) string { return fmt.Sprintf("127.0.0.%d", pod+1) }

// asked is a request, and what becomes of it.
type asked struct {
	headers []string // "name: value", beside those that each request has
	body    []string // pieces of the request's body; nil = it has none
	subset  []string // addresses of the proxy; nil = it names none
}

// answered is what the picker said to a request and to its response.
type answered struct {
	destinations, body string
	status             int    // 200, or that of a refusal
	reason             string // of a refusal
	served             string // the header of the response by which conformance tests know who served
}

// exchange has a request picked, and its response served by the first destination.
func (p *picker) exchange(q asked) (a answered) {
	p.t.Helper()
	stream, err := extprocv3.NewExternalProcessorClient(p.grpc).Process(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	tell := func(m *extprocv3.ProcessingRequest) {
		if err := stream.Send(m); err != nil {
			p.t.Fatal(err)
		}
	}
	method := "POST"
	if q.body == nil {
		method = "GET"
	}
	tell(requestHeaders(q, method))
	for i, piece := range q.body {
		tell(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: []byte(piece), EndOfStream: i == len(q.body)-1}}})
	}
	a.status = http.StatusOK
	for a.destinations == "" || q.body != nil && a.body == "" {
		m, err := stream.Recv()
		if err != nil {
			p.t.Fatal(err)
		}
		if refused := m.GetImmediateResponse(); refused != nil {
			a.status, a.reason = int(refused.GetStatus().GetCode()), refused.GetHeaders().String()
			return a
		}
		if to := headerIn(m.GetRequestHeaders().GetResponse(), "x-gateway-destination-endpoint"); to != "" {
			a.destinations = to
		}
		a.body += string(m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody())
	}
	first, _, _ := strings.Cut(a.destinations, ",")
	tell(&extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{
			Headers: headersOf(":status: 200"), EndOfStream: true}},
		MetadataContext: metadata("envoy.lb", "x-gateway-destination-endpoint-served", structpb.NewStringValue(first)),
	})
	for {
		m, err := stream.Recv()
		if err != nil {
			p.t.Fatal(err)
		}
		if m.GetResponseHeaders() != nil {
			a.served = headerIn(m.GetResponseHeaders().GetResponse(), "x-conformance-test-served-endpoint")
			_ = stream.CloseSend() // all that matters was said
			return a
		}
	}
}

func requestHeaders(q asked, method string) *extprocv3.ProcessingRequest {
	const mode = filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	m := &extprocv3.ProcessingRequest{
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: mode, ResponseBodyMode: mode},
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
			Headers: headersOf(append([]string{":method: " + method, ":path: /v1/completions", ":authority: x",
				"content-type: application/json"}, q.headers...)...), EndOfStream: q.body == nil}},
	}
	if q.subset != nil {
		var hosts []*structpb.Value
		for _, s := range q.subset {
			hosts = append(hosts, structpb.NewStringValue(s))
		}
		m.MetadataContext = metadata("envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset",
			structpb.NewListValue(&structpb.ListValue{Values: hosts}))
	}
	return m
}

func metadata(namespace, key string, value *structpb.Value) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		namespace: {Fields: map[string]*structpb.Value{key: value}},
	}}
}

func headersOf(all ...string) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	for _, h := range all {
		i := strings.Index(h[1:], ":") + 1
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: h[:i], RawValue: []byte(strings.TrimSpace(h[i+1:]))})
	}
	return m
}

func headerIn(c *extprocv3.CommonResponse, name string) string {
	for _, h := range c.GetHeaderMutation().GetSetHeaders() {
		if h.GetHeader().GetKey() == name {
			return string(h.GetHeader().GetRawValue())
		}
	}
	return ""
}

// objects creates the objectives and the rewrite of the reference's fixture.
func (s *space) objects() {
	s.t.Helper()
	for name, priority := range map[string]any{
		"my-model": 2, "sql-lora": 2, "direct-model": 2, "sql-lora-sheddable": nil,
		"inference-objective-with-priority-4": 4,
	} {
		spec := object{"poolRef": object{"name": "llama"}}
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
		"spec": object{"poolRef": object{"name": "llama"}, "rules": []object{{
			"matches": []object{{"model": object{"value": "model-to-be-rewritten"}}},
			"targets": []object{{"modelRewrite": "rewritten-model"}},
		}}},
	})
}

// completion is a request for a model, by its objective, that is to be served as target; "" = no header says so.
func completion(objective, model, target string) asked {
	q := asked{body: []string{`{"max_tokens":100,"model":"` + model + `","prompt":"test"}`}}
	if objective != "" {
		q.headers = []string{"x-llm-d-inference-objective: " + objective, "x-llm-d-model-name-rewrite: " + target}
	}
	return q
}

func halves(q asked) asked {
	whole := q.body[0]
	q.body = []string{whole[:len(whole)/2], whole[len(whole)/2:]}
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

// played is one case.
type played struct {
	config string
	pods   []shownLoad
	ports  int // of the pool, beyond the first, at which nothing serves a page
	ask    asked
	to     string // address of the pod that is picked; "" = 503
	model  string // in the body that goes on
	label  string // priority of the request's metric; "" = the metric is not looked at
	served bool   // the response names the server
}

// The cases of the reference with definitions of its objects.
func TestCasesOfTheReference(t *testing.T) {
	c := newCluster(t)
	if err := c.define("testdata/inferenceobjectives.yaml"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.do(http.MethodGet, definitions+"/inferencemodelrewrites.llm-d.ai", "", nil); err != nil {
		loose := looseDefinition("llm-d.ai", "InferenceModelRewrite", "inferencemodelrewrites")
		if err := c.defineOne("", loose, "v1alpha2"); err != nil {
			t.Fatal(err)
		}
	}
	near := []shownLoad{{3, .2, ""}, {0, .1, ""}, {10, .2, ""}}
	lora := []shownLoad{{0, .2, "foo,bar"}, {0, .1, "foo,sql-lora-1fdg2"}, {10, .2, "foo,bar"}}
	sql := completion("sql-lora", "sql-lora", "sql-lora-1fdg2")
	shed := completion("sql-lora-sheddable", "sql-lora-sheddable", "sql-lora-1fdg3")
	for name, tc := range map[string]played{
		"A1 lower queue and cache": {scored, near, 0, completion("my-model", "my-model", "my-model-12345"), address(1),
			"my-model-12345", "2", false},
		"A2 adapter, and a low queue": {scored, lora, 0, sql, address(1), "sql-lora-1fdg2", "2", false},
		"A3 no pods, no body":         {scored, nil, 0, asked{}, "", "", "", false},
		"A5 adapter beats cache": {scored,
			[]shownLoad{{10, .2, "foo,bar"}, {10, .4, "foo,sql-lora-1fdg2"}, {10, .3, "foo"}}, 0, sql, address(1),
			"sql-lora-1fdg2", "2", false},
		"A7 nothing is shed": {scored,
			[]shownLoad{{6, .2, "foo,bar,sql-lora-1fdg2"}, {0, .85, "foo"}, {10, .9, "foo"}}, 0, sql, address(0),
			"sql-lora-1fdg2", "2", false},
		"A9 body in two, no priority": {scored,
			[]shownLoad{{4, .2, "foo,bar,sql-lora-1fdg3"}, {4, .85, "foo,sql-lora-1fdg3"}}, 0, halves(shed), address(0),
			"sql-lora-1fdg3", "0", false},
		"A10 subset, the best of three": {scored, lora, 0, sql.of(0, 1, 2), address(1), "sql-lora-1fdg2", "2", false},
		"A11 subset of one":             {scored, lora, 0, sql.of(2), address(2), "sql-lora-1fdg2", "2", false},
		"A12 subset of others":          {scored, lora, 0, sql.of(98), "", "", "", false},
		"A13 the model itself": {scored, []shownLoad{{4, .2, ""}}, 0,
			halves(completion("direct-model", "direct-model", "direct-model")), address(0), "direct-model", "2", false},
		"A14 rewrite by an object": {scored, []shownLoad{{}}, 0, completion("", "model-to-be-rewritten", ""),
			address(0), "rewritten-model", "0", false},
		"B1 priority 4": {scored, near, 0, completion("inference-objective-with-priority-4", "m", "m"), address(1), "m",
			"4", false},
		"G1 header names the pod": {forGateways, near, 0,
			asked{headers: []string{"test-epp-endpoint-selection: " + address(2)}}, address(2), "", "", true},
		"G2 header names no pod": {forGateways, near, 0,
			asked{headers: []string{"test-epp-endpoint-selection: 127.0.0.99"}}, "", "", "", false},
		"G3 ports of one pod": {forGateways, []shownLoad{{}}, 2,
			asked{headers: []string{"test-epp-endpoint-selection: " + address(0)}}, address(0), "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.play(newSpace(t, c))
		})
	}
}

func (tc played) play(s *space) {
	t := s.t
	port := max(1, pages(t, tc.pods))
	ports := []int{port}
	for i := range tc.ports {
		ports = append(ports, port%60000+i+1)
	}
	for i := range tc.pods {
		s.pod(fmt.Sprintf("pod-%d", i), address(i), vllm, nil)
	}
	s.pool(ports...)
	s.objects()
	p := startPicker(t, s.inPool("--config-text", tc.config)...)
	p.ready(true)
	p.configured(`objective "inference-objective-with-priority-4", priority 4`, `objective "my-model", priority 2`,
		`objective "direct-model", priority 2`, `objective "sql-lora", priority 2`,
		`objective "sql-lora-sheddable", priority 0`, `rewrite   "rewrite"`)
	eventually(t, "every page was read", func() bool {
		return tc.config != scored ||
			strings.Count(p.page("/metrics"), "\nllm_d_epp_per_endpoint_queue_size{") == len(tc.pods)
	})
	for i := range tc.ask.subset {
		tc.ask.subset[i] += fmt.Sprint(":", port)
	}
	a := p.exchange(tc.ask)
	first, _, _ := strings.Cut(a.destinations, ",")
	host, _, _ := strings.Cut(first, ":")
	if tc.to == "" && (a.status != http.StatusServiceUnavailable || !strings.Contains(a.reason, "rejected-")) ||
		host != tc.to {
		t.Errorf("picked %q, %d %s; want %q, or 503 with a reason", a.destinations, a.status, a.reason, tc.to)
	}
	if tc.model != "" && !strings.Contains(a.body, `"`+tc.model+`"`) {
		t.Errorf("the body that goes on is %s, want the model %s", a.body, tc.model)
	}
	if tc.label != "" && !strings.Contains(p.page("/metrics"), `priority="`+tc.label+`"`) {
		t.Errorf("no request of priority %s is counted", tc.label)
	}
	if tc.served && a.served != first {
		t.Errorf("the response names %q, want %q, which served", a.served, first)
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
		to, _, _ := strings.Cut(p.exchange(tc.ask).destinations, ",")
		picked[to] = true
		return len(picked) == tc.ports+1
	})
	if !picked[fmt.Sprintf("%s:%d", tc.to, first)] {
		p.t.Errorf("picked %v, want port %d among them", picked, first)
	}
}

// Definitions of a file come in the place of ours, which count where the file has none.
func TestDefinitionsOfAFile(t *testing.T) {
	text, err := os.ReadFile("testdata/inferencepools.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "published.yaml")
	changed := strings.Replace(string(text), "unapproved, for tests", "unapproved, of a file", 1)
	if err := os.WriteFile(file, []byte("---\n"+changed+"---\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := *crds
	*crds = file
	t.Cleanup(func() { *crds = before })
	c := newCluster(t)
	if err := c.define("testdata/inferenceobjectives.yaml"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"inferencepools.inference.networking.k8s.io": "unapproved, of a file", "inferenceobjectives.llm-d.ai": "",
	} {
		made, err := c.do(http.MethodGet, definitions+"/"+name, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		notes, _ := made["metadata"].(map[string]any)["annotations"].(map[string]any)
		if got, _ := notes["api-approved.kubernetes.io"].(string); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
