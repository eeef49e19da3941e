package parsers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/messages"
)

const messagesPath = "/v1/messages"

// longText is several blocks long, and begins like no other one.
func longText(name string) string { return name + strings.Repeat(" and so on, "+name, 100) }

// whole returns the whole blocks of a request's prompt.
func whole(r *messages.Request) messages.List[uint64] {
	if r.Rest {
		return r.Blocks.First(r.Blocks.Len() - 1)
	}
	return r.Blocks
}

// lead returns how many blocks two requests have in common from the first on.
func lead(a, b *messages.Request) (n int) {
	for n < min(a.Blocks.Len(), b.Blocks.Len()) && a.Blocks.At(n) == b.Blocks.At(n) {
		n++
	}
	return n
}

// members are those of an object, in an order.
type members []string

func (m members) body() string { return "{" + strings.Join(m, ",") + "}" }

// promptOf are members of every API, of several blocks each, by what they are in a prompt. Turns stand first.
var promptOf = map[string]struct {
	path    string
	members members
	parts   []string // of the members, in the order of the members
}{
	"chat": {chatPath, members{`"messages":[{"role":"user","content":"` + longText("turn") + `"}]`,
		`"documents":[{"text":"` + longText("document") + `"}]`, `"tools":[{"name":"` + longText("tool") + `"}]`},
		[]string{"turns", "documents", "tools"}},
	"completions": {completionPath, members{`"prompt":"` + longText("prompt") + `"`}, []string{"turns"}},
	"responses": {"/v1/responses", members{`"input":"` + longText("turn") + `"`,
		`"previous_input_messages":[{"content":"` + longText("earlier") + `"}]`,
		`"instructions":"` + longText("instruction") + `"`, `"tools":[{"name":"` + longText("tool") + `"}]`},
		[]string{"turns", "history", "system", "tools"}},
	"messages": {messagesPath, members{`"messages":[{"role":"user","content":"` + longText("turn") + `"}]`,
		`"system":"` + longText("instruction") + `"`, `"tools":[{"name":"` + longText("tool") + `"}]`},
		[]string{"turns", "system", "tools"}},
	"vLLM generate": {
		"/inference/v1/generate",
		members{`"token_ids":[` + strings.Repeat("7,", 300) + `8]`},
		[]string{"turns"},
	},
	"SGLang generate": {"/generate", members{`"text":"` + longText("prompt") + `"`}, []string{"turns"}},
	"embeddings":      {"/v1/embeddings", members{`"input":"` + longText("prompt") + `"`}, []string{"turns"}},
	"conversations": {"/v1/conversations", members{`"items":[{"role":"user","content":"` + longText("turn") + `"}]`},
		[]string{"turns"}},
}

// row is one of deploy/docs/prompts.md: what a member is to the prompt.
type row struct {
	api, member, blocks string
}

func documentedRows(t *testing.T) (rows []row) {
	text, err := os.ReadFile("../../deploy/docs/prompts.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 || strings.HasPrefix(cells[0], "-") || strings.Contains(cells[0], "API") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		for api := range strings.SplitSeq(cells[0], ", ") {
			for member := range strings.SplitSeq(cells[1], ", ") {
				rows = append(rows, row{api, strings.Trim(member, "`"), cells[4]})
			}
		}
	}
	if len(rows) < 60 {
		t.Fatalf("%d rows, want the table of all members", len(rows))
	}
	return rows
}

// values of a member: two that differ, and are more than white space.
func values(member string) (one, other string) {
	switch member {
	case "messages", "items":
		return `[{"role":"user","content":"` + longText(
				"one",
			) + `"}]`, `[{"role":"user","content":"` + longText(
				"two",
			) + `"}]`
	case "input_ids", "token_ids":
		return "[" + strings.Repeat("1,", 200) + "1]", "[" + strings.Repeat("2,", 200) + "2]"
	case "reasoning", "output_config":
		return `{"effort":"low"}`, `{"effort":"high"}`
	case "thinking":
		return `{"type":"enabled"}`, `{"type":"disabled"}`
	case "features":
		return `{"mm_hashes":{"image":["a"]}}`, `{"mm_hashes":{"image":["b"]}}`
	case "chat_template_kwargs", "mm_processor_kwargs", "media_io_kwargs", "session_params", "images_config":
		return `{"a":"high","b":{"c":1}}`, `{"a":"low","b":{"c":1}}`
	case "tools", "documents", "functions", "previous_input_messages":
		return `[{"name":"` + longText("one") + `"}]`, `[{"name":"` + longText("two") + `"}]`
	case "add_special_tokens", "use_audio_in_video", "stream", "add_generation_prompt", "continue_final_message":
		return "true", "false"
	}
	return `"` + longText("one") + `"`, `"` + longText("two") + `"`
}

// Each row of the table in deploy/docs/prompts.md holds: what keeps prompts apart leaves no block in common; a part
// leaves those of the parts before it; what is left out changes none; and wherever in the body it stands is the same.
func TestDocumentedRows(t *testing.T) {
	for _, r := range documentedRows(t) {
		t.Run(r.api+" "+r.member, func(t *testing.T) {
			if _, ok := promptOf[r.api]; !ok {
				t.Fatalf("there is no API %q", r.api)
			}
			one, other := values(r.member)
			without, a, b, moved := r.with(t, "", 0), r.with(t, one, 0), r.with(t, other, 0), r.with(t, one, 9)
			n := lead(&a, &b)
			switch {
			case r.blocks == "apart" && (n+lead(&a, &without) != 0 || a.Blocks.Len() < 3):
				t.Errorf("%d of %d blocks in common with another value, and %d with none, want 0", n, a.Blocks.Len(),
					lead(&a, &without))
			case r.blocks == "salt" && (a.Salt == b.Salt || a.Salt == without.Salt):
				t.Errorf("salts %q, %q and %q, want three", a.Salt, b.Salt, without.Salt)
			case r.blocks == "left out" && (n != a.Blocks.Len() || n != b.Blocks.Len() || n != without.Blocks.Len() ||
				n < 3):
				t.Errorf("%d blocks in common, of %d, %d and, without, %d, want all", n, a.Blocks.Len(), b.Blocks.Len(),
					without.Blocks.Len())
			case slices.Contains(order, r.blocks) && (n != r.before(t) || n == min(a.Blocks.Len(), b.Blocks.Len())):
				t.Errorf("%d blocks in common with another value, want the %d before it", n, r.before(t))
			case !slices.Contains(append(order, "apart", "salt", "left out"), r.blocks):
				t.Fatalf("there is no %q", r.blocks)
			}
			if n := lead(&a, &moved); n != a.Blocks.Len() || n != moved.Blocks.Len() {
				t.Errorf(
					"moved to the end of the body: %d blocks in common, of %d and %d",
					n,
					a.Blocks.Len(),
					moved.Blocks.Len(),
				)
			}
		})
	}
}

// order is that of the parts of a prompt.
var order = []string{"tools", "system", "documents", "history", "turns"}

// with reads a request whose member has a value, in the place of the part that it is, if it is one; "" = without it.
func (r row) with(t *testing.T, value string, at int) messages.Request {
	p := promptOf[r.api]
	all := slices.Clone(p.members)
	if value != "" {
		if i := slices.Index(p.parts, r.blocks); i >= 0 {
			all = slices.Delete(all, i, i+1)
		}
		all = slices.Insert(all, min(at, len(all)), `"`+r.member+`":`+value)
	}
	return parse(t, p.path, all.body())
}

// before returns the blocks of the parts that stand before the member's.
func (r row) before(t *testing.T) (n int) {
	p := promptOf[r.api]
	for i, part := range p.parts {
		if slices.Index(order, part) < slices.Index(order, r.blocks) {
			only := parse(t, p.path, p.members[i:i+1].body())
			n += only.Blocks.Len()
		}
	}
	return n
}

// What is hashed of messages is their text. Each pair is of one API, and the same prompt to engines or not.
func TestTextOfMessages(t *testing.T) {
	long := longText("text")
	chat := func(message string) string { return `{"messages":[` + message + `]}` }
	user := func(content string) string { return `{"role":"user","content":` + content + `}` }
	for name, c := range map[string]struct {
		path, a, b string
		same       bool
	}{
		"a text and the only part that holds it": {chatPath, chat(user(`"` + long + `"`)),
			chat(user(`[{"type":"text","text":"` + long + `"}]`)), true},
		"the part's text before its type": {chatPath, chat(user(`"` + long + `"`)),
			chat(user(`[{"text":"` + long + `","type":"text"}]`)), true},
		"another text": {chatPath, chat(user(`"` + long + `"`)), chat(user(`[{"type":"text","text":"x` + long +
			`"}]`)), false},
		"two parts and one": {chatPath, chat(user(`"` + long + long + `"`)),
			chat(user(`[{"type":"text","text":"` + long + `"},{"type":"text","text":"` + long + `"}]`)), false},
		"a part beside an image": {chatPath, chat(user(`[{"type":"image_url","image_url":{"url":"a"}},{"type":"text","text":"` +
			long + `"}]`)), chat(user(`[{"type":"image_url","image_url":{"url":"b"}},{"type":"text","text":"` + long + `"}]`)),
			false},
		"the role behind": {chatPath, chat(user(`"` + long + `"`)), chat(`{"content":"` + long + `","role":"user"}`),
			true},
		"another role behind": {chatPath, chat(user(`"` + long + `"`)), chat(`{"content":"` + long +
			`","role":"assistant"}`),
			false},
		"an escaped role": {chatPath, chat(user(`"` + long + `"`)), chat(`{"content":"` + long +
			`","r\u006fle":"\u0075ser"}`), true},
		"members that say nothing": {chatPath, chat(user(`"` + long + `"`)),
			chat(`{"refusal":null,"role":"user","name":null,"content":"` + long + `"}`), true},
		"a name": {chatPath, chat(user(`"` + long + `"`)), chat(`{"role":"user","name":"n","content":"` + long +
			`"}`), false},
		"an input and the message that it is": {"/v1/responses", `{"input":"` + long + `"}`,
			`{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"` + long + `"}]}]}`, true},
		"an output given back": {"/v1/responses", `{"input":[{"role":"assistant","content":"` + long + `"}]}`,
			`{"input":[{"content":[{"type":"output_text","text":"` + long + `"}],"role":"assistant"}]}`, true},
		"outputs of functions": {"/v1/responses", `{"input":[{"type":"function_call_output","output":"` + long + `"}]}`,
			`{"input":[{"type":"function_call_output","output":"x` + long + `"}]}`, false},
		"system and its only block": {messagesPath, `{"system":"` + long + `"}`,
			`{"system":[{"type":"text","text":"` + long + `","cache_control":{"type":"ephemeral"}}]}`, true},
		"billing of Claude Code": {messagesPath, `{"system":"` + long + `"}`,
			`{"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch=1a2b3;"},{"type":"text","text":"` +
				long + `"}]}`, true},
		"billing elsewhere": {messagesPath, chat(user(`[{"type":"text","text":"x-anthropic-billing-header: 1"},` +
			`{"type":"text","text":"` + long + `"}]`)),
			chat(user(`[{"type":"text","text":"x-anthropic-billing-header: 2"},` +
				`{"type":"text","text":"` + long + `"}]`)), false},
		"billing of OpenAI": {"/v1/responses", `{"instructions":"x-anthropic-billing-header: 1` + long + `"}`,
			`{"instructions":"x-anthropic-billing-header: 2` + long + `"}`, false},
		"a system that says nothing": {messagesPath, `{"system":[],` + chat(user(`"` + long + `"`))[1:],
			`{"system":"",` + chat(user(`"` + long + `"`))[1:], true},
		"tools that are none": {chatPath, `{"tools":[],` + chat(user(`"` + long + `"`))[1:], chat(user(`"` + long +
			`"`)), true},
		"kwargs in another order": {chatPath, `{"chat_template_kwargs":{"a":1,"b":{"c":[2]}},` + chat(user(`"` +
			long + `"`))[1:],
			`{"chat_template_kwargs":{"b":{"c" : [2]},"a":1,"d":null},` + chat(user(`"` + long + `"`))[1:], true},
		"kwargs that say nothing": {chatPath, `{"chat_template_kwargs":{},"lora_path":null,` + chat(user(`"` + long +
			`"`))[1:],
			chat(user(`"` + long + `"`)), true},
		"a summary of the reasoning": {"/v1/responses", `{"input":"` + long + `","reasoning":{"effort":"low"}}`,
			`{"input":"` + long + `","reasoning":{"summary":"auto","effort":"low"}}`, true},
		"a budget of thinking": {messagesPath, `{"thinking":{"type":"enabled","budget_tokens":1},` + chat(user(`"` +
			long + `"`))[1:],
			`{"thinking":{"budget_tokens":2,"type":"enabled"},` + chat(user(`"` + long + `"`))[1:], true},
		"the last of two keys": {chatPath, `{"reasoning_effort":"low","reasoning_effort":"high",` + chat(user(`"` +
			long + `"`))[1:],
			`{"reasoning_effort":"high",` + chat(user(`"` + long + `"`))[1:], true},
		"the last of two tools": {chatPath, `{"tools":["` + long + `"],` + chat(user(`"` + long +
			`"`))[1:len(chat(user(`"`+long+`"`)))-1] +
			`,"tools":["x"]}`, `{"tools":["x"],` + chat(user(`"` + long + `"`))[1:], true},
		"tokens in the place of messages": {chatPath, chat(user(`"` + long + `"`))[:len(chat(user(`"`+long+`"`)))-1] +
			`,"input_ids":[` + strings.Repeat("7,", 99) + `8]}`, `{"input_ids":[` + strings.Repeat("7,", 99) + `8],` +
			chat(user(`"` + long + `"`))[1:], true},
		"tokens that are none": {chatPath, chat(user(`"` + long + `"`)), chat(user(`"` + long +
			`"`))[:len(chat(user(`"`+long+`"`)))-1] +
			`,"input_ids":null}`, true},
		"text of SGLang beside tokens": {"/generate", `{"text":"` + long + `","input_ids":[` + strings.Repeat("7,",
			99) + `8]}`,
			`{"input_ids":[` + strings.Repeat("7,", 99) + `8],"text":"x"}`, true},
		"text of SGLang beside no tokens": {"/generate", `{"text":"` + long + `","input_ids":null}`, `{"text":"` +
			long + `"}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := parse(t, c.path, c.a), parse(t, c.path, c.b)
			n := lead(&a, &b)
			if same := n == a.Blocks.Len() && n == b.Blocks.Len(); same != c.same || a.Blocks.Len() == 0 {
				t.Errorf(
					"%d blocks in common, of %d and %d, want all: %t\n%.300s\n%.300s",
					n,
					a.Blocks.Len(),
					b.Blocks.Len(),
					c.same,
					c.a,
					c.b,
				)
			}
			if c.same && a.PromptTokens != b.PromptTokens {
				t.Errorf("%d and %d tokens", a.PromptTokens, b.PromptTokens)
			}
		})
	}
}

// drawn is a message, to be written in any of the ways that say the same.
type drawn struct {
	role  string
	parts []string
	other string // "" or a further member
}

func (d drawn) write(t *rapid.T) string {
	content, _ := json.Marshal(d.parts[0])
	if len(d.parts) > 1 || rapid.Bool().Draw(t, "as parts") {
		var parts []string
		for _, text := range d.parts {
			of, _ := json.Marshal(text)
			parts = append(
				parts,
				members(rapid.Permutation([]string{`"type":"text"`, `"text":` + string(of)}).Draw(t, "part")).body(),
			)
		}
		content = []byte("[" + strings.Join(parts, ",") + "]")
	}
	all := []string{`"role":"` + d.role + `"`, `"content":` + string(content)}
	if rapid.Bool().Draw(t, "null") {
		all = append(all, `"refusal":null`)
	}
	all = rapid.Permutation(all).Draw(t, "message")
	if d.other != "" {
		all = append(all, d.other)
	}
	return members(all).body()
}

// text is a word, or the same word many times.
var text = rapid.Custom(func(t *rapid.T) string {
	return strings.Repeat(
		rapid.StringN(1, 9, 20).Draw(t, "word"),
		rapid.SampledFrom([]int{1, 10, 100}).Draw(t, "times"),
	)
})

func conversation(t *rapid.T) (said []drawn) {
	for range rapid.IntRange(1, 4).Draw(t, "messages") {
		d := drawn{role: rapid.SampledFrom([]string{"user", "assistant", "system"}).Draw(t, "role"),
			parts: rapid.SliceOfN(text, 1, 3).Draw(t, "parts")}
		if rapid.Bool().Draw(t, "calls") {
			d.other = `"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]`
		}
		said = append(said, d)
	}
	return said
}

// However the members of a body, of its messages and of their parts are ordered, the blocks are the same; what is asked
// of the answer changes none; nor does white space.
func TestOrderChangesNoBlock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		api := rapid.SampledFrom([]string{"chat", "responses", "messages"}).Draw(t, "API")
		p := promptOf[api]
		said := conversation(t)
		fixed := slices.DeleteFunc(
			slices.Clone(p.members[1:]),
			func(string) bool { return rapid.Bool().Draw(t, "left out") },
		)
		for _, member := range []string{`"chat_template_kwargs":{"a":true,"b":"x"}`,
			`"reasoning":{"effort":"low","b":1}`,
			`"cache_salt":"s"`, `"previous_response_id":"r"`, `"model":"m"`} {
			isEarlier := func(m string) bool { return strings.HasPrefix(m, `"previous`) }
			if !isEarlier(member) || !slices.ContainsFunc(fixed, isEarlier) {
				fixed = append(fixed, member)
			}
		}
		write := func(extra ...string) []byte {
			var turns []string
			for _, d := range said {
				turns = append(turns, d.write(t))
			}
			name := map[string]string{"chat": "messages", "responses": "input", "messages": "messages"}[api]
			all := append(slices.Clone(fixed), `"`+name+`":[`+strings.Join(turns, ",")+`]`)
			body := []byte(rapid.Permutation(append(all, extra...)).Draw(t, "order").body())
			if rapid.Bool().Draw(t, "spaced") {
				var spaced bytes.Buffer
				if err := json.Indent(&spaced, body, "", "  "); err != nil {
					t.Fatal(err)
				}
				body = spaced.Bytes()
			}
			return body
		}
		one, other := write(), write(`"temperature":0.5`, `"user":"u"`, `"metadata":{"a":"b"}`)
		var a, b messages.Request
		if err := parser.Parse(p.path, jsonType, "", one, &a); err != nil {
			t.Fatal(err)
		}
		if err := parser.Parse(p.path, jsonType, "", other, &b); err != nil {
			t.Fatal(err)
		}
		if lead(&a, &b) != a.Blocks.Len() || a.Blocks.Len() != b.Blocks.Len() || a.PromptTokens != b.PromptTokens ||
			a.Salt != b.Salt {
			t.Fatalf("%d of %d and %d blocks, %d and %d tokens\n%s\n%s", lead(&a, &b), a.Blocks.Len(), b.Blocks.Len(),
				a.PromptTokens, b.PromptTokens, one, other)
		}
	})
}

// agentBody is what a client of Anthropic's API sends for an agent: its messages first, then what all its conversations
// have in common, behind what is new with each request.
func agentBody(conversation, agent int) string {
	return fmt.Sprintf(
		`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"%s"}],"system":[{"type":"text",`+
			`"text":"x-anthropic-billing-header: cc_version=2.1.77; cch=%05x;"},{"type":"text","text":"%s"}],"tools":[%s],`+
			`"metadata":{"user_id":"%d"},"stream":true}`,
		longText(fmt.Sprint("conversation ", conversation)),
		conversation,
		longText(
			fmt.Sprint("agent ", agent),
		),
		`{"name":"read","description":"`+longText("tool")+`","input_schema":{}}`,
		conversation,
	)
}

// Conversations of an agent have all blocks of its system prompt and its tools in common, though their messages stand
// before both; those of another agent have its tools in common.
func TestConversationsOfAnAgentMeet(t *testing.T) {
	first := parse(t, messagesPath, agentBody(0, 0))
	tools := parse(
		t,
		messagesPath,
		`{"tools":[{"name":"read","description":"`+longText("tool")+`","input_schema":{}}]}`,
	)
	system := parse(t, messagesPath, `{"system":"`+longText("agent 0")+`"}`)
	want := tools.Blocks.Len() + system.Blocks.Len()
	for i := 1; i < 24; i++ {
		got, other := parse(t, messagesPath, agentBody(i, 0)), parse(t, messagesPath, agentBody(i, i))
		if n := lead(&first, &got); n != want || got.Blocks.Len() <= want {
			t.Errorf(
				"conversation %d: %d lead blocks in common, of %d, want the %d of system and tools",
				i,
				n,
				got.Blocks.Len(),
				want,
			)
		}
		if n := lead(&first, &other); n != tools.Blocks.Len() {
			t.Errorf("another agent: %d lead blocks in common, want the %d of the tools", n, tools.Blocks.Len())
		}
	}
}

// However its members are ordered, a body costs the same memory: that of its model and of the list of its blocks.
func TestOrderAllocatesNothing(t *testing.T) {
	p := promptOf["messages"]
	for name, body := range map[string]string{
		"in order": members{p.members[2], p.members[1], p.members[0], `"model":"a-model"`}.body(),
		"behind": members{p.members[0], p.members[2], `"thinking":{"type":"enabled"}`, p.members[1],
			`"model":"a-model"`}.body(),
	} {
		raw := []byte(body)
		var got messages.Request
		n := testing.AllocsPerRun(100, func() {
			if err := parser.Parse(p.path, jsonType, "", raw, &got); err != nil {
				t.Fatal(err)
			}
		})
		if n != 2 {
			t.Errorf("%s: %v allocations, want 2", name, n)
		}
	}
}

// 10 MB of tools behind messages are hashed as far as any prompt is, in bounded memory, and before the messages.
func TestManyToolsBehindMessages(t *testing.T) {
	tools := `"tools":[{"description":"` + strings.Repeat("tool ", 2<<20) + `"}]`
	body := []byte(`{"messages":[{"role":"user","content":"` + strings.Repeat("turn ", 1<<20) + `"}],` + tools + `}`)
	var got messages.Request
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := parser.Parse(chatPath, jsonType, "", body, &got)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	allocated := after.TotalAlloc - before.TotalAlloc
	if allocated > 512<<10 {
		t.Errorf("%d bytes of memory for a body of %d, want 512 KiB at most", allocated, len(body))
	}
	only := parse(t, chatPath, "{"+tools+"}")
	if n := lead(&got, &only); n != 8192 || got.Blocks.Len() != n {
		t.Errorf("%d blocks, of which %d are of the tools, want 8192", got.Blocks.Len(), n)
	}
}
