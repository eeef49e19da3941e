package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// answers are what a model server answers by path, each in pieces that arrive one after the other.
var answers = map[string][]string{
	"/v1/messages": {
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\"," +
			"\"usage\":{\"input_tokens\":5,\"output_tokens\":0}}}\n\n",
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"hello\"}}\n\n",
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_to", "kens\":4}}\n\n",
	},
	"/v1/responses": {
		"event: response.created\ndata: {\"response\":{\"id\":\"resp_1\",\"usage\":null}}\n\n",
		"event: response.output_text.delta\ndata: {\"delta\":\"hello\"}\n\n",
		"event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":6}}}\n\n",
	},
	"/generate": {
		"data: {\"text\":\"a\",\"meta_info\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n",
		"data: {\"text\":\"ab\",\"meta_info\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
	},
	"/inference/v1/generate": {`{"choices":[{"token_ids":[7,8]}],"usage":{"prompt_tokens":2,"completion_tokens":2}}`},
}

// firstOutput is how long the server takes from the first piece to the next.
const firstOutput = 300 * time.Millisecond

// newFormatServer returns the address of a model server. It sends when it goes on after the first piece.
func newFormatServer(t *testing.T, goesOn chan<- time.Time) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pieces, known := answers[r.URL.Path]
		if !known {
			http.NotFound(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		if len(pieces) > 1 {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		for i, piece := range pieces {
			if i == 1 && len(pieces) > 2 {
				select {
				case <-time.After(firstOutput):
				case <-r.Context().Done():
					return
				}
				goesOn <- time.Now()
			}
			_, _ = io.WriteString(w, piece)
			w.(http.Flusher).Flush()
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// Requests of every API are read, and so are the tokens of their answers, through a real Envoy that shows bodies. The
// first token is output: what a stream of messages or responses begins with is none.
func TestEnvoyShowsEveryFormat(t *testing.T) {
	goesOn := make(chan time.Time, 1)
	server := newFormatServer(t, goesOn)
	p := serve(t, []string{server}, "--config-text", `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: active-request-scorer}, {type: prefix-cache-scorer}]
requestHandler: {parsers: [{pluginRef: openai-parser}, {pluginRef: anthropic-parser}, {pluginRef: vllmhttp-parser},
  {pluginRef: sglanghttp-parser}]}
`)
	p.pooled(t, 1)
	e := startEnvoy(t, overrideHostFull, p.grpcPort, []string{server})
	e.asksPicker(t)
	c := newClient(e.url)
	t.Cleanup(c.close)
	for path, want := range map[string]struct {
		body           string
		prompt, output int
		late           bool // output does not begin with the first piece
	}{
		"/v1/messages":           {`{"model":"m","stream":true,"max_tokens":4,"messages":[{"role":"user","content":"hi"}]}`, 5, 4, true},
		"/v1/responses":          {`{"model":"m","stream":true,"input":"hi"}`, 10, 6, true},
		"/generate":              {`{"stream":true,"text":"hi"}`, 3, 2, false},
		"/inference/v1/generate": {`{"model":"m","token_ids":[1,2],"sampling_params":{}}`, 2, 2, false},
	} {
		t.Run(strings.ReplaceAll(path, "/", " "), func(t *testing.T) {
			a := c.do(t.Context(), http.MethodPost, path, want.body, nil)
			if a.status != http.StatusOK {
				t.Fatal(a.String())
			}
			id := a.header.Get("x-signalbox-request-id")
			eventually(t, 5*time.Second, "the request has ended", func() bool { return p.ended(t, id) })
			got := p.record(t, id)
			named := strings.Contains(want.body, `"model"`)
			if got.Usage.PromptTokens != want.prompt || got.Usage.OutputTokens != want.output ||
				(got.Model == "m") != named {
				t.Errorf("got %+v, want %d and %d tokens", got, want.prompt, want.output)
			}
			if !want.late {
				return
			}
			came := got.ArrivedAt.Add(time.Duration(got.FirstToken * float64(time.Second)))
			if went := <-goesOn; came.Before(went.Add(-time.Millisecond)) {
				t.Errorf("the first token came at %v, before output was sent at %v", came, went)
			}
		})
	}
}

// formatRecord is what a record says of a request.
type formatRecord struct {
	Model      string
	ArrivedAt  time.Time `json:"arrived_at"`
	FirstToken float64   `json:"first_token_seconds"`
	Usage      struct {
		PromptTokens int `json:"prompt_tokens"`
		OutputTokens int `json:"output_tokens"`
	}
}

func (p *picker) record(t *testing.T, id string) formatRecord {
	t.Helper()
	_, text := get(p.metrics + "/debug/requests/" + id + "?format=json")
	var page struct{ Requests []formatRecord }
	if err := json.Unmarshal([]byte(text), &page); err != nil || len(page.Requests) != 1 {
		t.Fatalf("%v in %s", err, text)
	}
	return page.Requests[0]
}

// The list of models is that of the whole pool: each server has one of its own.
func TestEnvoyListsModelsOfThePool(t *testing.T) {
	var servers []string
	for _, own := range []string{"base", "adapter"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/models" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"shared"},{"id":"`+own+`"}]}`)
		}))
		t.Cleanup(s.Close)
		servers = append(servers, strings.TrimPrefix(s.URL, "http://"))
	}
	p := serve(t, servers, "--config-text", `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: active-request-scorer}, {type: models-responder}]
`)
	p.pooled(t, 2)
	e := startEnvoy(t, overrideHost, p.grpcPort, servers)
	e.asksPicker(t)
	c := newClient(e.url)
	t.Cleanup(c.close)
	const want = `{"object":"list","data":[{"id":"adapter","object":"model"},{"id":"base","object":"model"},` +
		`{"id":"shared","object":"model"}]}`
	eventually(t, 10*time.Second, "all models are listed", func() bool {
		a := c.do(t.Context(), http.MethodGet, "/v1/models", "", nil)
		return a.status == http.StatusOK && a.body == want
	})
}
