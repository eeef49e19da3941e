package parsers_test

import (
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/messages"
)

// What answers a request of a known API is read as that API has it, whatever the content type says.
func TestMisleadingContentTypes(t *testing.T) {
	const (
		asEvents = "data: {\"error\":{\"code\":503}}\n\n"
		asObject = `{"error":{"code":503}}`
		failed   = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{" +
			"\"code\":\"server_error\"},\"usage\":{\"input_tokens\":5}}}\n\n"
		abort = `{"meta_info":{"prompt_tokens":5,"finish_reason":{"type":"abort","status_code":503}}}`
	)
	vertex := func(body string) string { return string(frame(lengthDelimited(2, []byte(body)))) }
	usage := func(body string) string { return strings.Replace(body, "{", `{"usage":{"prompt_tokens":5},`, 1) }
	for name, c := range map[string]struct {
		api    messages.API
		body   string
		status int
	}{
		"chat, events":             {messages.ChatAPI, usage(asEvents), 503},
		"chat, an object":          {messages.ChatAPI, usage(asObject), 503},
		"completions, events":      {messages.CompletionAPI, usage(asEvents), 503},
		"completions, an object":   {messages.CompletionAPI, usage(asObject), 503},
		"responses, events":        {messages.ResponsesAPI, failed, 500},
		"responses, an object":     {messages.ResponsesAPI, usage(`{"status":"failed","error":null}`), 500},
		"messages, events":         {messages.MessagesAPI, usage(asEvents), 503},
		"messages, an object":      {messages.MessagesAPI, usage(asObject), 503},
		"generate, events":         {messages.TokensAPI, usage(asEvents), 503},
		"generate, an object":      {messages.TokensAPI, usage(asObject), 503},
		"SGLang, events":           {messages.GenerateAPI, "data: " + abort + "\n\n", 503},
		"SGLang, an object":        {messages.GenerateAPI, abort, 503},
		"vLLM's service":           {messages.EngineAPI, string(frame(lengthDelimited(2, varintField(3, 5)))), 0},
		"vLLM's embeddings":        {messages.EngineEmbedAPI, string(frame(varintField(2, 5))), 0},
		"Vertex, chat":             {messages.VertexChatAPI, vertex(usage(asEvents)), 503},
		"Vertex, chat, an object":  {messages.VertexChatAPI, vertex(usage(asObject)), 503},
		"Vertex, responses":        {messages.VertexResponsesAPI, vertex(failed), 500},
		"Vertex, responses, plain": {messages.VertexResponsesAPI, vertex(usage(asObject)), 503},
	} {
		for _, contentType := range []string{"text/event-stream", "application/json", "text/plain", grpcType, "?", ""} {
			t.Run(name+" as "+contentType, func(t *testing.T) {
				for cut := range len(c.body) + 1 {
					r := parsers.NewResponseScanner(c.api, contentType)
					r.Write([]byte(c.body[:cut]))
					r.Write([]byte(c.body[cut:]))
					if r.Usage().PromptTokens != 5 || r.ErrorStatus() != c.status {
						t.Fatalf("cut at byte %d: usage %+v, error status %d, want 5 prompt tokens, status %d",
							cut, r.Usage(), r.ErrorStatus(), c.status)
					}
				}
			})
		}
	}
}

// Of an API that is not known errors are found in events alone: another body can hold what a client wants it to.
func TestScannerOfUnknownAPI(t *testing.T) {
	for contentType, want := range map[string]int{
		"text/event-stream": 503, "Text/Event-Stream ; charset=utf-8": 503, "": 503, // headers may not be shown
		"application/json": 0, "text/plain": 0, "application/grpc": 0,
	} {
		r := parsers.NewResponseScanner(messages.UnknownAPI, contentType)
		r.Write([]byte(`data: {"usage":{"prompt_tokens":5}}` + "\n\ndata: {\"error\":{\"co"))
		r.Write([]byte("de\":503}}\n\n"))
		if r.Usage().PromptTokens != 5 || r.ErrorStatus() != want {
			t.Errorf("%q: usage %+v, error status %d, want %d", contentType, r.Usage(), r.ErrorStatus(), want)
		}
	}
}

// A stream of messages begins with a figure of its output, and that is not the answer's.
func TestOutputOfTheBeginIsUnknown(t *testing.T) {
	begin := `data: {"type":"message_start","message":{"content":[],"usage":{"input_tokens":10,"output_tokens":1}}}` + "\n\n"
	for end, want := range map[string]messages.Usage{
		"": {PromptKnown: true, PromptTokens: 10},
		`data: {"type":"message_delta","usage":{"output_tokens":"7"}}` + "\n\n": {PromptKnown: true, PromptTokens: 10},
		`data: {"type":"message_delta","usage":{"output_tokens":0}}` + "\n\n": {Source: messages.UsageReported,
			PromptKnown: true, PromptTokens: 10},
		`data: {"type":"message_delta","usage":{"output_tokens":7}}`: {Source: messages.UsageReported,
			PromptKnown: true, PromptTokens: 10, OutputTokens: 7},
	} {
		r := parsers.NewResponseScanner(messages.MessagesAPI, "text/event-stream")
		r.Write([]byte(begin + end))
		got := r.Usage()
		if got.OwnBytes = 0; got != want {
			t.Errorf("%q: got %+v, want %+v", end, got, want)
		}
	}
}

// A scanner of any API allocates nothing for a chunk, an error of any form among them.
func TestScannersAllocateNothing(t *testing.T) {
	chunks := []string{
		`data: {"choices":[{"delta":{"content":"word"}}],"usage":{"prompt_tokens":5}}` + "\n\n",
		"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"wo\\\"rd\"}\n\n",
		`data: {"text":"a","meta_info":{"finish_reason":{"type":"stop"},"prompt_tokens":5,"cached_tokens":4}}` + "\n\n",
		"data: {\"id\":\"chatcmpl-1234567890abcdef\"}\r\n\r\n: alive\n\ndata:[DONE]\n\n",
		string(frame(lengthDelimited(2, []byte("data: {\"choices\":[]}\n\n")))),
		string(frame(lengthDelimited(1, varintField(2, 5)))),
		"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"an_unknown_error\",\"code\":\"x\"}}\n\n",
	}
	for api := range messages.VertexResponsesAPI + 1 {
		for _, chunk := range chunks {
			r, body := parsers.NewResponseScanner(api, "text/event-stream"), []byte(chunk)
			if n := testing.AllocsPerRun(100, func() { r.Write(body); _, _ = r.Usage(), r.ErrorStatus() }); n != 0 {
				t.Errorf("API %d: %v allocations for %q, want 0", api, n, chunk)
			}
		}
	}
}

func BenchmarkResponse(b *testing.B) {
	chunk := []byte(`data: {"id":"chatcmpl-bc9efe9d753eac5e","object":"chat.completion.chunk","created":1795251547,"model":"tiny",` +
		`"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":null}]}` +
		"\n\n")
	r := parsers.NewResponseScanner(messages.ChatAPI, "text/event-stream")
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		r.Write(chunk)
	}
}
