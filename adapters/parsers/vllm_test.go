package parsers_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// cachedShare sends a request to a vLLM and returns which share of its prompt was cached.
func cachedShare(t *testing.T, server, path, body string) float64 {
	t.Helper()
	answer, err := http.Post("http://"+server+path, jsonType, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s\n%d %s, %v", body, answer.StatusCode, text, err)
	}
	type details struct {
		Cached float64 `json:"cached_tokens"`
	}
	var of struct {
		Usage struct {
			Prompt   float64 `json:"prompt_tokens"`
			Input    float64 `json:"input_tokens"`
			Read     float64 `json:"cache_read_input_tokens"`
			Made     float64 `json:"cache_creation_input_tokens"`
			OfPrompt details `json:"prompt_tokens_details"`
			OfInput  details `json:"input_tokens_details"`
		}
	}
	if err := json.Unmarshal(text, &of); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	u := of.Usage
	if path == messagesPath {
		return u.Read / (u.Input + u.Read + u.Made)
	}
	return (u.OfPrompt.Cached + u.OfInput.Cached) / (u.Prompt + u.Input)
}

// What a vLLM finds again of a prompt is what its blocks say. $ENDPOINTS names one that runs with the template and the
// flags of testdata/vllm.jinja.
func TestBlocksAreHitsOfVLLM(t *testing.T) {
	server, _, _ := strings.Cut(os.Getenv("ENDPOINTS"), ",")
	if server == "" {
		t.Skip("*** NO VLLM: set ENDPOINTS, as testdata/vllm.jinja says. ***") //nolint:forbidigo // said aloud
	}
	run := fmt.Sprint(time.Now().UnixNano())
	for name, c := range vllmPairs {
		t.Run(name, func(t *testing.T) {
			long := func(text string) string { return strings.Repeat(run+name+text+", ", 1+700/len(run+name+text)) }
			fill := strings.NewReplacer("SYSTEM", long("s"), "TOOL", long("t"), "TURN", long("u"), "OTHER", long("o"),
				"DOCUMENT", long("d"), "SALT", run)
			one, other := fill.Replace(c.one), fill.Replace(c.other)
			cachedShare(t, server, c.path, one)
			got := cachedShare(t, server, c.path, other)
			a, b := parse(t, c.path, one), parse(t, c.path, other)
			want := float64(lead(&a, &b)) / float64(b.Blocks.Len())
			if a.Salt != b.Salt {
				want = 0
			}
			if math.Abs(got-want) > .2 {
				t.Errorf(
					"%.2f of the prompt was cached, %d of %d blocks are in common\n%.400s\n%.400s",
					got,
					lead(&a, &b),
					b.Blocks.Len(),
					one,
					other,
				)
			}
		})
	}
}

const (
	ofInput   = `"model":"tiny","max_output_tokens":1`
	rest      = `"model":"tiny","max_tokens":1`
	turn      = `"messages":[{"role":"user","content":"TURN"}]`
	otherTurn = `"messages":[{"role":"user","content":"OTHER"}]`
	tool      = `"tools":[{"type":"function","function":{"name":"f","description":"TOOL","parameters":{"type":"object"}}}]`
	otherTool = `"tools":[{"type":"function","function":{"name":"f","description":"OTHER","parameters":{"type":"object"}}}]`
	aTool     = `"tools":[{"name":"f","description":"TOOL","input_schema":{"type":"object"}}]`
	system    = `"system":"SYSTEM"`
	document  = `"documents":[{"title":"a","text":"DOCUMENT"}]`
)

func object(all ...string) string { return members(all).body() }

// vllmPairs are pairs of requests of which the second is sent after the first.
var vllmPairs = map[string]struct{ path, one, other string }{
	"the same":     {chatPath, object(rest, tool, turn), object(rest, tool, turn)},
	"tools behind": {chatPath, object(rest, tool, document, turn), object(turn, document, rest, tool)},
	"another turn": {chatPath, object(rest, turn, tool), object(rest, otherTurn, tool)},
	"other tools":  {chatPath, object(rest, turn, tool), object(rest, turn, otherTool)},
	"other documents": {chatPath, object(rest, tool, turn, document),
		object(rest, tool, turn, strings.Replace(document, "DOC", "OTHER", 1))},
	"one part": {chatPath, object(rest, turn),
		object(rest, `"messages":[{"content":[{"type":"text","text":"TURN"}],"role":"user"}]`)},
	"a next turn": {chatPath, object(rest, turn),
		object(rest, turn[:len(turn)-1]+`,{"role":"assistant","content":"a"},{"role":"user","content":"b"}]`)},
	"another role": {chatPath, object(rest, turn),
		object(rest, `"messages":[{"role":"assistant","content":"TURN"},{"role":"user","content":"b"}]`)},
	"salts": {chatPath, object(rest, turn, `"cache_salt":"SALT1"`),
		object(rest, turn, `"cache_salt":"SALT2"`)},
	"the same salt": {chatPath, object(rest, turn, `"cache_salt":"SALT"`),
		object(`"cache_salt":"SALT"`, rest, turn)},
	"reasoning": {chatPath, object(rest, turn, `"reasoning_effort":"low"`),
		object(rest, turn, `"reasoning_effort":"high"`)},
	"kwargs": {chatPath, object(rest, turn, `"chat_template_kwargs":{"mood":"sad"}`),
		object(rest, turn, `"chat_template_kwargs":{"mood":"glad"}`)},
	"the same kwargs": {chatPath, object(rest, turn, `"chat_template_kwargs":{"mood":"sad","x":1}`),
		object(`"chat_template_kwargs":{"x":1,"mood":"sad"}`, rest, turn)},
	"templates": {chatPath, object(rest, turn, `"chat_template":"{{ messages[0].content }}"`),
		object(rest, turn, `"chat_template":"- {{ messages[0].content }}"`)},
	"functions": {chatPath, object(rest, turn, `"functions":[{"name":"TOOL"}]`),
		object(rest, turn, `"functions":[{"name":"OTHER"}]`)},
	"choice of tools": {chatPath, object(rest, turn, tool, `"tool_choice":"auto"`),
		object(rest, turn, tool, `"tool_choice":"none"`)},
	"formats": {chatPath, object(rest, turn, `"response_format":{"type":"text"}`), object(rest, turn)},
	"what is no prompt": {chatPath, object(rest, turn, `"user":"a","seed":1,"temperature":0.5`),
		object(rest, turn, `"user":"b","seed":2,"prompt_cache_key":"k"`)},
	"no generation": {chatPath, object(rest, turn, `"add_generation_prompt":false`), object(rest, turn)},
	"completion": {completionPath, object(rest, `"prompt":"TURN"`),
		object(`"prompt":"TURN"`, rest, `"user":"u"`)},
	"salted completion": {completionPath, object(rest, `"prompt":"TURN","cache_salt":"SALT1"`),
		object(rest, `"prompt":"TURN","cache_salt":"SALT2"`)},
	"tokens": {"/inference/v1/generate", object(`"token_ids":[` + numbers(9) + `],"sampling_params":{"max_tokens":1}`),
		object(`"model":"tiny","token_ids":[` + numbers(9) + `],"sampling_params":{"max_tokens":1,"temperature":0}`)},
	"Anthropic": {messagesPath, object(rest, aTool, system, turn), object(turn, system, aTool, rest)},
	"an agent":  {messagesPath, object(rest, turn, system, aTool), object(otherTurn, system, aTool, rest)},
	"another system": {messagesPath, object(rest, turn, system, aTool),
		object(turn, `"system":"OTHER"`, aTool, rest)},
	"a system's block": {messagesPath, object(rest, turn, system),
		object(turn, `"system":[{"type":"text","text":"SYSTEM"}]`, rest)},
	"billing": {
		messagesPath,
		object(
			rest,
			turn,
			`"system":[{"type":"text","text":"x-anthropic-billing-header: a"},{"type":"text","text":"SYSTEM"}]`,
		),
		object(
			rest,
			turn,
			`"system":[{"type":"text","text":"x-anthropic-billing-header: b"},{"type":"text","text":"SYSTEM"}]`,
		),
	},
	"Anthropic's kwargs": {messagesPath, object(rest, turn, `"chat_template_kwargs":{"mood":"sad"}`),
		object(rest, turn, `"chat_template_kwargs":{"mood":"glad"}`)},
	"effort": {messagesPath, object(rest, turn, `"output_config":{"effort":"low"}`),
		object(rest, turn, `"output_config":{"effort":"high"}`)},
	"thinking": {messagesPath, object(rest, turn, `"thinking":{"type":"adaptive"}`),
		object(rest, turn, `"thinking":{"type":"disabled"}`)},
	"salts of Anthropic": {messagesPath, object(rest, turn, `"cache_salt":"SALT1"`),
		object(rest, turn, `"cache_salt":"SALT2"`)},
	"system messages": {messagesPath, object(rest, turn, system),
		object(rest, system, turn[:len(turn)-1]+`,{"role":"system","content":"a"},{"role":"user","content":"b"}]`)},
	"summaries": {"/v1/responses", object(ofInput, `"input":"TURN","reasoning":{"effort":"low"}`),
		object(ofInput, `"input":"TURN","reasoning":{"effort":"low","summary":"auto"}`)},
	"kwargs of responses": {"/v1/responses", object(ofInput, `"input":"TURN","chat_template_kwargs":{"mood":"sad"}`),
		object(ofInput, `"input":"TURN","chat_template_kwargs":{"mood":"glad"}`)},
	"formats of Anthropic": {
		messagesPath,
		object(rest, turn, `"output_config":{"effort":"low"}`),
		object(
			rest,
			turn,
			`"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}}`,
		),
	},
	"truncated":         {chatPath, object(rest, turn, `"truncate_prompt_tokens":400`), object(rest, turn)},
	"log probabilities": {chatPath, object(rest, turn, `"prompt_logprobs":1`), object(rest, turn)},
	"members of SGLang": {completionPath, object(rest, `"prompt":"TURN"`),
		object(rest, `"prompt":"TURN","rid":"a"`)},
	"metadata": {messagesPath, object(rest, turn, `"metadata":{"user_id":"a"}`),
		object(`"metadata":{"user_id":"b"}`, rest, turn)},
	"responses": {"/v1/responses", object(ofInput, `"instructions":"SYSTEM","input":"TURN"`),
		object(`"input":[{"role":"user","content":"TURN"}]`, ofInput, `"instructions":"SYSTEM"`)},
	"another input": {"/v1/responses", object(ofInput, `"input":"TURN","instructions":"SYSTEM"`),
		object(`"input":"OTHER"`, ofInput, `"instructions":"SYSTEM"`)},
	"effort of responses": {"/v1/responses", object(ofInput, `"input":"TURN","reasoning":{"effort":"low"}`),
		object(ofInput, `"input":"TURN","reasoning":{"effort":"high"}`)},
}

// numbers returns tokens that no other run has.
func numbers(seed int) string {
	var b strings.Builder
	n := uint64(time.Now().UnixNano()) + uint64(seed)
	for range 700 {
		n = n*6364136223846793005 + 1442695040888963407
		fmt.Fprintf(&b, "%d,", 10+n>>55%400)
	}
	return b.String() + "9"
}
