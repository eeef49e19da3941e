package parsers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/messages"
)

// The media of messages are told by their hashes, each once, however they are written, and only to those who ask.
func TestItems(t *testing.T) {
	image := func(url string) string {
		return `{"type":"image_url","image_url":{"url":"` + url + `"}}`
	}
	chat := func(parts ...string) string {
		return `{"model":"m","messages":[{"role":"user","content":[` + strings.Join(parts, ",") + `]}]}`
	}
	long := "data:image/png;base64," + strings.Repeat("A", 5000)
	var many, first []string
	for i := range 70 {
		many = append(many, image(fmt.Sprint(i)))
		first = append(first, fmt.Sprint("image ", i))
	}
	const chats, responses = "/v1/chat/completions", "/v1/responses"
	parser := parsers.New(parsers.Config{})
	for name, c := range map[string]struct {
		path, body string
		want       []string // the kind and what is hashed
	}{
		"none": {chats, chat(`{"type":"text","text":"url"}`), nil},
		"twice": {chats, chat(image("http://a/b"), image(long), image("http://a/b")),
			[]string{"image http://a/b", "image " + long}},
		"escaped":  {chats, chat(image(`http:\/\/a\/b`), image("http://a/b")), []string{"image http://a/b"}},
		"a sound":  {chats, chat(`{"type":"input_audio","input_audio":{"data":"UklG"}}`), []string{"audio UklG"}},
		"of 70":    {chats, chat(many...), first[:64]},
		"messages": {"/v1/messages", chat(`{"type":"image","source":{"data":"iVBO"}}`), []string{"image iVBO"}},
		"kinds": {chats, chat(`{"type":"video_url","video_url":{"url":"v"}}`,
			`{"type":"audio_url","audio_url":{"url":"s"}}`, `{"type":"file","file":{"file_data":"f"}}`, image("i")),
			[]string{"video v", "audio s", "file f", "image i"}},
		"type behind": {chats, chat(`{"image_url":{"url":"i"},"type":"image_url"}`), []string{"image i"}},
		"type of a source": {"/v1/messages", chat(`{"source":{"media_type":"image/png","data":"i"},"type":"image"}`,
			`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"d"}}`,
			`{"source":{"data":"x","media_type":"image/png"},"type":"image"}`),
			[]string{"image i", "file d", "unknown x"}},
		"input of responses": {"/v1/responses", `{"input":[{"role":"user","content":[` +
			`{"type":"input_image","image_url":"i"},{"type":"input_file","file_data":"f"}]}]}`,
			[]string{"image i", "file f"}},
		"of tools": {chats, `{"tools":[{"url":"x"}],"messages":[]}`, nil},
		"last prompt": {chats, chat(image("a"))[:len(chat(image("a")))-1] + `,` + chat(image("b"))[1:],
			[]string{"image b"}},
		"as texts": {chats, chat(`{"type":"image_url","image_url":"i"}`, `{"type":"video_url","video_url":"v"}`),
			[]string{"image i", "video v"}},
		"files by URL": {responses, `{"input":[{"role":"user","content":[{"type":"input_file","file_url":"f"}]}]}`,
			[]string{"file f"}},
		"of tools' results": {"/v1/messages", chat(`{"type":"tool_result","tool_use_id":"t","content":[` +
			`{"type":"text","text":"x"},{"type":"image","source":{"type":"base64","data":"i"}}]}`),
			[]string{"image i"}},
		"of tools' outputs": {responses, `{"input":[{"type":"function_call_output","output":[` +
			`{"type":"input_image","image_url":"i"}]},{"type":"computer_call_output",` +
			`"output":{"type":"computer_screenshot","image_url":"s"}}]}`, []string{"image i", "image s"}},
		"in a document": {"/v1/messages", chat(`{"type":"document","source":{"type":"content","content":[` +
			`{"type":"image","source":{"data":"i","type":"base64"}}]}}`), []string{"image i"}},

		// The same members where they are no media.
		"a call": {"/v1/messages", chat(`{"type":"tool_use","id":"t","name":"f","input":{"url":"u","data":"d",` +
			`"file_data":"f","image_url":{"url":"i"},"content":[{"type":"image","source":{"data":"i"}}]}}`), nil},
		"a call of chat": {chats, `{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"a",` +
			`"function":{"name":"f","arguments":{"url":"u","image_url":"i"}},"url":"u"}]}]}`, nil},
		"an annotation": {responses, `{"input":[{"role":"assistant","content":[{"type":"output_text","text":"x",` +
			`"annotations":[{"type":"url_citation","url":"u","data":"d"}]}]}]}`, nil},
		"a call's action": {responses, `{"input":[{"type":"web_search_call","action":{"url":"u","sources":` +
			`[{"type":"url","url":"u"}]}},{"type":"function_call","arguments":"{}","data":"d","url":"u"}]}`, nil},
		"a result of a search": {"/v1/messages", chat(`{"type":"search_result","source":"https://a/b","title":"t",`+
			`"content":[{"type":"text","text":"x"}]}`, `{"type":"web_search_tool_result","content":[`+
			`{"type":"web_search_result","url":"u","encrypted_content":"e"}]}`), nil},
		"a document in words": {"/v1/messages", chat(`{"type":"document","source":{"type":"text",`+
			`"media_type":"text/plain","data":"d"}}`, `{"type":"document","so\u0075rce":{"data":"d","media_type":`+
			`"text/plain","type":"text"},"title":"t"}`), nil},
		"of the system": {"/v1/messages", `{"system":[{"type":"text","text":"x","url":"u"}],"messages":[]}`, nil},
		"in a message": {chats, `{"messages":[{"role":"user","content":"x","url":"u","image_url":"i","data":"d"}]}`,
			nil},
		"of a turn before": {responses, `{"previous_input_messages":[{"content":[{"image_url":"i"}]}],"input":"x"}`,
			nil},
		"in lists": {chats, chat(`{"type":"image_url","image_url":["i",{"url":"u"}]}`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var want, told []string
			for _, of := range c.want {
				kind, text, _ := strings.Cut(of, " ")
				want = append(want, fmt.Sprint(kind, " ", xxhash.Sum64String(text)))
			}
			var got, plain messages.Request
			if err := parser.WithItems().Parse(c.path, "application/json", "", []byte(c.body), &got); err != nil {
				t.Fatal(err)
			}
			for _, m := range got.Items.All() {
				told = append(told, fmt.Sprint(m.Kind, " ", m.Hash))
			}
			if !slices.Equal(told, want) {
				t.Errorf("got %v, want %v", told, want)
			}
			err := parser.Parse(c.path, "application/json", "", []byte(c.body), &plain)
			if n := plain.Items.Len(); err != nil || n > 0 {
				t.Errorf("%v of them, unasked, error %v", n, err)
			}
			if got.Items = plain.Items; fmt.Sprint(got) != fmt.Sprint(plain) {
				t.Errorf("the other facts differ: %+v and %+v", got, plain)
			}
		})
	}
}

// A long text counts with all that it says wherever it is no medium, and a medium counts as 256 tokens.
func TestLongTextsAreNoMedia(t *testing.T) {
	long := strings.Repeat("word ", 2000)
	chat := func(part string) string { return `{"messages":[{"role":"user","content":[` + part + `]}]}` }
	for name, c := range map[string]struct {
		part  string
		media int
	}{
		"an image":            {`{"type":"image","source":{"type":"base64","data":"` + long + `"}}`, 1},
		"a call":              {`{"type":"tool_use","input":{"data":"` + long + `"}}`, 0},
		"a document in words": {`{"type":"document","source":{"type":"text","data":"` + long + `"}}`, 0},
	} {
		var got messages.Request
		if err := parsers.New(parsers.Config{}).Parse("/v1/messages", "", "", []byte(chat(c.part)), &got); err != nil {
			t.Fatal(err)
		}
		if long := got.PromptTokens > 2000; got.Media != c.media || long != (c.media == 0) {
			t.Errorf("%s: %d media, %d tokens, want %d and the tokens of the text unless it is one", name, got.Media,
				got.PromptTokens, c.media)
		}
	}
}
