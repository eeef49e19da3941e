package reference

import (
	bytewise "encoding/binary"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// calls is the fixture for vLLM's service for gRPC.
var calls = strings.ReplaceAll(fixture, "openai-parser", "vllmgrpc-parser")

// engine is the service's name.
const engine = "/vllm.grpc.engine.VllmEngine/"

// frame puts a message into the frame that gRPC has.
func frame(fields ...[]byte) string {
	message := slices.Concat(fields...)
	return string(append(bytewise.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...))
}

func bytesField(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

func numberField(number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value)
}

// call is a call of a method; "" = without an objective.
func call(method, objective string, message string) request {
	headers := []string{":method: POST", ":path: " + engine + method, ":authority: models",
		"content-type: application/grpc", "te: trailers", "hi: mom"}
	if objective != "" {
		headers = append(headers, "x-llm-d-inference-objective: "+objective)
	}
	return request{headers: headers, chunks: []string{message}}
}

// TestCalls plays calls of gRPC, each with the model servers that its case wants.
func TestCalls(t *testing.T) {
	const urgent, stranger = "inference-objective-with-priority-4", 99
	prompt, tokens := frame(bytesField(3, []byte("test1"))), frame(bytesField(2, bytesField(2, []byte{1, 2, 3})))
	streamed := frame(bytesField(3, []byte("test1")), numberField(5, 1))
	uneven := []pod{{queue: 6, kv: .2, adapters: []string{"foo", "bar", "sql-lora-1fdg2"}},
		{kv: .85, adapters: []string{"foo"}}, {queue: 10, kv: .9, adapters: []string{"foo"}}}
	for name, tc := range map[string]exchangeCase{
		"B1 generate": {pods: near, ask: call("Generate", urgent, prompt), want: 1, body: prompt,
			counts: labels("", "", "4")},
		"B2 embed": {pods: near, ask: call("Embed", urgent, tokens), want: 1, body: tokens,
			counts: labels("", "", "4")},
		"B3 a stream": {pods: near, ask: call("Generate", urgent, streamed), want: 1, body: streamed,
			counts: labels("", "", "4")},
		"B4 no objective": {pods: uneven, ask: call("Generate", "", prompt), want: 0, body: prompt,
			counts: labels("", "", "0")},
		"B5 frame in two": {pods: uneven, ask: halved(call("Generate", "", prompt)), want: 0, body: prompt,
			counts: labels("", "", "0")},
		"B6 no pods, no body": {ask: request{headers: call("Generate", "", "").headers},
			refuse: outcome{status: 200, grpc: "14", reason: "rejected-no-endpoints"}},
		"B7 subset, the best of three": {pods: near, subset: []int{0, 1, 2}, ask: call("Generate", "", prompt), want: 1,
			body: prompt},
		"B8 subset of one": {pods: near, subset: []int{2}, ask: call("Generate", "", prompt), want: 2, body: prompt},
		"B9 subset of others": {pods: near, subset: []int{stranger}, ask: call("Generate", "", prompt),
			refuse: outcome{status: 200, grpc: "14", reason: "rejected-no-endpoints"}},
	} {
		tc.config = calls
		t.Run(name, tc.play)
	}
}

// TestCallsResponses plays answers to calls.
func TestCallsResponses(t *testing.T) {
	t.Parallel()
	p := setup{config: calls, pods: []pod{{}}}.serve(t)
	prompt := frame(bytesField(3, []byte("test")))
	first := frame(bytesField(1, slices.Concat(bytesField(1, []byte{1}), numberField(2, 7), numberField(3, 1))))
	last := frame(bytesField(2, slices.Concat(bytesField(1, []byte{1}), numberField(3, 7), numberField(4, 10))))
	halves := func(message string) []string { return []string{message[:len(message)/2], message[len(message)/2:]} }
	for name, tc := range map[string]struct {
		chunks []string
		tokens float64
	}{
		"B10 a part in two": {halves(first), 7}, "B11 no frame": {[]string{"no healthy upstream"}, 0},
		"B12 the last in two": {halves(last), 7}, "B13 parts and the last": {[]string{first, last}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			before, counted := p.metric(t, "llm_d_epp_request_input_tokens_sum"), p.metric(t, "llm_d_epp_request_total")
			s := p.open(t)
			got := s.answer(s.ask(call("Generate", "", prompt)).picked, reply{
				headers: []string{"content-type: application/grpc"}, chunks: tc.chunks,
				trailers: []string{"grpc-status: 0"},
			})
			if want := append(slices.Clip(tc.chunks), "TRAILERS"); !slices.Equal(got.chunks, want) {
				t.Errorf("the client gets %q, want %q", got.chunks, want)
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
