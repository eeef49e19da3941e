package parsers_test

import (
	"testing"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/messages"
)

// What a chat completion says of the length of its answer is read, and of other APIs it is not.
func TestOutputHints(t *testing.T) {
	const chats = "/v1/chat/completions"
	for name, c := range map[string]struct {
		path, body string
		want       messages.OutputHints
	}{
		"nothing": {chats, `{"messages":[]}`, messages.OutputHints{}},
		"thinks": {chats, `{"chat_template_kwargs":{"enable_thinking":true}}`,
			messages.OutputHints{Thinking: true}},
		"thinks not": {chats, `{"chat_template_kwargs":{"enable_thinking" : false}}`,
			messages.OutputHints{NoThinking: true}},
		"odd": {chats, `{"chat_template_kwargs":{"enable_thinking":1,"thinking_budget":"9"}}`,
			messages.OutputHints{}},
		"budget": {chats, `{"chat_template_kwargs":{"thinking_budget": 5000}}`,
			messages.OutputHints{ThinkingTokens: 5000}},
		"within": {chats, `{"chat_template_kwargs":{"a":{"enable_thinking":true}}}`, messages.OutputHints{}},
		"elsewhere": {chats, `{"enable_thinking":true,"messages":[{"enable_thinking":true}]}`,
			messages.OutputHints{}},
		"tools":       {chats, `{"tools":[{"type":"function"}]}`, messages.OutputHints{Tools: true}},
		"no tools":    {chats, `{"tools":[],"functions":null}`, messages.OutputHints{}},
		"another API": {"/v1/messages", `{"tools":[{"name":"f"}]}`, messages.OutputHints{}},
	} {
		t.Run(name, func(t *testing.T) {
			var got messages.Request
			err := parsers.New(parsers.Config{}).Parse(c.path, "application/json", "", []byte(c.body), &got)
			if err != nil || got.Hints != c.want {
				t.Errorf("%s: got %+v, %v, want %+v", c.body, got.Hints, err, c.want)
			}
		})
	}
}
