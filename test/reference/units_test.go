package reference

import (
	"slices"
	"strings"
	"testing"
)

const renamed = header + `plugins: [{type: queue-scorer}]
modelRewrites:
- name: r
  rules: [{matches: [{model: {value: gpt-4-proxy}}], targets: [{modelRewrite: vllm-backend-01}]}]
`

// The client reads the model's name that it asked for.
func TestModelsOfResponses(t *testing.T) {
	t.Parallel()
	p := setup{config: renamed, pods: []pod{{}}}.serve(t)
	const json, events = "application/json", "text/event-stream"
	const asked, target = "gpt-4-proxy", "vllm-backend-01"
	const served = `{"model":"vllm-backend-01"}`
	for name, tc := range map[string]struct {
		model, header string // of the request
		kind          string
		body, want    string // want "" = as it is
	}{
		"D1 JSON":           {asked, "", json, served, `{"model":"gpt-4-proxy"}`},
		"D2 event":          {asked, "", events, "data: " + served + "\n\n", "data: {\"model\":\"gpt-4-proxy\"}\n\n"},
		"D3 the same name":  {model: target, header: target, kind: json, body: served},
		"D4 no rewrite":     {model: target, kind: json, body: served},
		"D5 no model":       {header: target, kind: json, body: served},
		"D6 a space":        {asked, "", json, `{"model": "vllm-backend-01"}`, `{"model": "gpt-4-proxy"}`},
		"D7 no field":       {model: asked, kind: json, body: `{"id":"vllm-backend-01"}`},
		"D8 the last event": {model: asked, kind: events, body: "data: [DONE]\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			ask := request{chunks: []string{`{"prompt":"a"}`}}
			if tc.model != "" {
				ask.chunks = []string{body("a", tc.model)}
			}
			if tc.header != "" {
				ask.headers = completion("x-llm-d-model-name-rewrite: " + tc.header).headers
			}
			s := p.open(t)
			got := s.answer(s.ask(ask).picked, reply{
				headers: []string{"content-type: " + tc.kind}, chunks: []string{tc.body},
			})
			want := tc.body
			if tc.want != "" {
				want = tc.want
			}
			if whole := strings.TrimSuffix(strings.Join(got.chunks, ""), " END"); whole != want {
				t.Errorf("the client gets %s, want %s", whole, want)
			}
		})
	}
}

// A body comes back in chunks that every proxy takes, and the pick stands in the first answer alone.
func TestChunks(t *testing.T) {
	t.Parallel()
	p := setup{config: opaque, pods: []pod{{}}}.serve(t)
	for name, tc := range map[string]struct{ size, chunks int }{
		"D34 nothing": {0, 1}, "D35 a full chunk": {62000, 1}, "D36 a byte more": {62001, 2},
		"D37 two and some": {125000, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := p.open(t)
			ask := completion()
			ask.chunks = []string{strings.Repeat("x", tc.size)}
			got := s.ask(ask)
			if got.chunks != tc.chunks || got.body != ask.chunks[0] || got.late {
				t.Errorf("%d chunks of %d bytes, metadata with the body %t; want %d of %d", got.chunks,
					len(got.body), got.late, tc.chunks, tc.size)
			}
			s.done(got.picked)
		})
	}
}

// Usage is found wherever the chunks of a stream are cut.
func TestUsageOfStreams(t *testing.T) {
	t.Parallel()
	p := setup{config: fixture, pods: []pod{{}}}.serve(t)
	const content = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n"
	const usage = "data: {\"choices\":[],\"usage\":" +
		"{\"prompt_tokens\":7,\"total_tokens\":17,\"completion_tokens\":10}}\n\n"
	const end = "data: [DONE]\n\n"
	for name, tc := range map[string]struct {
		chunks []string
		input  float64
		output float64
	}{
		"D38 in the last chunk": {[]string{usage + end}, 7, 10},
		"D39 the end by itself": {[]string{usage, end}, 7, 10},
		"D40 content before":    {[]string{content, usage, end}, 7, 10},
		"D41 none":              {[]string{content, end}, 0, 0},
		"no space":              {[]string{strings.Replace(usage, "data: ", "data:", 1) + end}, 7, 10},
		"an event in pieces":    {[]string{content, usage[:50], usage[50:70], usage[70:], end}, 7, 10},
		// The reference counts these events, and so makes of them 3, 1, 2 and 0.
		"D107 two events, one, and the end":   {[]string{content + content, content, end}, 0, 0},
		"D108 a cut event":                    {[]string{content + content[:20]}, 0, 0},
		"D109 an event cut behind its prefix": {[]string{content + "data: ", content[len("data: "):], end}, 0, 0},
		"D110 JSON":                           {[]string{`{"choices":[{"text":"a"}]}`}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tokens := func() [2]float64 {
				return [2]float64{p.metric(t, "llm_d_epp_request_input_tokens_sum"),
					p.metric(t, "llm_d_epp_request_output_tokens_sum")}
			}
			before := tokens()
			counted := p.metric(t, "llm_d_epp_request_total")
			s := p.open(t)
			s.answer(s.ask(completion()).picked, reply{
				headers: []string{"content-type: text/event-stream"}, chunks: tc.chunks,
			})
			p.eventually(t, "the request is counted", func() bool {
				return p.metric(t, "llm_d_epp_request_total") == counted+1
			})
			after := tokens()
			if after[0]-before[0] != tc.input || after[1]-before[1] != tc.output {
				t.Errorf("%v tokens, then %v: want %v and %v more", before, after, tc.input, tc.output)
			}
		})
	}
}

// Requests of negative priority are refused while the pool is saturated, and no others.
func TestShedding(t *testing.T) {
	const config = header + "plugins: [{type: queue-scorer}]\nobjectives: [{name: batch, priority: -1}]\n"
	full := []pod{{queue: 6, kv: .9}}
	for name, tc := range map[string]struct {
		pods      []pod
		objective string
		status    int // of a refusal, 0 = it is picked for
		reason    string
	}{
		"D100 usual, saturated":         {full, "chat", 0, ""},
		"D101 sheddable, with room":     {[]pod{{}}, "batch", 0, ""},
		"D88 D102 sheddable, saturated": {full, "batch", 429, "rejected-saturated"},
		"D103 sheddable, no pods":       {nil, "batch", 503, "rejected-no-endpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := setup{config: config, pods: tc.pods}.serve(t)
			got := p.open(t).ask(completion("x-llm-d-inference-objective: " + tc.objective))
			if got.status != tc.status || got.reason != tc.reason ||
				slices.Contains(p.pods, got.picked) != (tc.status == 0) {
				t.Errorf("got %+v, want %d %s", got, tc.status, tc.reason)
			}
		})
	}
}

// What the body must have for a server is left to the server.
func TestBodiesWithoutAPrompt(t *testing.T) {
	t.Parallel()
	p := setup{config: fixture, pods: []pod{{}}}.serve(t)
	for name, tc := range map[string]struct{ path, body string }{
		"D90 no messages, no prompt": {"/v1/chat/completions", `{"model":"m","messages":[]}`},
		"no prompt alone":            {completions, `{"model":"m"}`},
	} {
		t.Run(name, func(t *testing.T) {
			ask := request{headers: []string{":method: POST", ":path: " + tc.path}, chunks: []string{tc.body}}
			if got := p.open(t).ask(ask); got.picked != p.pods[0] || got.body != tc.body {
				t.Errorf("got %+v, want the pod, and the body as it is", got)
			}
		})
	}
}

// Filters that leave no endpoint are as a pool that has none.
func TestFiltersThatLeaveNone(t *testing.T) {
	t.Parallel()
	p := setup{config: header + "plugins: [{type: prefill-filter}]\n", pods: []pod{{}}, unread: true}.serve(t)
	t.Run("D93 filtered away", func(t *testing.T) {
		if got := p.open(t).ask(completion()); got.status != 503 || got.reason != "rejected-no-endpoints" {
			t.Errorf("got %+v, want 503 rejected-no-endpoints", got)
		}
	})
}

// A request without a body is picked for as any other: by the roles of servers, and by the subset that the proxy names.
func TestRequestsWithoutABody(t *testing.T) {
	t.Parallel()
	p := setup{config: disaggregated(""), pods: roles, unread: true}.serve(t)
	list := request{headers: []string{":method: GET", ":path: /v1/models", ":authority: models"}}
	for range 20 {
		if got := p.open(t).ask(list); !slices.Contains(p.pods[2:], got.picked) {
			t.Fatalf("picked %s, want a decode server", got.picked)
		}
	}
	for _, tc := range []struct {
		subset []string
		picked string
		status int
	}{{p.pods[3:], p.pods[3], 0}, {p.pods[:1], "", 503}} {
		list.subset = tc.subset
		for range 5 {
			if got := p.open(t).ask(list); got.picked != tc.picked || got.status != tc.status {
				t.Fatalf("subset %v: got %+v, want %q and %d", tc.subset, got, tc.picked, tc.status)
			}
		}
	}
}
