package reference

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// fixture is the configuration of the reference's cases: what its objects of Kubernetes say stands in the file.
const fixture = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: lora-affinity-scorer
- type: openai-parser
requestHandler: {parsers: [{pluginRef: openai-parser}]}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 1}
  - {pluginRef: kv-cache-utilization-scorer, weight: 1}
  - {pluginRef: prefix-cache-scorer, weight: 1}
  - {pluginRef: lora-affinity-scorer, weight: 1}
` + objects

const objects = `objectives:
- {name: my-model, priority: 2}
- {name: sql-lora, priority: 2}
- {name: direct-model, priority: 2}
- {name: sql-lora-sheddable}
- {name: inference-objective-with-priority-4, priority: 4}
modelRewrites:
- name: rewrite
  rules:
  - matches: [{model: {value: model-to-be-rewritten}}]
    targets: [{modelRewrite: rewritten-model, weight: 1}]
`

const opaque = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: passthrough-parser
requestHandler: {parsers: [{pluginRef: passthrough-parser}]}
` + objects

// body is that of a request for a completion.
func body(prompt, model string) string {
	return fmt.Sprintf(`{"max_tokens":100,"model":%q,"prompt":%q,"temperature":0}`, model, prompt)
}

// llm is a request for a model, by its objective, that is to be served as target.
func llm(prompt, model, target string) request {
	return request{headers: about(model, target), chunks: []string{body(prompt, model)}}
}

func about(objective, target string) []string {
	return []string{"hi: mom", "x-request-id: test-request-id", "x-llm-d-inference-objective: " + objective,
		"x-llm-d-model-name-rewrite: " + target}
}

// halved cuts the body of a request in two.
func halved(r request) request {
	whole := r.chunks[0]
	r.chunks = []string{whole[:len(whole)/2], whole[len(whole)/2:]}
	return r
}

// near is where the second pod is the best.
var near = []pod{{queue: 3, kv: .2}, {queue: 0, kv: .1}, {queue: 10, kv: .2}}

// TestHTTP plays requests, each with the model servers that its case wants.
func TestHTTP(t *testing.T) {
	const stranger = 99 // stands for an address that is none of a pod
	loaded := []pod{{queue: 0, kv: .2, adapters: []string{"foo"}}, {queue: 0, kv: .1,
		adapters: []string{"foo", "sql-lora-1fdg2"}}, {queue: 10, kv: .2, adapters: []string{"foo"}}}
	for name, tc := range map[string]exchangeCase{
		"A1 lower queue and cache": {pods: near, ask: llm("test1", "my-model", "my-model-12345"), want: 1,
			body: body("test1", "my-model-12345"), counts: labels("my-model", "my-model-12345", "2")},
		"A2 adapter, and a low queue": {pods: []pod{{kv: .2, adapters: []string{"foo", "bar"}},
			{kv: .1, adapters: []string{"foo", "sql-lora-1fdg2"}},
			{queue: 10, kv: .2, adapters: []string{"foo", "bar"}}},
			ask: llm("test2", "sql-lora", "sql-lora-1fdg2"), want: 1, body: body("test2", "sql-lora-1fdg2"),
			counts: labels("sql-lora", "sql-lora-1fdg2", "2")},
		"A3 no pods, no body": {ask: request{headers: []string{"content-type: application/json"}},
			refuse: outcome{status: 503, reason: "rejected-no-endpoints"}},
		"A4 D89 no model": {pods: near, ask: request{chunks: []string{`{"prompt":"hello world"}`}}, want: 1,
			body: `{"prompt":"hello world"}`},
		"A5 adapter beats cache": {pods: []pod{{queue: 10, kv: .2, adapters: []string{"foo", "bar"}},
			{queue: 10, kv: .4, adapters: []string{"foo", "sql-lora-1fdg2"}},
			{queue: 10, kv: .3, adapters: []string{"foo"}}}, ask: llm("test3", "sql-lora", "sql-lora-1fdg2"), want: 1,
			body: body("test3", "sql-lora-1fdg2"), counts: labels("sql-lora", "sql-lora-1fdg2", "2")},
		"A6 passthrough": {config: opaque, pods: near, ask: request{headers: about("my-model", "my-model-12345"),
			chunks: []string{"passthrough-parser"}}, want: 1, body: "passthrough-parser", counts: labels("", "", "2")},
		"A7 nothing is shed": {pods: []pod{{queue: 6, kv: .2, adapters: []string{"foo", "bar", "sql-lora-1fdg2"}},
			{kv: .85, adapters: []string{"foo"}}, {queue: 10, kv: .9, adapters: []string{"foo"}}},
			ask: llm("test4", "sql-lora", "sql-lora-1fdg2"), want: 0, body: body("test4", "sql-lora-1fdg2")},
		"A8 no JSON": {pods: near, ask: request{headers: about("my-model", "x"),
			chunks: []string{"no healthy upstream"}}, refuse: outcome{status: 400, reason: "invalid-request"}},
		"A9 body in two": {pods: []pod{{queue: 4, kv: .2, adapters: []string{"foo", "bar", "sql-lora-1fdg3"}},
			{queue: 4, kv: .85, adapters: []string{"foo", "sql-lora-1fdg3"}}},
			ask: halved(llm("test6", "sql-lora-sheddable", "sql-lora-1fdg3")), want: 0,
			body: body("test6", "sql-lora-1fdg3"), counts: labels("sql-lora-sheddable", "sql-lora-1fdg3", "0")},
		"A10 subset, the best of three": {pods: loaded, subset: []int{0, 1, 2},
			ask: llm("test2", "sql-lora", "sql-lora-1fdg2"), want: 1, body: body("test2", "sql-lora-1fdg2")},
		"A11 subset of one": {pods: loaded, subset: []int{2}, ask: llm("test2", "sql-lora", "sql-lora-1fdg2"), want: 2,
			body: body("test2", "sql-lora-1fdg2")},
		"A12 D47 D92 subset of others": {pods: loaded, subset: []int{stranger},
			ask:    llm("test2", "sql-lora", "sql-lora-1fdg2"),
			refuse: outcome{status: 503, reason: "rejected-no-endpoints"}},
		"A13 the model itself": {pods: []pod{{queue: 4, kv: .2}},
			ask:  halved(llm("test6", "direct-model", "direct-model")),
			want: 0, body: body("test6", "direct-model"), counts: labels("direct-model", "direct-model", "2")},
		"A14 rewrite": {pods: []pod{{}}, ask: request{headers: []string{"hi: mom"},
			chunks: []string{body("test", "model-to-be-rewritten")}}, want: 0, body: body("test", "rewritten-model"),
			counts: labels("model-to-be-rewritten", "rewritten-model", "0")},
		"A15 no body": {pods: []pod{{}}, ask: request{headers: []string{":method: GET", ":path: /v1/models",
			"content-type: application/json", "status: 200"}}, want: 0},
	} {
		t.Run(name, tc.play)
	}
}

// exchangeCase is a request, what Signalbox has and knows when it comes, and what becomes of it.
type exchangeCase struct {
	config string // "" = fixture
	pods   []pod
	ask    request
	subset []int // pods by their index
	want   int   // the pod that is picked
	body   string
	refuse outcome // in place of a pick
	counts []string
}

func (tc exchangeCase) play(t *testing.T) {
	t.Parallel()
	config := fixture
	if tc.config != "" {
		config = tc.config
	}
	p := setup{config: config, pods: tc.pods}.serve(t)
	if got := int(p.metric(t, "llm_d_epp_ready_endpoints")); got != len(tc.pods) {
		t.Errorf("%d endpoints are ready, want %d", got, len(tc.pods))
	}
	for _, i := range tc.subset {
		address := "192.0.2.99:8000"
		if i < len(p.pods) {
			address = p.pods[i]
		}
		tc.ask.subset = append(tc.ask.subset, address)
	}
	s := p.open(t)
	got := s.ask(tc.ask)
	if tc.refuse.status != 0 {
		got.refused = ""
		if !reflect.DeepEqual(got, tc.refuse) {
			t.Errorf("got %+v, want %+v", got, tc.refuse)
		}
		return
	}
	if at := slices.Index(p.pods, got.picked); at != tc.want || got.body != tc.body {
		t.Errorf("pod %d, body %s, refused %q; want pod %d, body %s", at, got.body, got.refused, tc.want, tc.body)
	}
	if slices.Contains(tc.ask.headers, "hi: mom") && got.sent.Get("hi") != "mom" {
		t.Error("the server does not get the client's header")
	}
	s.done(got.picked)
	if tc.counts != nil {
		p.eventually(t, strings.Join(tc.counts, ","), func() bool {
			return p.metric(t, "llm_d_epp_request_total", tc.counts...) == 1
		})
	}
}

// labels are those of a request that counts.
func labels(model, target, priority string) []string {
	return []string{fmt.Sprintf("model_name=%q", model), fmt.Sprintf("target_model_name=%q", target),
		fmt.Sprintf("priority=%q", priority)}
}

// TestHTTPResponses plays responses.
func TestHTTPResponses(t *testing.T) {
	t.Parallel()
	p := setup{config: fixture, pods: []pod{{}}}.serve(t)
	const usage = `{"usage":{"prompt_tokens":7,"total_tokens":17,"completion_tokens":10}}`
	for name, tc := range map[string]struct {
		kind   string
		chunks []string
		want   []string
		tokens float64
	}{
		"A16 JSON in two": {"application/json", []string{`{"max_tokens":100,"model":"sql-lo`, `ra-1fdg3"}`},
			[]string{`{"max_tokens":100,"model":"sql-lo`, `ra-1fdg3"} END`}, 0},
		"A17 no JSON": {"application/json", []string{"no healthy upstream"}, []string{"no healthy upstream END"}, 0},
		"A18 an empty end": {"application/json", []string{`{"model":"sql-lora-1fdg3"}`, ""},
			[]string{`{"model":"sql-lora-1fdg3"}`, " END"}, 0},
		"A19 events": {"text/event-stream", []string{"data: {}", "data: " + usage + "\ndata: [DONE]", ""},
			[]string{"data: {}", "data: " + usage + "\ndata: [DONE]", " END"}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			before := p.metric(t, "llm_d_epp_request_input_tokens_sum")
			counted := p.metric(t, "llm_d_epp_request_total")
			s := p.open(t)
			got := s.answer(s.ask(llm("test", "my-model", "my-model")).picked,
				reply{headers: []string{"content-type: " + tc.kind}, chunks: tc.chunks})
			if !slices.Equal(got.chunks, tc.want) || got.headers.Get("content-type") != tc.kind {
				t.Errorf("the client gets %q with %s, want %q", got.chunks, got.headers.Text(), tc.want)
			}
			p.eventually(t, "the request is counted", func() bool {
				return p.metric(t, "llm_d_epp_request_total") == counted+1
			})
			if sum := p.metric(t, "llm_d_epp_request_input_tokens_sum") - before; sum != tc.tokens {
				t.Errorf("%v input tokens, want %v", sum, tc.tokens)
			}
		})
	}
}
