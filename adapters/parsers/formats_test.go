package parsers_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/messages"
)

// read is what is read of a body of any format.
type read struct {
	Model, Salt           string
	Stream, Usage         bool
	Prompt, Output, Media int
	Blocks                int // whole ones
	API                   messages.API
}

func factsOf(r *messages.Request) read {
	return read{r.Model, r.Salt, r.Stream, r.Usage, r.PromptTokens, r.OutputTokens, r.Media, whole(r).Len(), r.Form.API}
}

// TestFormats counts 4 bytes of text and of roles a token, and a block of 256 bytes.
func TestFormats(t *testing.T) {
	long := strings.Repeat("x", 600)
	for name, c := range map[string]struct {
		path, body string
		want       read
	}{
		"responses, text": {"/v1/responses", `{"model":"m","input":"12345678","max_output_tokens":9,"max_tokens":3}`,
			read{Model: "m", Usage: true, Prompt: 3, Output: 9, API: messages.ResponsesAPI}},
		"responses, items": {"/v1/responses",
			`{"model":"m","instructions":"1234","input":[{"role":"user","content":"12345678"}],"stream":true}`,
			read{Model: "m", Stream: true, Usage: true, Prompt: 4, API: messages.ResponsesAPI}},
		"responses, long": {"/v1/responses", `{"input":"` + long + `"}`,
			read{Usage: true, Prompt: 151, Blocks: 2, API: messages.ResponsesAPI}},
		"responses, no input": {"/v1/responses", `{"input":7,"prompt":{"id":"pmpt_1"}}`,
			read{Usage: true, API: messages.ResponsesAPI}},
		"messages": {"/v1/messages", `{"model":"m","max_tokens":7,"stream":true,"system":"1234","messages":[{"role":"user",` +
			`"content":[{"type":"text","text":"12345678"},{"type":"image","source":{"type":"base64","media_type":` +
			`"image/png","data":"AAAA"}}]}]}`,
			read{Model: "m", Stream: true, Usage: true, Prompt: 8, Output: 7, Media: 1, API: messages.MessagesAPI}},
		"messages, long": {"/anthropic/v1/messages?beta=true",
			`{"messages":[{"role":"user","content":"` + long + `"}]}`,
			read{Usage: true, Prompt: 151, Blocks: 2, API: messages.MessagesAPI}},
		"counting": {"/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"` + long + `"}]}`,
			read{Model: "m", Usage: true}},
		"rendering": {"/v1/chat/completions/render",
			`{"model":"m","max_tokens":5,"tools":[7],"messages":[{"role":"user","content":"` + long + `"}]}`,
			read{Model: "m", Usage: true, Prompt: 152, Blocks: 2}},
		"rendering completions": {"/v1/completions/render", `{"model":"m","prompt":"` + long + `","stream":true}`,
			read{Model: "m", Stream: true, Prompt: 150, Blocks: 2}},
		"rendering messages": {"/v1/messages/render", `{"model":"m","system":"` + long + `"}`,
			read{Model: "m", Usage: true}},
		"embeddings": {"/v1/embeddings", `{"model":"m","input":["1234","` + long + `"]}`,
			read{Model: "m", Usage: true, Prompt: 151, Blocks: 2}},
		"embeddings, tokens": {"/v1/embeddings", `{"model":"m","input":[[1,2],[3]]}`,
			read{Model: "m", Usage: true, Prompt: 3}},
		"images": {"/v1/images/generations", `{"model":"m","prompt":"12345678","n":2}`,
			read{Model: "m", Usage: true, Prompt: 2}},
		"speech":        {"/v1/audio/speech", `{"model":"m","input":"1234"}`, read{Model: "m", Usage: true}},
		"images, long":  {"/v1/images/generations", `{"prompt":"` + long + `"}`, read{Usage: true, Prompt: 150}},
		"conversations": {"/v1/conversations", `{"items":[]}`, read{Usage: true}},
		"conversations, items": {"/v1/conversations", `{"items":[{"role":"user","content":"` + long + `"}]}`,
			read{Usage: true, Prompt: 151, Blocks: 2}},
		"vLLM": {"/inference/v1/generate", `{"model":"m","cache_salt":"s","token_ids":[1,2,3],"max_tokens":4,` +
			`"sampling_params":{"n":1,"max_tokens":5}}`,
			read{Model: "m", Salt: "s", Usage: true, Prompt: 3, Output: 5, API: messages.TokensAPI}},
		"vLLM, stream": {"/inference/v1/generate", `{"token_ids":[1],"stream":true,"sampling_params":7}`,
			read{Stream: true, Prompt: 1, API: messages.TokensAPI}},
		"SGLang, tokens": {"/generate", `{"input_ids":[1,2],"stream":true,"cache_salt":"k",` +
			`"sampling_params":{"max_new_tokens":6,"max_tokens":1}}`,
			read{Salt: "k", Stream: true, Usage: true, Prompt: 2, Output: 6, API: messages.GenerateAPI}},
		"SGLang, text": {"/generate", `{"text":["1234","5678"],"image_data":null}`,
			read{Usage: true, Prompt: 2, API: messages.GenerateAPI}},
		"chat has no input": {chatPath, `{"input":"1234","text":"1234","token_ids":[1],"extra_key":"k","max_output_tokens":3}`,
			read{Usage: true, API: messages.ChatAPI}},
	} {
		t.Run(name, func(t *testing.T) {
			got := parse(t, c.path, c.body)
			if factsOf(&got) != c.want {
				t.Errorf("got %+v, want %+v", factsOf(&got), c.want)
			}
		})
	}
}

// The same tokens are the same blocks, whatever API they come by. What was said before shapes a prompt.
func TestBlocksOfFormats(t *testing.T) {
	tokens := "[" + strings.Repeat("17,", 99) + "18]"
	blocks := func(path, body string) []uint64 {
		got := parse(t, path, body)
		if got.Blocks.Len() == 0 {
			t.Fatalf("%s: no blocks", path)
		}
		return got.Blocks.Append(nil)
	}
	want := blocks(completionPath, `{"prompt":`+tokens+`}`)
	for path, body := range map[string]string{
		"/inference/v1/generate": `{"token_ids":` + tokens + `}`, "/generate": `{"input_ids":` + tokens + `}`,
	} {
		if got := blocks(path, body); !slices.Equal(got, want) {
			t.Errorf("%s: blocks %v, want %v", path, got, want)
		}
	}
	input := `"input":"` + strings.Repeat("x", 600) + `"}`
	if slices.Equal(blocks("/v1/responses", `{`+input), blocks("/v1/responses", `{"previous_response_id":"a",`+input)) {
		t.Error("a response to an earlier one has the blocks of one to none")
	}
}

// A parser reads the formats that it is for. Of several suffixes of a path the longest counts.
func TestFormatsOfAParser(t *testing.T) {
	for name, c := range map[string]struct {
		formats parsers.Formats
		path    string
		want    messages.API
	}{
		"OpenAI":               {parsers.OpenAI, chatPath, messages.ChatAPI},
		"OpenAI no messages":   {parsers.OpenAI, "/v1/messages", 0},
		"Anthropic":            {parsers.Anthropic, "/v1/messages/", messages.MessagesAPI},
		"Anthropic no chat":    {parsers.Anthropic, chatPath, 0},
		"vLLM":                 {parsers.VLLM, "/x/inference/v1/generate", messages.TokensAPI},
		"vLLM no generate":     {parsers.VLLM, "/v1/generate", 0},
		"vLLM before SGLang":   {parsers.Every, "/inference/v1/generate", messages.TokensAPI},
		"SGLang":               {parsers.SGLang, "/generate?x=1", messages.GenerateAPI},
		"SGLang alone":         {parsers.SGLang, "/inference/v1/generate", messages.GenerateAPI},
		"not within a word":    {parsers.Every, "/v1/autogenerate", 0},
		"completions, no chat": {parsers.OpenAI, "/v1/xchat/completions", messages.CompletionAPI},
	} {
		t.Run(name, func(t *testing.T) {
			var got messages.Request
			err := parser.Of(c.formats).Parse(c.path, jsonType, "", []byte(`{"model":"m"}`), &got)
			if err != nil || got.Form.API != c.want {
				t.Errorf("API %v, model %q, error %v; want API %v", got.Form.API, got.Model, err, c.want)
			}
		})
	}
}

// FuzzFormats holds every format against encoding/json: what is valid, and the model.
func FuzzFormats(f *testing.F) {
	paths := []string{
		"/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/v1/embeddings", "/v1/images/generations",
		"/inference/v1/generate", "/generate",
	}
	for i := range paths {
		f.Add([]byte(`{"model":"m","input":["a",1,[2]],"messages":[{"content":[{}]}],"token_ids":[1,-2.5e3,"x"]}`), i)
		f.Add([]byte(`{"sampling_params":{"max_tokens":1,"max_new_tokens":2},"text":"a\u00e9","input_ids":[[1],2],"model":"x"}`), i)
		f.Add([]byte(`{"sampling_params":[],"extra_key":{"a":1},"max_output_tokens":1e9,"system":[{"text":"y"}]}`), i)
		f.Add([]byte(`{"sampling_params":{"max_tokens":`), i)
	}
	f.Fuzz(func(t *testing.T, body []byte, path int) {
		if len(body) < 2 || body[0] == 0 || body[1] == 0 || body[0]|1 == 0xff && body[0]^body[1] == 1 {
			return // empty, or wide
		}
		var got messages.Request
		err := parser.Parse(paths[uint(path)%uint(len(paths))], jsonType, "", body, &got)
		if err != nil && strings.Contains(err.Error(), "nested deeper") {
			return
		}
		var fields map[string]json.RawMessage
		object := json.Unmarshal(bytes.TrimPrefix(body, []byte(mark)), &fields) == nil && fields != nil
		if (err == nil) != object {
			t.Fatalf("body %q: error %v; encoding/json says it is an object: %t", body, err, object)
		}
		if want := stringOf(fields["model"]); object && len(fields["model"]) <= 1024 && got.Model != want {
			t.Fatalf("body %q: model %q, want %q", body, got.Model, want)
		}
		if got.PromptTokens < 0 || got.OutputTokens < 0 || got.Blocks.Len() > len(body)/32 {
			t.Fatalf("body %q: %+v", body, got)
		}
	})
}

// answerOf returns a function that scans an answer of an API.
func answerOf(api messages.API) func(pieces ...[]byte) messages.Usage {
	return func(pieces ...[]byte) messages.Usage {
		r := parsers.NewResponseScanner(api, "text/event-stream")
		for _, p := range pieces {
			r.Write(p)
		}
		got := r.Usage()
		got.Source, got.OwnBytes, got.PromptKnown, got.CachedKnown = messages.NoUsage, 0, false, false
		return got
	}
}

// Answers in the form that documents of Anthropic and SGLang give are read at any cut. Events of Anthropic name the
// prompt once and the output at the end; those of SGLang count on.
func TestUsageOfOtherAPIs(t *testing.T) {
	for name, c := range map[string]struct {
		api  messages.API
		body string
		want messages.Usage
	}{
		"Anthropic, stream": {messages.MessagesAPI, "event: message_start\n" +
			`data: {"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":25,` +
			`"cache_read_input_tokens":100,"output_tokens":1}}}` + "\n\n" +
			"event: ping\n" + `data: {"type": "ping"}` + "\n\n" +
			"event: content_block_delta\n" +
			`data: {"type":"content_block_delta","delta":{"text":"\"usage\":{\"output_tokens\":9}"}}` + "\n\n" +
			"event: message_delta\n" + `data: {"type":"message_delta","delta":{},"usage":{"output_tokens":15}}` + "\n\n",
			messages.Usage{PromptTokens: 125, CachedTokens: 100, OutputTokens: 15}},
		"SGLang": {messages.GenerateAPI, `{"text":"\"meta_info\":{}","meta_info":{"id":"a","finish_reason":{"type":"length",` +
			`"length":16,"prompt_tokens":1},"prompt_tokens":14,"completion_tokens":16,"cached_tokens":2,"e2e_latency":0.1}}`,
			messages.Usage{PromptTokens: 14, CachedTokens: 2, OutputTokens: 16}},
		"SGLang, stream": {messages.GenerateAPI,
			`data: {"text":"a","meta_info":{"prompt_tokens":14,"completion_tokens":1,"cached_tokens":0}}` + "\n\n" +
				`data: {"text":"ab","meta_info":{"prompt_tokens":14,"completion_tokens":2,"cached_tokens":3}}` + "\n\n" +
				"data: [DONE]\n\n",
			messages.Usage{PromptTokens: 14, CachedTokens: 3, OutputTokens: 2}},
		"meta_info of others": {messages.ChatAPI, `{"meta_info":{"prompt_tokens":14}}`, messages.Usage{}},
		"usage of SGLang":     {messages.GenerateAPI, `{"usage":{"prompt_tokens":14}}`, messages.Usage{}},
	} {
		t.Run(name, func(t *testing.T) { checkCuts(t, answerOf(c.api), []byte(c.body), c.want) })
	}
}

// Output begins with the first event that can have some: streams of responses and messages begin with others, and any
// may begin with comments. The streams are real ones, but for that of SGLang, whose form its documentation gives.
func TestOutputBegins(t *testing.T) {
	for name, c := range map[string]struct {
		api   messages.API
		first string // what stands before the byte with which output has begun
	}{
		"vllm_messages_stream":             {messages.MessagesAPI, "event: content_block_delta\n"},
		"vllm_responses_stream":            {messages.ResponsesAPI, "event: response.output_text.delta\n"},
		"vllm_chat_stream":                 {messages.ChatAPI, "data:"},
		"vllm_completion_stream_usage":     {messages.CompletionAPI, "data:"},
		"vllm_generate_stream":             {messages.TokensAPI, "data:"},
		"vllm_generate_two_choices_stream": {messages.TokensAPI, "data:"},
		"llamacpp_chat_stream_usage":       {messages.ChatAPI, "data:"},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile("testdata/captures/" + name + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			_, body, _ := bytes.Cut(bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
			checkBegin(t, c.api, body, c.first)
			checkBegin(t, c.api, append([]byte(": alive\n\n:\n"), body...), c.first)
			if crlf := strings.ReplaceAll(c.first, "\n", "\r\n"); len(c.first) > 1 {
				checkBegin(t, c.api, bytes.ReplaceAll(body, []byte("\n"), []byte("\r\n")), crlf)
				checkBegin(t, c.api, bytes.ReplaceAll(body, []byte("event: "), []byte("event:")),
					strings.ReplaceAll(c.first, "event: ", "event:"))
			}
		})
	}
	for name, c := range map[string]struct {
		body string
		want bool
	}{
		"nothing":             {"", false},
		"a comment":           {": keep alive\n\n", false},
		"the name alone":      {"event: message_start", false},
		"of the preamble":     {"event: message_start\ndata: {\"type\":\"content_block_delta\"}\n\n", false},
		"no name":             {"data: {", true},
		"no name of its own":  {"event: ping\ndata: {}\n\ndata: {}", true},
		"an error":            {"event: error\n", true},
		"a very long name":    {"event: message_start" + strings.Repeat("x", 99) + "\n", true},
		"no stream of events": {"{", true},
		"a text":              {"dear reader", true},
		"the begin of one":    {"id", false},
		"a comment alone":     {":", false},
		"a field alone":       {"retry: 3\nid: 1\n\n", false},
		"of SGLang":           {`data: {"text":"a","meta_info":{"prompt_tokens":14,"completion_tokens":1}}` + "\n\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			checkCuts(t, func(pieces ...[]byte) bool {
				r := parsers.NewResponseScanner(messages.MessagesAPI, "")
				for _, p := range pieces {
					r.Write(p)
				}
				return r.Began()
			}, []byte(c.body), c.want)
		})
	}
}

// Events with output are counted as they are in real streams: the last one, of the usage alone, has none, nor has the
// end.
func TestEventsWithOutput(t *testing.T) {
	for name, c := range map[string]struct {
		api  messages.API
		want int
	}{
		"vllm_chat_stream":                  {messages.ChatAPI, 7},
		"vllm_chat_stream_usage":            {messages.ChatAPI, 7},
		"vllm_chat_stream_continuous_usage": {messages.ChatAPI, 7},
		"vllm_completion_stream_usage":      {messages.CompletionAPI, 6},
		"vllm_generate_stream":              {messages.TokensAPI, 3},
		"vllm_generate_two_choices_stream":  {messages.TokensAPI, 4},
		"vllm_messages_stream":              {messages.MessagesAPI, 1},
		"vllm_responses_stream":             {messages.ResponsesAPI, 2},
		"llamacpp_chat_stream_usage":        {messages.ChatAPI, 6},
		"vllm_chat":                         {messages.ChatAPI, 0},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile("testdata/captures/" + name + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			_, body, _ := bytes.Cut(bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
			for _, by := range []string{"events", "lines", "all"} {
				r, rest := parsers.NewResponseScanner(c.api, ""), body
				for len(rest) > 0 {
					n := map[string]int{"events": bytes.Index(rest, []byte("\n\n")) + 2,
						"lines": bytes.IndexByte(rest, '\n') + 1, "all": len(rest)}[by]
					if n < 1 || n < 2 && by == "events" {
						n = len(rest)
					}
					r.Write(rest[:n])
					rest = rest[n:]
				}
				if r.Events() != c.want {
					t.Errorf("by %s: %d events, want %d", by, r.Events(), c.want)
				}
			}
		})
	}
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"of SGLang": {`data: {"text":"a","meta_info":{"completion_tokens":1}}` + "\n\n" +
			`data: {"text":"ab","meta_info":{"completion_tokens":2}}` + "\r\n\r\n" + "data: [DONE]\n\n", 2},
		"two lines of data": {"data: {\ndata: {}}\n\n", 1},
		"no space":          {"data:{}\n\ndata:  {}\n\n", 2},
		"not to its end":    {"data: {}", 0},
		"comments":          {": {}\n\ndata\n\nid: data: {}\n\n", 0},
		"other names":       {"event: message_delta\ndata: {}\n\nevent: ping\ndata: {}\n\n", 0},
		"deltas":            {"event:content_block_delta\ndata: {}\n\nevent: x.delta\r\ndata: {}\r\n\r\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			checkCuts(t, func(pieces ...[]byte) int {
				r := parsers.NewResponseScanner(messages.GenerateAPI, "text/event-stream")
				for _, p := range pieces {
					r.Write(p)
				}
				return r.Events()
			}, []byte(c.body), c.want)
		})
	}
}

// checkBegin wants output to begin with the last byte of first, however the body is cut.
func checkBegin(t *testing.T, api messages.API, body []byte, first string) {
	t.Helper()
	at := bytes.Index(body, []byte(first)) + len(first)
	if at < len(first) {
		t.Fatalf("the body has no %q", first)
	}
	for n := range min(at+20, len(body)) {
		r := parsers.NewResponseScanner(api, "text/event-stream")
		r.Write(body[:n/2])
		r.Write(body[n/2 : n])
		if want := n >= at; r.Began() != want {
			t.Fatalf("after %d bytes, begun %t, want %t: %q", n, r.Began(), want, body[max(n-60, 0):n])
		}
	}
}

// Errors of Anthropic's API have a type, and no status.
func TestErrorsHaveATypeInMessages(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"overloaded":       {`{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`, 503},
		"behind a message": {`{"type": "error", "error": {"message": "\"type\":\"api_error\"", "type" : "not_found_error"}}`, 404},
		"of the server":    {`{"type":"error","error":{"type":"internal_error"}}`, 500},
		"unknown":          {`{"type":"error","error":{"type":"a_very_long_name_of_an_error_that_is_unknown"}}`, 500},
		"escaped":          {`{"type":"error","error":{"type":"not_found_error\"rate_limit_error"}}`, 500},
		"within it":        {`{"type":"error","error":{"details":{"type":"not_found_error"}}}`, 500},
		"no type":          {`{"type":"error","error":{"message":"type"}}`, 500},
		"a number":         {`{"type":"error","error":{"code":503}}`, 503},
		"another type":     {`{"type":"errors","error":{"type":"not_found_error"}}`, 404},
		"of OpenAI":        {`{"error":{"type":"not_found_error","code":503}}`, 503},
	} {
		t.Run(name, func(t *testing.T) {
			checkCuts(t, scanErrorOf(messages.MessagesAPI), []byte("event: error\ndata: "+c.body+"\n\n"), c.want)
		})
	}
}
