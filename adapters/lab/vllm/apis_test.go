package vllm

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/signalbox-epp/signalbox/engine/config"
)

// notServed are paths that Signalbox reads and simulated servers have not, and why.
var notServed = map[string]string{
	"/v1/images/generations": "the engine computes text",
	"/v1/audio/speech":       "likewise",
	"/v1/conversations":      "vLLM and SGLang have it not either: it stores and computes nothing",
}

// readPaths are the paths that Signalbox reads JSON of: those that its parsers name, and those of which it reads the
// model alone.
func readPaths() []string {
	paths := []string{"/tokenize", "/detokenize", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank",
		"/classify", "/v1/classify", "/pooling"}
	before := map[string]string{"openai-parser": "/v1", "anthropic-parser": "/v1", "vllmhttp-parser": "",
		"sglanghttp-parser": ""}
	end := regexp.MustCompile(`\s(/[a-z0-9_/]+)`)
	texts := map[string]string{}
	for _, family := range (*config.Catalogue)(nil).Describe() {
		for _, p := range family.Plugins {
			texts[p.Type] = p.Text
		}
	}
	for parser, prefix := range before {
		for _, found := range end.FindAllStringSubmatch(texts[parser], -1) {
			paths = append(paths, prefix+found[1])
		}
	}
	return paths
}

// everything has what each API needs.
const everything = `{"model":"tiny","max_tokens":4,"prompt":"Hello","input":"Hello","text":"Hello","query":"a",` +
	`"documents":["b"],"queries":"a","tokens":[1],"token_ids":[1],"sampling_params":{},` + hello + `}`

// Simulated servers answer every path of text that Signalbox reads.
func TestEveryAPIThatIsReadIsServed(t *testing.T) {
	s := start(t, nil)
	paths := readPaths()
	if len(paths) < 24 || !slices.Contains(paths, "/inference/v1/generate") || !slices.Contains(paths, "/generate") {
		t.Fatalf("paths that are read: %v", paths)
	}
	for _, path := range paths {
		want := 200
		if notServed[path] != "" {
			want = 404
		}
		got := ask(t, s, "POST "+path, everything)
		if got.status != want || !json.Valid([]byte(got.body)) {
			t.Errorf("%s: %d %.300s, want %d", path, got.status, got.body, want)
		}
	}
	if got := ask(t, s, "POST /v1/messages/count_tokens", `{`+hello+`}`); got.status != 200 {
		t.Errorf("tokens counted for no model: %d %s", got.status, got.body)
	}
	for path := range notServed {
		if !slices.Contains(paths, path) {
			t.Errorf("%s is said not to be served, and is not read", path)
		}
	}
}

func TestTokensInAndOutHaveTheShapeOfVLLMs(t *testing.T) {
	s := start(t, func(c *Config) { c.PromptTokensDetails = true })
	const what = "POST /inference/v1/generate"
	brief := func(more string) string {
		return `{"token_ids":[1,2,3],"sampling_params":{"max_tokens":3}` + more + `}`
	}
	for name, body := range map[string]string{
		"vllm_generate":        brief(""),
		"vllm_generate_cached": brief(""),
		"vllm_generate_stream": brief(`,"stream":true,"stream_options":{"include_usage":true}`),
		"vllm_generate_error":  `{"token_ids":"x","sampling_params":{}}`,
	} {
		want, got := captured(t, name), ask(t, s, what, body).body
		diff := cmp.Diff(want, got)
		switch {
		case strings.HasSuffix(name, "stream"):
			diff = cmp.Diff(events(t, want), events(t, got))
		case !strings.HasSuffix(name, "error"):
			diff = cmp.Diff(shape(t, want), shape(t, got))
		}
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	set(t, s, `{"engine_dies_after_tokens":1}`)
	const failed, endless = `data: {"error"`, `{"token_ids":[1],"stream":true,"sampling_params":{"max_tokens":4000,` +
		`"ignore_eos":true}}`
	_, want, _ := strings.Cut(captured(t, "vllm_generate_stream_engine_killed"), failed)
	if _, got, _ := strings.Cut(ask(t, s, what, endless).body, failed); got != want+"\n\n" {
		t.Errorf("the engine died: got %q, want %q", got, want)
	}
}

func TestRenderedPromptsHaveTheShapeOfVLLMs(t *testing.T) {
	s := start(t, nil)
	bodies, err := txtar.ParseFile(filepath.Join("..", "..", "parsers", "testdata", "captures", "without_usage.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{"chat": "/v1/chat/completions", "completion": "/v1/completions",
		"messages": "/v1/messages"}
	for _, f := range bodies.Files {
		api, _ := strings.CutPrefix(f.Name, "vllm_scale_out_render_")
		if paths[api] == "" {
			continue
		}
		got := ask(t, s, "POST "+paths[api]+"/render", `{"max_tokens":3,"prompt":"Hello",`+hello+`}`)
		if diff := cmp.Diff(shape(t, string(f.Data)), shape(t, got.body)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", f.Name, diff)
		}
		delete(paths, api)
	}
	if len(paths) > 0 {
		t.Errorf("without a capture: %v", paths)
	}
}

// Tokens of an answer are those of the text that completions give, and its prompt is that which was rendered.
func TestTokensAreThoseOfTheText(t *testing.T) {
	s := start(t, func(c *Config) { c.PromptTokensDetails = true })
	long := strings.Repeat("once upon a time ", 20)
	var said struct{ Choices []struct{ Text string } }
	var made struct {
		ID      string `json:"request_id"`
		Choices []struct {
			Tokens []uint32 `json:"token_ids"`
			Reason string   `json:"finish_reason"`
		}
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Output  int `json:"completion_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	var back struct{ Prompt string }
	body := fmt.Sprintf(`{"prompt":%q,"max_tokens":7,"ignore_eos":true,"seed":5}`, long)
	read(t, ask(t, s, "POST /v1/completions", body), &said)
	rendered := ask(t, s, "POST /v1/completions/render", body).body
	read(t, ask(t, s, "POST /inference/v1/generate", strings.Trim(rendered, "[]")), &made)
	if len(made.Choices) != 1 || len(made.Choices[0].Tokens) != 7 || made.Choices[0].Reason != "length" ||
		made.Usage.Output != 7 || made.Usage.Prompt != (len(long)+3)/4 || made.Usage.Details.Cached != 80 ||
		!strings.HasPrefix(made.ID, "generate-tokens-cmpl-") {
		t.Fatalf("%+v of %s", made, rendered)
	}
	tokens, err := json.Marshal(made.Choices[0].Tokens)
	if err != nil {
		t.Fatal(err)
	}
	read(t, ask(t, s, "POST /detokenize", `{"tokens":`+string(tokens)+`}`), &back)
	if back.Prompt != said.Choices[0].Text {
		t.Errorf("%v are %q, want %q", made.Choices[0].Tokens, back.Prompt, said.Choices[0].Text)
	}
	read(t, ask(t, s, "POST /detokenize", `{"tokens":[1]}`), &back)
	if back.Prompt != "\ufffd" {
		t.Errorf("a token of no answer is %q", back.Prompt)
	}
}

// read reads the JSON of an answer that succeeded.
func read(t *testing.T, got reply, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(got.body), into); err != nil || got.status != 200 {
		t.Fatalf("%v: %d %s", err, got.status, got.body)
	}
}

// output is one of SGLang.
type output struct {
	Text  string
	IDs   []uint32 `json:"output_ids"`
	Index *int
	Meta  struct {
		ID     string
		Reason *struct {
			Type   string
			Length int
		} `json:"finish_reason"`
		Prompt int `json:"prompt_tokens"`
		Output int `json:"completion_tokens"`
		Cached int `json:"cached_tokens"`
	} `json:"meta_info"`
}

// Answers of SGLang are one output, or a list of them if the request has a list of prompts or wants several.
func TestGenerateOfSGLang(t *testing.T) {
	s := start(t, nil)
	const what, params = "POST /generate", `"sampling_params":{"max_new_tokens":3,"ignore_eos":true}`
	long := strings.Repeat("once upon a time ", 20)
	var one output
	for _, cached := range []int{0, 80} {
		read(t, ask(t, s, what, `{"rid":"r1","text":"`+long+`",`+params+`}`), &one)
		if m := one.Meta; m.ID != "r1" || m.Reason == nil || m.Reason.Type != "length" || m.Reason.Length != 3 ||
			m.Prompt != 85 || m.Output != 3 || m.Cached != cached || len(one.IDs) != 3 || len(one.Text) != 12 {
			t.Errorf("%d tokens cached: %+v", cached, one)
		}
	}
	for body, prompts := range map[string][]int{
		`{"text":["Hello","a"],` + params + `}`:                        {2, 1},
		`{"text":["Hello"],` + params + `}`:                            {2},
		`{"input_ids":[ [1,2,3], [4]],` + params + `}`:                 {3, 1},
		`{"text":"a","sampling_params":{"n":2,"max_new_tokens":3}}`:    {1, 1},
		`{"input_ids":[1,2],"sampling_params":{"n":2}, "stream":null}`: {2, 2},
	} {
		var all []output
		read(t, ask(t, s, what, body), &all)
		var got []int
		for _, o := range all {
			got = append(got, o.Meta.Prompt)
		}
		if !slices.Equal(got, prompts) {
			t.Errorf("%s: prompts of %v tokens, want %v", body, got, prompts)
		}
	}
}

// Each event of a stream of SGLang has what was said up to then, and the last one of each output why it ended.
func TestStreamsOfSGLang(t *testing.T) {
	s := start(t, nil)
	got := ask(t, s, "POST /generate",
		`{"input_ids":[[1,2],[3]],"stream":true,"sampling_params":{"max_new_tokens":4,"ignore_eos":true}}`)
	body, done := strings.CutSuffix(got.body, "\n\n"+streamDone)
	if !done {
		t.Fatalf("%d %s", got.status, got.body)
	}
	last := map[int]output{}
	for event := range strings.SplitSeq(body, "\n\n") {
		var o output
		if err := json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &o); err != nil || o.Index == nil {
			t.Fatalf("%s: %v", event, err)
		}
		before := last[*o.Index]
		if !strings.HasPrefix(o.Text, before.Text) || o.Meta.Output != before.Meta.Output+1 ||
			len(o.IDs) != o.Meta.Output || (o.Meta.Reason != nil) != (o.Meta.Output == 4) {
			t.Errorf("%s after %+v", event, before)
		}
		last[*o.Index] = o
	}
	if len(last) != 2 || last[0].Meta.Output != 4 || last[1].Meta.Output != 4 {
		t.Errorf("ends: %+v", last)
	}
	if got := ask(t, s, "POST /generate", `{"text":"a","stream":true}`).body; strings.Contains(got, `"index"`) {
		t.Errorf("a single prompt: %s", got)
	}
}

// Sequences that are aborted say so at the end of the streams of engines' own APIs.
func TestAbortedTokens(t *testing.T) {
	for path, c := range map[string]struct{ body, want string }{
		"/inference/v1/generate": {`{"token_ids":[1],"stream":true,"sampling_params":{"max_tokens":4000,` +
			`"ignore_eos":true}}`, `"finish_reason":"abort"`},
		"/generate": {`{"text":"a","stream":true,"sampling_params":{"max_new_tokens":4000,"ignore_eos":true}}`,
			`"finish_reason":{"type":"abort"`},
	} {
		s := start(t, func(c *Config) { c.DecodeTokensPerSecond = 1000 })
		body := make(chan string, 1)
		go func() { body <- ask(t, s, "POST "+path, c.body).body }()
		until(t, "it runs", func() bool { return s.Stats().AnswerTokens > 0 })
		ask(t, s, "POST /sleep", "")
		if got := <-body; strings.Count(got, c.want) != 1 || !strings.HasSuffix(got, streamDone) {
			t.Errorf("%s: %.600s", path, got[max(0, len(got)-600):])
		}
	}
}

func TestScoresClassesAndPooling(t *testing.T) {
	s := start(t, nil)
	type list struct {
		ID   string
		Data []struct {
			Object, Label string
			Score         float64
			Probs, Data   []float64
			Classes       int `json:"num_classes"`
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Total  int `json:"total_tokens"`
		}
	}
	var got list
	for body, want := range map[string]int{
		`{"queries":"a","documents":["b","c","d"]}`:       3,
		`{"queries":"a","items":{"text":"b"},"n":3}`:      1,
		`{"data_1":["a","b"],"data_2":["c","d"]}`:         2,
		`{"text_1":"a","text_2":["b","c"],"stream":true}`: 2,
	} {
		got = list{}
		read(t, ask(t, s, "POST /score", body), &got)
		if len(got.Data) != want || got.Data[0].Object != "score" || got.Usage.Prompt != 3*want ||
			got.Usage.Total != got.Usage.Prompt || !strings.HasPrefix(got.ID, "score-") {
			t.Errorf("%s: %+v, want %d scores", body, got, want)
		}
	}
	got = list{}
	read(t, ask(t, s, "POST /classify", `{"input":["a","b"]}`), &got)
	for _, c := range got.Data {
		highest := slices.Index(c.Probs, slices.Max(c.Probs))
		if c.Classes != 2 || c.Label != fmt.Sprintf("LABEL_%d", highest) || c.Probs[0]+c.Probs[1] != 1 {
			t.Errorf("class: %+v", c)
		}
	}
	if len(got.Data) != 2 {
		t.Errorf("classes of two texts: %+v", got)
	}
	got = list{}
	read(t, ask(t, s, "POST /pooling", `{"dimensions":3,`+hello+`}`), &got)
	if len(got.Data) != 1 || got.Data[0].Object != "pooling" || len(got.Data[0].Data) != 3 {
		t.Errorf("pooling of a chat: %+v", got)
	}
}

// Each of these refuses in the form of its server.
func TestEnginesOwnAPIsRefuse(t *testing.T) {
	s := start(t, nil)
	for _, c := range []struct{ what, body, want string }{
		{"/score", `{"queries":["a","b"],"documents":["c"]}`, "Input lengths must be either 1:1, 1:N or N:N"},
		{"/score", `{"queries":"a","documents":[]}`, "At least one text_pair element must be given"},
		{"/score", `{"queries":"a"}`, "2 validation errors"},
		{"/classify", `{}`, "body.input"},
		{"/pooling", `{"model":"x","input":"a"}`, "The model `x` does not exist"},
		{"/detokenize", `{}`, "body.tokens"},
		{"/detokenize", `{"tokens":["a"]}`, "body.tokens.0"},
		{"/tokenize", `{"model":"x","prompt":"a"}`, "The model `x` does not exist"},
		{"/inference/v1/generate", `{"model":"tiny"}`, "2 validation errors"},
		{"/inference/v1/generate", `{"token_ids":[1],"sampling_params":{"max_tokens":"x"}}`,
			`"param":"body.sampling_params.max_tokens"`},
		{"/generate", `{}`, `{"error":{"message":"Either text, input_ids or input_embeds should be provided."}}`},
		{"/generate", `{"text":"a","lora_path":"x"}`, `{"error":{"message":"The model`},
	} {
		if got := ask(t, s, "POST "+c.what, c.body); got.status/100 != 4 || !strings.Contains(got.body, c.want) {
			t.Errorf("%s %s: %d %s, want %s", c.what, c.body, got.status, got.body, c.want)
		}
	}
	set(t, s, `{"engine_dead":true}`)
	if got := ask(t, s, "POST /generate", `{"text":"a"}`); got.status != 500 ||
		!strings.HasPrefix(got.body, `{"error":{"message":"EngineCore`) {
		t.Errorf("a dead engine: %d %s", got.status, got.body)
	}
	set(t, s, `{"overload_rate":1,"overload_in_stream":true}`)
	if got := ask(t, s, "POST /generate", `{"text":"a","stream":true}`); !strings.HasPrefix(got.body,
		`data: {"error":{"message":"The engine is`) || !strings.HasSuffix(got.body, streamDone) {
		t.Errorf("overload in a stream: %d %s", got.status, got.body)
	}
}
