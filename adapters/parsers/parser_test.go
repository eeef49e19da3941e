package parsers_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	chatPath       = "/v1/chat/completions"
	completionPath = "/v1/completions"
	jsonType       = "application/json"
	seed           = 42
)

var parser = parsers.New(parsers.Config{Seed: seed})

func parse(t *testing.T, path, body string) messages.Request {
	t.Helper()
	var got messages.Request
	if err := parser.Parse(path, jsonType, "", []byte(body), &got); err != nil {
		t.Fatalf("%s %.200s: error %q, want none", path, body, err)
	}
	return got
}

const mark = "\xef\xbb\xbf" // the byte order mark

// A byte order mark changes nothing: the model, the counts, and the blocks by which prompts find their server are the
// same.
func TestByteOrderMarkIsSteppedOver(t *testing.T) {
	for path, body := range map[string]string{chatPath: chatBody(), completionPath: `{"model":"m","prompt":"` +
		strings.Repeat("x", 2000) + `"}`} {
		want := parse(t, path, body)
		if want.Blocks.Len() == 0 {
			t.Fatalf("%s: no blocks", path)
		}
		for name, marked := range map[string]string{"alone": mark + body, "before white space": mark + "\r\n " + body} {
			allow := cmp.AllowUnexported(messages.List[uint64]{}, messages.List[messages.Medium]{},
				messages.List[messages.Address]{}, messages.List[messages.HeaderValue]{})
			if diff := cmp.Diff(want, parse(t, path, marked), allow); diff != "" {
				t.Errorf("%s, mark %s: without it -, with it +\n%s", path, name, diff)
			}
		}
		var got messages.Request
		if err := parser.Parse(path, jsonType, "gzip", encoded([]byte(mark+body), "gzip"), &got); err != nil ||
			got.Model != want.Model {
			t.Errorf("%s, compressed: %v, model %q, want %q", path, err, got.Model, want.Model)
		}
	}
	for body, want := range map[string]string{
		mark:                 "it ends at byte 3, want an object",
		mark + mark + "{}":   `byte 3: got "\xef"`,
		mark + "[]":          `not a JSON object: byte 3: got "["`,
		mark[:2] + "{}":      `byte 0: got "\xef"`,
		"{" + mark + "}":     "byte 1",
		mark + `{"model":x}`: `byte 12: got "x"`,
	} {
		var got messages.Request
		if err := parser.Parse(chatPath, jsonType, "", []byte(body), &got); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", body, err, want)
		}
	}
}

// What is not UTF-8 passes unread: the servers in Python decode it.
func TestUTF16AndUTF32PassUnread(t *testing.T) {
	for _, body := range []string{
		"{\x00}\x00", "\x00{\x00}", "\xff\xfe{\x00}\x00", "\xfe\xff\x00{\x00}", "{\x00\x00\x00}\x00\x00\x00",
		"\x00\x00\x00{\x00\x00\x00}",
		"\xff\xfe\x00\x00{\x00\x00\x00", "\x00\x00\xfe\xff\x00\x00\x00{",
	} {
		var got messages.Request
		if err := parser.Parse(chatPath, jsonType, "", []byte(body), &got); err != nil || got.Model != "" ||
			got.Blocks.Len() > 0 {
			t.Errorf("%q: %+v, %v", body, got, err)
		}
	}
	for _, body := range []string{"\x00", "\xff", "\xff\xff{}", "{}\x00"} {
		if err := parser.Parse(chatPath, jsonType, "", []byte(body), &messages.Request{}); err == nil {
			t.Errorf("%q is taken", body)
		}
	}
}

var ignoreBlocks = cmpopts.IgnoreFields(messages.Request{}, "Blocks", "Rest", "Form")

func TestFacts(t *testing.T) {
	tests := map[string]struct {
		path, body string
		want       messages.Request
	}{
		"string content": {chatPath, `{"model":"m","messages":[{"role":"user","content":"Hello"}]}`,
			messages.Request{Model: "m", Usage: true, PromptTokens: 3}},
		"streamed, no usage": {chatPath, `{"model":"m","stream":true,"messages":[]}`,
			messages.Request{Model: "m", Stream: true}},
		"streamed with usage": {chatPath, `{"stream":true,"stream_options":{"x":[1],"include_usage":true},"model":"m"}`,
			messages.Request{Model: "m", Stream: true, Usage: true}},
		"usage says null": {chatPath, `{"stream":true,"stream_options":null,"model":"m"}`,
			messages.Request{Model: "m", Stream: true}},
		"old limit": {chatPath, `{"max_tokens":7}`, messages.Request{Usage: true, OutputTokens: 7}},
		"new limit wins": {chatPath, `{"max_completion_tokens":5,"max_tokens":7}`,
			messages.Request{Usage: true, OutputTokens: 5}},
		"new limit null": {chatPath, `{"max_completion_tokens":null,"max_tokens":7}`,
			messages.Request{Usage: true, OutputTokens: 7}},
		"no new limit in completions": {completionPath, `{"max_completion_tokens":5,"max_tokens":7}`,
			messages.Request{Usage: true, OutputTokens: 7}},
		"endless":     {completionPath, `{"max_tokens":-1}`, messages.Request{Usage: true}},
		"whole float": {completionPath, `{"max_tokens":1.6e1}`, messages.Request{Usage: true, OutputTokens: 16}},
		"huge limit": {completionPath, `{"max_tokens":99999999999999999999999}`,
			messages.Request{Usage: true, OutputTokens: 1<<31 - 1}},
		"salt": {completionPath, `{"cache_salt":"s\u0041","prompt":"12345678"}`,
			messages.Request{Salt: "sA", Usage: true, PromptTokens: 2}},
		"parts": {chatPath, `{"messages":[{"role":"user","content":[{"type":"text","text":"12345678"},
			{"type":"image_url","image_url":{"url":"http://a/b.png"}},{"type":"refusal","refusal":"no"}]}]}`,
			messages.Request{Usage: true, PromptTokens: 7, Media: 1}}, // 4 + 8 + 14 + 2 bytes
		"image as data": {chatPath,
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:` +
				strings.Repeat("A", 5000) + `"}}]}]}`, messages.Request{Usage: true, PromptTokens: 257, Media: 1}},
		"sound": {chatPath, `{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"` +
			strings.Repeat("A", 5000) + `","format":"wav1"}}]}]}`, messages.Request{Usage: true, PromptTokens: 258,
			Media: 1}},
		"tool call": {chatPath,
			`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"id12","type":"function",
			"function":{"name":"name","arguments":"{\"a\":1}"}}]},
			{"role":"tool","tool_call_id":"id12","content":"ok"}]}`,
			messages.Request{Usage: true, PromptTokens: 9}}, // roles 13, id 4, name 4, arguments 7, id 4, ok 2
		"tools count keys": {chatPath, `{"tools":[{"type":"function"}]}`,
			messages.Request{Hints: messages.OutputHints{Tools: true}, Usage: true, PromptTokens: 3}},
		"template is no prompt": {chatPath,
			`{"chat_template":"{{ long template }}","chat_template_kwargs":{"enable":true}}`,
			messages.Request{Usage: true}},
		"token array": {completionPath, `{"prompt":[1,2,3]}`, messages.Request{Usage: true, PromptTokens: 3}},
		"token arrays": {completionPath, `{"prompt":[[1,2,3],[4]]}`,
			messages.Request{Usage: true, PromptTokens: 4}},
		"prompts": {completionPath, `{"prompt":["1234","5678"]}`,
			messages.Request{Usage: true, PromptTokens: 2}},
		// 3 + 1 + 4 bytes
		"escapes count once": {completionPath, `{"prompt":"\u4e2d\n\ud83d\ude00"}`,
			messages.Request{Usage: true, PromptTokens: 2}},
		"last model wins": {chatPath, `{"model":"a","model":"b"}`, messages.Request{Model: "b", Usage: true}},
		"last prompt wins": {completionPath, `{"prompt":"12345678","prompt":"1"}`,
			messages.Request{Usage: true, PromptTokens: 1}},
		"escaped key":     {chatPath, `{"\u006dodel":"b"}`, messages.Request{Model: "b", Usage: true}},
		"model no string": {chatPath, `{"model":7}`, messages.Request{Usage: true}},
		"model too long": {chatPath, `{"model":"` + strings.Repeat("m", 2000) + `"}`,
			messages.Request{Usage: true}},
		"lone surrogate": {chatPath, `{"model":"\ud800x"}`, messages.Request{Model: "\ufffdx", Usage: true}},
		"bytes not UTF-8": {chatPath, "{\"model\":\"\xff\xfe\"}",
			messages.Request{Model: "\ufffd\ufffd", Usage: true}},
		"messages no array": {chatPath, `{"messages":{"role":"user"},"model":"m"}`,
			messages.Request{Model: "m", Usage: true}},
		"messages of numbers": {chatPath, `{"messages":[1,null],"model":"m"}`,
			messages.Request{Model: "m", Usage: true, PromptTokens: 2}},
		"prompt an object": {completionPath, `{"prompt":{"a":1},"stream":"yes"}`, messages.Request{Usage: true}},
		"odd tokens": {completionPath, `{"prompt":[1,null,[2,"x"],{}]}`,
			messages.Request{Usage: true, PromptTokens: 2}},
		"prompt in chat":      {chatPath, `{"prompt":"12345678"}`, messages.Request{Usage: true}},
		"messages to prompts": {completionPath, `{"messages":[{"content":"12345678"}]}`, messages.Request{Usage: true}},
		"empty object":        {chatPath, " {}\r\n\t", messages.Request{Usage: true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := parse(t, tt.path, tt.body)
			if diff := cmp.Diff(tt.want, got, ignoreBlocks,
				cmp.AllowUnexported(messages.List[messages.Address]{}, messages.List[uint64]{},
					messages.List[messages.Medium]{}, messages.List[messages.HeaderValue]{})); diff != "" {
				t.Errorf("body %.300s: facts (-want +got):\n%s", tt.body, diff)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	tests := map[string]struct{ body, want string }{
		"cut":         {`{"model":"m"`, "body is not JSON: it ends at byte 12, want ',' or '}'"},
		"array":       {`[1]`, `body is not a JSON object: byte 0: got "["`},
		"white space": {"  ", "body is not JSON: it ends at byte 2, want an object"},
		"form":        {"a=b", `body is not a JSON object: byte 0: got "a"`},
		"behind":      {`{} x`, `body is not JSON: byte 3: got "x", want nothing behind the object`},
		"no value":    {`{"a":}`, `body is not JSON: byte 5: got "}", want a value`},
		"comma":       {`{"a":1,}`, `body is not JSON: byte 7: got "}", want an object key`},
		"bad escape":  {`{"a":"\x"}`, `body is not JSON: byte 7: got "x", want an escape`},
		"bad hex":     {`{"a":"\u12G4"}`, `body is not JSON: byte 10: got "G", want a hexadecimal digit`},
		"control": {"{\"a\":\"\n\"}",
			`body is not JSON: byte 6: got "\n", want no bare control character in a string`},
		"control far in": {"{\"a\":\"0123456789\x1f0123456789\"}",
			`body is not JSON: byte 16: got "\x1f", want no bare control character in a string`},
		"NUL":          {"{\"a\":\x00}", `body is not JSON: byte 5: got "\x00", want a value`},
		"leading zero": {`{"a":01}`, `body is not JSON: byte 6: got "1", want ',' or '}'`},
		"half a word":  {`{"a":tru}`, `body is not JSON: byte 8: got "}", want true`},
		"bare minus":   {`{"a":-}`, `body is not JSON: byte 6: got "}", want a digit`},
		"deep": {`{"a":` + strings.Repeat("[", 600),
			`body is not acceptable JSON: byte 517: nested deeper than 512 levels`},
		"deep messages": {`{"messages":` + strings.Repeat("[", 600),
			`body is not acceptable JSON: byte 524: nested deeper than 512 levels`},
		"array not shut": {`{"messages":[{"content":"x"}`, `body is not JSON: it ends at byte 28, want ',' or ']'`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := messages.Request{Model: "before"}
			err := parser.Parse(chatPath, jsonType, "", []byte(tt.body), &got)
			if fmt.Sprint(err) != tt.want {
				t.Errorf("body %.80q:\n got %v\nwant %s", tt.body, err, tt.want)
			}
			if got.Model != "before" || got.Usage {
				t.Errorf("body %.80q: request became %+v, want it untouched", tt.body, got)
			}
		})
	}
}

func TestNotParsed(t *testing.T) {
	const chat = `{"model":"m","messages":[{"content":"Hello"}]}`
	tests := map[string]struct{ path, contentType, encoding, body string }{
		"other path":         {"/v1/moderations", jsonType, "", "{"},
		"below the path":     {"/v1/chat/completions/abort", jsonType, "", "{"},
		"other content type": {chatPath, "text/plain", "", chat},
		"compressed":         {chatPath, jsonType, "gzip", chat},
		"no body":            {chatPath, jsonType, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got messages.Request
			err := parser.Parse(tt.path, tt.contentType, tt.encoding, []byte(tt.body), &got)
			if err != nil || got.Model != "" || got.Usage || got.PromptTokens != 0 {
				t.Errorf("%+v: got %+v, error %v; want nothing filled, no error", tt, got, err)
			}
		})
	}
	for _, contentType := range []string{"", "Application/JSON; charset=utf-8", "application/vnd.x+json"} {
		var got messages.Request
		if err := parser.Parse(chatPath, contentType, " Identity", []byte(chat), &got); err != nil || got.Model != "m" {
			t.Errorf("content type %q: model %q, error %v; want m", contentType, got.Model, err)
		}
	}
}

// On a path that is not recognised an object with a model is read as far as that goes, and nothing is a mistake.
func TestUnknownPaths(t *testing.T) {
	var squeezed bytes.Buffer
	z := gzip.NewWriter(&squeezed)
	if _, err := z.Write([]byte(`{"model":"m","query":"q"}`)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/score", "/v2/rerank", "/classify", "/pooling", "/tokenize", "/"} {
		for name, c := range map[string]struct {
			kind, encoding, body, model string
		}{
			"a model":            {jsonType, "", `{"query":"q","documents":["a"],"model":"m"}`, "m"},
			"no type":            {"", "", `{"model":"m"}`, "m"},
			"encoded":            {jsonType, "gzip", squeezed.String(), "m"},
			"encoded in vain":    {jsonType, "gzip", `{"model":"m"}`, ""},
			"no model":           {jsonType, "", `{"query":"q"}`, ""},
			"no object":          {jsonType, "", `["model"]`, ""},
			"a model within":     {jsonType, "", `{"a":{"model":"m"}}`, ""},
			"broken":             {jsonType, "", `{"model":"m"`, ""},
			"of another type":    {"text/plain", "", `{"model":"m"}`, ""},
			"nothing":            {jsonType, "", "", ""},
			"what is no text":    {jsonType, "", "\x00{", ""},
			"a prompt, not read": {jsonType, "", `{"model":"m","prompt":"12345678","max_tokens":9}`, "m"},
		} {
			var got messages.Request
			err := parser.Parse(path, c.kind, c.encoding, []byte(c.body), &got)
			if err != nil || got.Model != c.model || got.PromptTokens != 0 || got.OutputTokens != 0 {
				t.Errorf("%s, %s: %+v, error %v; want model %q alone", path, name, got, err, c.model)
			}
		}
	}
}

func TestRecognised(t *testing.T) {
	tests := map[string]bool{
		"/v1/chat/completions": true, "chat/completions": true, "/chat/completions": true, "/v1/completions": true,
		"/v1/completions/": true, "/v1/completions?a=/b": true, "/tenant/openai/v1/chat/completions?x": true,
		"completions":       true,
		"/v1/mycompletions": false, "/v1/completions/abort": false, "/": false, "": false,
		"/v1/moderations?completions":   false,
		"/v1/x.Service/ChatCompletions": false, "/v1/x.chat/completions": true, "/v1/x.completions": true,
	}
	for path, want := range tests {
		if got := parse(t, path, `{"model":"m"}`); (got.Form.API != messages.UnknownAPI) != want {
			t.Errorf("path %q: API %d, want one: %t", path, got.Form.API, want)
		}
	}
	if got := parse(t, "/v1/archat/completions?q=chat/completions", `{"prompt":"1234"}`); got.PromptTokens != 1 {
		t.Errorf("path that only ends like a chat: %d prompt tokens, want 1, as of a completion", got.PromptTokens)
	}
}

func TestCompletionBlocksAreThoseOfItsText(t *testing.T) {
	prompt := strings.Repeat("die Straße \U0001F600\n", 100)
	want := blockindex.NewHasher(seed)
	want.Write([]byte(prompt))
	wantBlocks := want.Blocks().Append(nil)[:len(prompt)/blockindex.BlockBytes]
	for name, body := range map[string]string{
		"plain": `{"prompt":"` + strings.ReplaceAll(prompt, "\n", `\n`) + `"}`,
		"escaped": `{ "prompt" : "` + strings.NewReplacer("\n", `\u000a`, "ß", `\u00df`, "\U0001F600",
			`\ud83d\uDE00`).Replace(prompt) + `"}`,
		"array": `{"prompt":["` + strings.ReplaceAll(prompt, "\n", `\n`) + `"]}`,
	} {
		read := parse(t, completionPath, body)
		if got := whole(&read).Append(nil); !slices.Equal(got, wantBlocks) {
			t.Errorf("%s: blocks %x, want %x", name, got, wantBlocks)
		}
	}
}

func TestTokenBlocksHoldSixtyFourTokens(t *testing.T) {
	tokens := strings.TrimSuffix(strings.Repeat("128000,", 129), ",")
	got := parse(t, completionPath, `{"prompt":[`+tokens+`]}`)
	if got.Blocks.Len() != 3 || !got.Rest || got.PromptTokens != 129 {
		t.Errorf("129 tokens: %d blocks, %d tokens; want 2 and a rest, 129", got.Blocks.Len(), got.PromptTokens)
	}
}

func TestChatBlocks(t *testing.T) {
	long := strings.Repeat("You are a helpful assistant. ", 50)
	chat := func(rest string) string {
		return `{"model":"m","messages":[{"role":"system","content":"` + long + `"}` + rest + `]}`
	}
	shared := func(a, b string) (lead, shorter int) {
		first, second := parse(t, chatPath, a), parse(t, chatPath, b)
		x, y := whole(&first), whole(&second)
		for shorter = min(x.Len(), y.Len()); lead < shorter && x.At(lead) == y.At(lead); lead++ {
		}
		return lead, shorter
	}
	image := `,{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:%s"}}]},{"role":"user","content":"` + long + `"}`
	tests := map[string]struct {
		a, b string
		same bool // all blocks of the shorter one
	}{
		"next turn keeps the prefix": {chat(""), chat(`,{"role":"user","content":"hi"}`), true},
		"white space": {chat(`,{"role":"user","content":"` + long + `"}`),
			chat(` , { "role" : "user" , "content":"` + long + `" } `), true},
		"escapes": {chat(`,{"content":"` + long + `/"}`),
			chat(`,{"c\u006fntent":"` + strings.ReplaceAll(long, "a", `\u0061`) + `\/"}`), true},
		"cache control moves": {chat(`,{"content":"` + long + `","cache_control":{"type":"ephemeral"}}`),
			chat(`,{"content":"` + long + `"}`), true},
		"other fields do not count": {`{"temperature":0.1,` + chat("")[1:], chat(""), true},
		"role":                      {`{"messages":[{"role":"user","content":"` + long + `"}]}`, chat(""), false},
		"cut into turns": {`{"messages":[{"content":"a` + long + `"}]}`,
			`{"messages":[{"content":"a"},{"content":"` + long + `"}]}`, false},
		"tools": {`{"tools":[{"name":"f"}],` + chat("")[1:], `{"tools":[{"name":"g"}],` + chat("")[1:], false},
		"same image": {chat(fmt.Sprintf(image, strings.Repeat("A", 9000))),
			chat(fmt.Sprintf(image, strings.Repeat("A", 9000))), true},
		"other image": {chat(fmt.Sprintf(image, strings.Repeat("A", 9000))),
			chat(fmt.Sprintf(image, strings.Repeat("A", 8999)+"B")), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			lead, shorter := shared(tt.a, tt.b)
			if (lead == shorter) != tt.same || shorter == 0 {
				t.Errorf("%d of %d blocks shared, want all: %t\n%.200s\n%.200s", lead, shorter, tt.same, tt.a, tt.b)
			}
		})
	}
}

func TestSaltIsNeverLost(t *testing.T) {
	a := parse(t, chatPath, `{"cache_salt":"`+strings.Repeat("x", 5000)+`a"}`)
	b := parse(t, chatPath, `{"cache_salt":"`+strings.Repeat("x", 5000)+`b"}`)
	if a.Salt == "" || a.Salt == b.Salt || len(a.Salt) > 100 {
		t.Errorf("salts of 5001 bytes: %q and %q, want two different short ones", a.Salt, b.Salt)
	}
}
