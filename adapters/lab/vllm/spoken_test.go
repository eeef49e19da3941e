package vllm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// captured is the body of a real server's answer, of those that the parsers are tested with.
func captured(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "parsers", "testdata", "captures", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(strings.ReplaceAll(string(text), "\r", ""), "\n\n")
	return strings.TrimSpace(body)
}

// namedEvents are the shapes of events with names, equal ones in a row once.
func namedEvents(t *testing.T, body string) (out []string) {
	t.Helper()
	for event := range strings.SplitSeq(strings.TrimSpace(body), "\n\n") {
		name, data, _ := strings.Cut(event, "\ndata: ")
		if one := name + " " + shape(t, data); len(out) == 0 || out[len(out)-1] != one {
			out = append(out, one)
		}
	}
	return out
}

func TestFurtherAPIsHaveTheShapeOfVLLMs(t *testing.T) {
	s := start(t, func(*Config) {})
	details := start(t, func(c *Config) { c.PromptTokensDetails = true })
	const messages, responses = "POST /v1/messages", "POST /v1/responses"
	brief := func(most int, more string) string {
		return fmt.Sprintf(`{"model":"tiny","max_tokens":%d,%s%s}`, most, more, hello)
	}
	for name, c := range map[string]struct {
		server     *Server
		what, body string
	}{
		"vllm_messages":               {s, messages, brief(8, "")},
		"vllm_messages_stream":        {s, messages, brief(4, `"stream":true,`)},
		"vllm_messages_cached":        {details, messages, brief(2, "")},
		"vllm_messages_cached_stream": {details, messages, brief(2, `"stream":true,`)},
		"vllm_count_tokens":           {s, messages + "/count_tokens", `{"model":"tiny",` + hello + `}`},
		"vllm_responses":              {s, responses, `{"max_output_tokens":8,"input":"Hello"}`},
		"vllm_responses_stream":       {s, responses, `{"max_output_tokens":6,"stream":true,"input":"Hello"}`},
	} {
		t.Run(name, func(t *testing.T) {
			want, got := captured(t, name), ask(t, c.server, c.what, c.body)
			if got.status != 200 {
				t.Fatalf("%d %s", got.status, got.body)
			}
			if strings.Contains(name, "stream") {
				if diff := cmp.Diff(namedEvents(t, want), namedEvents(t, got.body)); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			} else if diff := cmp.Diff(shape(t, want), shape(t, got.body)); diff != "" {
				t.Errorf("shape (-want +got):\n%s", diff)
			}
		})
	}
}

// Each API answers an error in its own form.
func TestFurtherAPIsRefuse(t *testing.T) {
	s := start(t, func(*Config) {})
	const ofAnthropic, ofOpenAI = `{"type":"error","error":{"type":"`, `{"error":{"message":"`
	for what, c := range map[string]struct {
		body, want string
		status     int
	}{
		"POST /v1/messages": {
			`{"model":"x","max_tokens":1,` + hello + `}`, ofAnthropic + `NotFoundError"`, 404,
		},
		"POST /v1/messages/count_tokens": {`{"messages":[]}`, ofAnthropic + `BadRequestError"`, 400},
		"POST /v1/responses":             {`{"model":"x","input":"a"}`, ofOpenAI + "The model", 404},
		"POST /v1/embeddings":            {`{"model":"tiny"}`, ofOpenAI + "1 validation error", 400},
		"POST /rerank":                   {`{"query":"a","documents":[]}`, ofOpenAI + "List should", 400},
		"POST /v2/rerank":                {`{"documents":["a"]}`, ofOpenAI + "2 validation errors", 400},
		"GET /v1/models/x":               {"", ofOpenAI + "The model", 404},
	} {
		if got := ask(t, s, what, c.body); got.status != c.status || !strings.HasPrefix(got.body, c.want) {
			t.Errorf("%s: %d %s, want %d %s", what, got.status, got.body, c.status, c.want)
		}
	}
	s.setFaults(Faults{EngineDead: true})
	if got := ask(t, s, "POST /v1/messages", `{"max_tokens":1,`+hello+`}`); got.status != 500 ||
		!strings.HasPrefix(got.body, `{"type":"error"`) {
		t.Errorf("a dead engine: %d %s", got.status, got.body)
	}
}

// A choice of tool that leaves no choice has the tool called, in each API, with an object as arguments.
func TestForcedToolsAreCalled(t *testing.T) {
	s := start(t, func(*Config) {})
	const nested, flat = `"tools":[{"type":"function","function":{"name":"say"}}]`, `"tools":[{"name":"say"}]`
	for body, called := range map[string]bool{
		`POST /v1/chat/completions {` + hello + `,` + nested + `,"tool_choice":"required"}`: true,
		`POST /v1/chat/completions {` + hello + `,` + nested + `,"tool_choice":"auto"}`:     false,
		`POST /v1/chat/completions {` + hello + `,` + nested + `}`:                          false,
		`POST /v1/chat/completions {` + hello + `,` + nested +
			`,"tool_choice":{"type":"function","function":{"name":"say"}}}`: true,
		`POST /v1/messages {"max_tokens":4,` + hello + `,` + flat + `,"tool_choice":{"type":"any"}}`: true,
		`POST /v1/messages {"max_tokens":4,` + hello + `,` + flat +
			`,"tool_choice":{"type":"tool","name":"say"}}`: true,
		`POST /v1/messages {"max_tokens":4,` + hello + `,` + flat + `,"tool_choice":{"type":"auto"}}`: false,
		`POST /v1/responses {"input":"a",` + flat + `,"tool_choice":"required"}`:                      true,
		`POST /v1/responses {"input":"a",` + flat + `}`:                                               false,
	} {
		method, rest, _ := strings.Cut(body, " ")
		path, body, _ := strings.Cut(rest, " ")
		whole := ask(t, s, method+" "+path, body)
		stream := ask(t, s, method+" "+path, strings.Replace(body, "{", `{"stream":true,`, 1))
		if whole.status != 200 || stream.status != 200 || !json.Valid([]byte(whole.body)) {
			t.Errorf("%s %s: %d %s, %d", path, body, whole.status, whole.body, stream.status)
		}
		for _, answer := range []string{whole.body, stream.body} {
			names := strings.Contains(strings.ReplaceAll(answer, flat, ""), `"name":"say"`) &&
				!strings.Contains(answer, `"type":"message","phase"`) && !strings.Contains(answer, `"text_delta"`)
			if names != called {
				t.Errorf("%s %s: calls a tool %v, want %v: %.600s", path, body, names, called, answer)
			}
		}
	}
}

// Embeddings and scores follow from the inputs, are in order, and have the form that was asked for.
func TestPooledAnswers(t *testing.T) {
	s := start(t, func(*Config) {})
	type embeddings struct {
		Data []struct {
			Index     int
			Embedding json.RawMessage
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		}
	}
	read := func(body string) (e embeddings) {
		got := ask(t, s, "POST /v1/embeddings", body)
		if err := json.Unmarshal([]byte(got.body), &e); err != nil || got.status != 200 {
			t.Fatalf("%s: %d %s", body, got.status, got.body)
		}
		return e
	}
	lists, packed := read(`{"input":["a","b","a"],"dimensions":4}`), read(`{"input":"a","encoding_format":"base64"}`)
	var numbers []float32
	if err := json.Unmarshal(lists.Data[0].Embedding, &numbers); err != nil || len(numbers) != 4 ||
		len(lists.Data) != 3 || lists.Usage.Prompt != 3 {
		t.Errorf("%v, %d numbers of %d inputs, %d tokens", err, len(numbers), len(lists.Data), lists.Usage.Prompt)
	}
	if string(lists.Data[0].Embedding) != string(lists.Data[2].Embedding) ||
		string(lists.Data[0].Embedding) == string(lists.Data[1].Embedding) {
		t.Errorf("equal inputs differ, or others do not: %+v", lists.Data)
	}
	var text string
	_ = json.Unmarshal(packed.Data[0].Embedding, &text) // checked by its length
	if raw, err := base64.StdEncoding.DecodeString(text); err != nil || len(raw) != 4*embeddingSize {
		t.Errorf("%v, %d bytes of base64, want %d", err, len(raw), 4*embeddingSize)
	}
	var ranked struct {
		Results []struct {
			Index    int
			Document struct{ Text string }
			Score    float64 `json:"relevance_score"`
		}
	}
	got := ask(t, s, "POST /rerank", `{"query":"q","documents":["a",{"text":"b"},"c"],"top_n":2}`)
	if err := json.Unmarshal([]byte(got.body), &ranked); err != nil || len(ranked.Results) != 2 ||
		ranked.Results[0].Score < ranked.Results[1].Score {
		t.Fatalf("%v: %s", err, got.body)
	}
	for _, r := range ranked.Results {
		if r.Document.Text != string(rune('a'+r.Index)) {
			t.Errorf("document %d is %q", r.Index, r.Document.Text)
		}
	}
}

// Faults of answers concern these APIs too.
func TestFurtherAPIsStall(t *testing.T) {
	s := start(t, func(*Config) {})
	s.setFaults(Faults{StallRate: 1, StallTokens: 2})
	r := request(t, s, "POST /v1/messages", `{"max_tokens":9,"stream":true,`+hello+`}`)
	ctx, leave := context.WithTimeout(t.Context(), time.Second)
	defer leave()
	resp, err := http.DefaultClient.Do(r.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		t.Error("the answer ended")
	}
	if n := strings.Count(string(body), "event: content_block_delta"); n != 2 {
		t.Errorf("%d words before it stalls, want 2: %s", n, body)
	}
}
