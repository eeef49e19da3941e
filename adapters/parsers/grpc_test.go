package parsers_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	grpcType     = "application/grpc"
	generatePath = "/vllm.grpc.engine.VllmEngine/Generate"
	vertexPath   = "/google.cloud.aiplatform.v1beta1.PredictionService/"
)

func frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// lengthDelimited is a field of a message that is length-delimited.
func lengthDelimited(num protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), content)
}

func varintField(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

// wrapped is a call to Vertex with this body.
func wrapped(body string) []byte {
	httpBody := slices.Concat(lengthDelimited(1, []byte("application/json")), lengthDelimited(2, []byte(body)))
	return frame(slices.Concat(lengthDelimited(1, []byte("endpoints/1")), lengthDelimited(2, httpBody)))
}

func tokensField(tokens ...uint64) []byte {
	var packed []byte
	for _, token := range tokens {
		packed = protowire.AppendVarint(packed, token)
	}
	return lengthDelimited(2, lengthDelimited(2, packed))
}

func TestFormatsOfCalls(t *testing.T) {
	long := strings.Repeat("x", 600)
	sampling := lengthDelimited(4, slices.Concat(varintField(8, 16), varintField(15, 2)))
	for name, c := range map[string]struct {
		path string
		body []byte
		want read
	}{
		"text": {generatePath, frame(lengthDelimited(3, []byte("12345678"))),
			read{Prompt: 2, Usage: true, API: messages.EngineAPI}},
		"a long text": {generatePath, frame(lengthDelimited(3, []byte(long))),
			read{Prompt: 150, Usage: true, Blocks: 2, API: messages.EngineAPI}},
		"tokens": {generatePath, frame(tokensField(1, 2, 300)),
			read{Prompt: 3, Usage: true, API: messages.EngineAPI}},
		"many tokens": {generatePath, frame(tokensField(make([]uint64, 130)...)),
			read{Prompt: 130, Usage: true, Blocks: 2, API: messages.EngineAPI}},
		"a stream": {generatePath, frame(slices.Concat(lengthDelimited(3, []byte("1234")), sampling, varintField(5,
			1))),
			read{Stream: true, Usage: true, Prompt: 1, Output: 16, API: messages.EngineAPI}},
		"an embedding": {"/vllm.grpc.engine.VllmEngine/Embed", frame(tokensField(make([]uint64, 130)...)),
			read{Prompt: 130, Usage: true, Blocks: 2, API: messages.EngineEmbedAPI}},
		"chat": {vertexPath + "ChatCompletions", wrapped(`{"model":"m","stream":true,"max_tokens":5,"messages":[{"role":"user","content":"12345678"}]}`),
			read{Model: "m", Stream: true, Prompt: 3, Output: 5, API: messages.VertexChatAPI}},
		"raw": {vertexPath + "RawPredict", wrapped(`{"model":"m","input":"` + long + `"}`),
			read{Model: "m", Usage: true, Prompt: 151, Blocks: 2, API: messages.VertexResponsesAPI}},
		"a raw stream": {"/google.cloud.aiplatform.v1.PredictionService/StreamRawPredict",
			wrapped(`{"model":"m","stream":true,"input":"1234"}`),
			read{Model: "m", Stream: true, Usage: true, Prompt: 2, API: messages.VertexResponsesAPI}},
		"another method": {"/vllm.grpc.engine.VllmEngine/HealthCheck", frame(nil), read{}},
		"compressed":     {generatePath, append([]byte{1}, frame(lengthDelimited(3, []byte(long)))[1:]...), read{}},
		"nothing":        {generatePath, nil, read{}},
		"no HttpBody":    {vertexPath + "RawPredict", frame(nil), read{}},
	} {
		t.Run(name, func(t *testing.T) {
			var got messages.Request
			if err := parser.Parse(c.path, grpcType, "", c.body, &got); err != nil {
				t.Fatal(err)
			}
			if factsOf(&got) != c.want {
				t.Errorf("got %+v, want %+v", factsOf(&got), c.want)
			}
		})
	}
}

// What no server can read is told to the client.
func TestBrokenCalls(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		body string
		want string
	}{
		"no frame":   {generatePath, "abc", "ends at byte 3"},
		"JSON":       {generatePath, `{"text":"a"}`, "got flag 123"},
		"cut":        {generatePath, "\x00\x00\x00\x00\x05a", "has 1 bytes, want 5"},
		"no message": {generatePath, "\x00\x00\x00\x00\x02\x1a\x05", "not protobuf"},
		"no tokens": {generatePath, string(frame(lengthDelimited(2, lengthDelimited(2, []byte{0x80})))),
			"not protobuf"},
		"no HttpBody": {vertexPath + "RawPredict", string(frame(lengthDelimited(2, []byte{0x12, 9}))), "not protobuf"},
		"no JSON":     {vertexPath + "RawPredict", string(wrapped(`{"a"`)), "within the HttpBody, body is not JSON"},
	} {
		var got messages.Request
		if err := parser.Parse(
			c.path,
			grpcType,
			"",
			[]byte(c.body),
			&got,
		); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	var got messages.Request
	if err := parser.Parse(generatePath, "application/json", "", []byte("{"), &got); err != nil {
		t.Errorf("a body of another content type: %v", err)
	}
}

// The same prompt is the same blocks by every API, so that servers which speak several share what they hold.
func TestBlocksOfCalls(t *testing.T) {
	text := strings.Repeat("x", 600)
	want := parse(t, completionPath, `{"prompt":"`+text+`"}`)
	var got messages.Request
	if err := parser.Parse(generatePath, grpcType, "", frame(lengthDelimited(3, []byte(text))), &got); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Blocks.Append(nil), want.Blocks.Append(nil)) {
		t.Error("a text has other blocks in a call than in a completion")
	}
	chat := `{"messages":[{"role":"user","content":"` + text + `"}]}`
	want, got = parse(t, chatPath, chat), messages.Request{}
	if err := parser.Parse(vertexPath+"ChatCompletions", grpcType+"+proto", "", wrapped(chat), &got); err != nil {
		t.Fatal(err)
	}
	if got.Blocks.Len() == 0 || !slices.Equal(got.Blocks.Append(nil), want.Blocks.Append(nil)) {
		t.Error("a chat has other blocks in a call to Vertex")
	}
}

// The answers to calls to Vertex are read like those that they wrap, at any cut, whatever their content type.
func TestAnswersToCalls(t *testing.T) {
	chunk := func(s string) []byte { return frame(lengthDelimited(2, []byte(s))) }
	for name, c := range map[string]struct {
		api    messages.API
		body   []byte
		want   messages.Usage
		begins int // of the bytes, before which there is no output
		status int
	}{
		"chat": {messages.VertexChatAPI, chunk(`{"usage":{"prompt_tokens":7,"completion_tokens":3}}`),
			messages.Usage{PromptTokens: 7, OutputTokens: 3}, 0, 0},
		"a stream in pieces": {messages.VertexChatAPI, slices.Concat(chunk("data: {\"choices\":[]}\r\n\r\n"),
			chunk(`data:{"usage":{"prompt_to`), chunk("kens\":7,\"completion_tokens\":3}}\r\n\r\n"), chunk("data: [DONE]\n\n")),
			messages.Usage{PromptTokens: 7, OutputTokens: 3}, 0, 0},
		"an error": {messages.VertexChatAPI, chunk("data: {\"error\":{\"code\":503}}\n\n"), messages.Usage{}, 0, 503},
		"responses": {messages.VertexResponsesAPI, slices.Concat(chunk("event: response.created\ndata: {}\n\n"),
			chunk("event: response.output_text.delta\ndata: {}\n\n"),
			chunk(`data: {"response":{"usage":{"input_tokens":5,"output_tokens":4}}}`+"\n\n")),
			messages.Usage{PromptTokens: 5, OutputTokens: 4}, 7 + 40, 0},
		"an embedding": {messages.EngineEmbedAPI, frame(slices.Concat(lengthDelimited(1, make([]byte, 64)),
			varintField(2, 5))),
			messages.Usage{PromptTokens: 5}, 0, 0},
		"vLLM": {messages.EngineAPI, frame(lengthDelimited(2, slices.Concat(varintField(3, 7), varintField(4, 9),
			varintField(5, 6)))),
			messages.Usage{PromptTokens: 7, CachedTokens: 6, OutputTokens: 9}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for cut := range len(c.body) + 1 {
				s := parsers.NewResponseScanner(c.api, grpcType)
				s.Write(c.body[:cut])
				if cut <= c.begins && c.begins > 0 && s.Began() {
					t.Fatalf("output began within the first %d bytes", cut)
				}
				s.Write(c.body[cut:])
				got := s.Usage()
				got.Source, got.OwnBytes, got.PromptKnown, got.CachedKnown = messages.NoUsage, 0, false, false
				if got != c.want || s.ErrorStatus() != c.status || !s.Began() {
					t.Fatalf("cut at byte %d: %+v, error %d, began %v; want %+v, error %d", cut, got, s.ErrorStatus(),
						s.Began(), c.want, c.status)
				}
			}
		})
	}
}

// Real answers of vLLM's own service, at any cut. One that tells of an error has no message.
func TestRealAnswersToCalls(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/captures/vllm_grpc.txtar")
	if err != nil {
		t.Fatal(err)
	}
	// What stands before output of a stream, and how many chunks have some.
	begin, chunks := map[string]int{}, map[string]int{"generate_stream": 3, "text_stream": 2, "cached_stream": 2,
		"logprobs_stream": 2, "two_choices_stream": 4}
	byHand := map[string]messages.Usage{
		"generate":           {PromptTokens: 8, OutputTokens: 5},
		"generate_stream":    {PromptTokens: 8, OutputTokens: 3},
		"text_stream":        {PromptTokens: 7, OutputTokens: 2},
		"long":               {PromptTokens: 197, OutputTokens: 2},
		"long_cached":        {PromptTokens: 197, CachedTokens: 192, OutputTokens: 2},
		"long_flushed":       {PromptTokens: 197, OutputTokens: 2},
		"cached_stream":      {PromptTokens: 197, CachedTokens: 192, OutputTokens: 2},
		"logprobs_stream":    {PromptTokens: 40, CachedTokens: 32, OutputTokens: 2},
		"two_choices_stream": {PromptTokens: 40, CachedTokens: 32, OutputTokens: 4},
		"too_long_stream":    {},
		"no_input":           {},
		"embed_not_served":   {},
		"flush":              {}, // the answer to another method
	}
	for _, f := range archive.Files {
		want, known := byHand[f.Name]
		delete(byHand, f.Name)
		parts := bytes.SplitN(f.Data, []byte("\n\n"), 3)
		var body []byte
		if len(parts) > 1 {
			body, err = hex.DecodeString(string(bytes.ReplaceAll(parts[1], []byte("\n"), nil)))
		}
		if err != nil || !known {
			t.Fatalf("%s: %v, known %v", f.Name, err, known)
		}
		if want != (messages.Usage{}) {
			want.Source, want.PromptKnown, want.CachedKnown = messages.UsageReported, true, true
		}
		checkCuts(t, func(pieces ...[]byte) messages.Usage {
			s := parsers.NewResponseScanner(messages.EngineAPI, grpcType)
			for _, p := range pieces {
				s.Write(p)
			}
			return s.Usage()
		}, body, want)
		checkCuts(t, func(pieces ...[]byte) int {
			s := parsers.NewResponseScanner(messages.EngineAPI, grpcType)
			for _, p := range pieces {
				s.Write(p)
			}
			return s.Events()
		}, body, chunks[f.Name])
		begin[f.Name] = begins(body)
	}
	// Behind the head of the frame, the tag and length of its part, and those of the tokens or of the part's content.
	for name, want := range map[string]int{
		"generate_stream": 9, "text_stream": 9, "generate": 7, "too_long_stream": -1,
	} {
		if begin[name] != want {
			t.Errorf("output of %s begins behind %d bytes, want %d", name, begin[name], want)
		}
	}
	if len(byHand) > 0 {
		t.Errorf("no captures of %v", byHand)
	}
}

// begins returns behind how many bytes of an answer output has begun; -1 = it has none.
func begins(body []byte) int {
	for n := range len(body) + 1 {
		s := parsers.NewResponseScanner(messages.EngineAPI, grpcType)
		s.Write(body[:n])
		if s.Began() {
			return n
		}
	}
	return -1
}

// FuzzCall reads bodies of calls: it never panics, and a body that is refused leaves the request as it was.
func FuzzCall(f *testing.F) {
	f.Add(frame(lengthDelimited(3, []byte("12345678"))), uint8(0))
	f.Add(frame(tokensField(1, 2, 300)), uint8(1))
	f.Add(wrapped(`{"model":"m","messages":[]}`), uint8(2))
	f.Add(wrapped(`{"model":"m","input":"x"}`), uint8(3))
	paths := []string{
		generatePath,
		"/vllm.grpc.engine.VllmEngine/Embed",
		vertexPath + "ChatCompletions",
		vertexPath + "RawPredict",
	}
	f.Fuzz(func(t *testing.T, body []byte, which uint8) {
		var got messages.Request
		err := parser.Parse(paths[int(which)%len(paths)], grpcType, "", body, &got)
		if err != nil &&
			(got.Model != "" || got.PromptTokens != 0 || got.Blocks.Len() != 0 || got.Form != messages.AnswerForm{}) {
			t.Fatalf("body %x is refused with %v, and gave %+v", body, err, got)
		}
		if err == nil && (got.PromptTokens < 0 || got.OutputTokens < 0) {
			t.Fatalf("body %x: %+v", body, got)
		}
		s := parsers.NewResponseScanner(messages.VertexResponsesAPI, grpcType)
		s.Write(body)
	})
}
