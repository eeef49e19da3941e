package kube

import (
	"slices"
	"testing"
)

// replied is a response, its pieces as the client gets them, and how many tokens of input it tells.
type replied struct {
	kind   string
	answer []string
	want   []string
	tokens float64
	status string // grpc-status; "" = it has no trailers
}

// responses plays the cases of the reference for responses. They are a part of TestCasesOfTheReference.
func responses(t *testing.T, c *cluster) {
	const json, usage = "application/json", `{"usage":{"prompt_tokens":7,"total_tokens":17,"completion_tokens":10}}`
	first := frame(bytesField(1, slices.Concat(bytesField(1, []byte{1}), numberField(2, 7), numberField(3, 1))))
	last := frame(bytesField(2, slices.Concat(bytesField(1, []byte{1}), numberField(3, 7), numberField(4, 10))))
	told := "data: " + usage + "\ndata: [DONE]"
	prompt := frame(bytesField(3, []byte("test")))
	stages := []struct {
		name, config string
		ask          asked
		rows         map[string]replied
	}{
		{"JSON", scored, llm("test", "my-model", "my-model"), map[string]replied{
			"A16 JSON in two": {kind: json, answer: []string{`{"max_tokens":100,"model":"sql-lo`, `ra-1fdg3"}`},
				want: []string{`{"max_tokens":100,"model":"sql-lo`, `ra-1fdg3"} END`}},
			"A17 no JSON": {kind: json, answer: []string{"no healthy upstream"},
				want: []string{"no healthy upstream END"}},
			"A18 an empty end": {kind: json, answer: []string{`{"model":"sql-lora-1fdg3"}`, ""},
				want: []string{`{"model":"sql-lora-1fdg3"}`, " END"}},
			"A19 events": {kind: "text/event-stream", answer: []string{"data: {}", told, ""},
				want: []string{"data: {}", told, " END"}, tokens: 7},
		}},
		{"calls", calls, call("Generate", "", prompt), map[string]replied{
			"B10 a part in two":      called(7, inTwo(first)...),
			"B11 no frame":           called(0, "no healthy upstream"),
			"B12 the last in two":    called(7, inTwo(last)...),
			"B13 parts and the last": called(7, first, last),
		}},
	}
	for _, stage := range stages {
		t.Run(stage.name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t, c)
			tc := played{config: stage.config, pods: []shownLoad{{}}}
			tc.stage(s)
			p := s.inFixture(tc.config, len(tc.pods))
			for name, r := range stage.rows {
				t.Run(name, func(t *testing.T) { r.play(t, p, stage.ask) })
			}
		})
	}
}

// called is the answer to a call. Its pieces pass as they come.
func called(tokens float64, pieces ...string) replied {
	return replied{"application/grpc", pieces, append(slices.Clip(pieces), "TRAILERS"), tokens, "0"}
}

func (r replied) play(t *testing.T, p *picker, ask asked) {
	const tokens, requests = "llm_d_epp_request_input_tokens_sum", "llm_d_epp_request_total"
	before, counted := p.sum(tokens), p.sum(requests)
	ask.answer, ask.kind, ask.status = r.answer, r.kind, r.status
	a := p.exchange(ask)
	if !slices.Equal(a.answer, r.want) || a.got.Get("content-type") != r.kind {
		t.Errorf("the client gets %q with %s, want %q", a.answer, a.got.Text(), r.want)
	}
	eventually(t, "the request is counted", func() bool { return p.sum(requests) == counted+1 })
	if sum := p.sum(tokens) - before; sum != r.tokens {
		t.Errorf("%v tokens of input, want %v", sum, r.tokens)
	}
}
