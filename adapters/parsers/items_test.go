package parsers_test

import (
	"fmt"
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
		first = append(first, fmt.Sprint(i))
	}
	const chats = "/v1/chat/completions"
	parser := parsers.New(parsers.Config{})
	for name, c := range map[string]struct {
		path, body string
		want       []string // what is hashed
	}{
		"none": {chats, chat(`{"type":"text","text":"url"}`), nil},
		"twice": {chats, chat(image("http://a/b"), image(long), image("http://a/b")),
			[]string{"http://a/b", long}},
		"escaped":  {chats, chat(image(`http:\/\/a\/b`), image("http://a/b")), []string{"http://a/b"}},
		"a sound":  {chats, chat(`{"type":"input_audio","input_audio":{"data":"UklG"}}`), []string{"UklG"}},
		"of 70":    {chats, chat(many...), first[:64]},
		"messages": {"/v1/messages", chat(`{"type":"image","source":{"data":"iVBO"}}`), []string{"iVBO"}},
		"of tools": {chats, `{"tools":[{"url":"x"}],"messages":[]}`, nil},
		"last prompt": {chats, `{"messages":[` + image("a") + `],"messages":[` + image("b") + `]}`,
			[]string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			var want []uint64
			for _, text := range c.want {
				want = append(want, xxhash.Sum64String(text))
			}
			var got, plain messages.Request
			if err := parser.WithItems().Parse(c.path, "application/json", "", []byte(c.body), &got); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(got.Items.Append(nil)) != fmt.Sprint(want) {
				t.Errorf("got %v, want %v", got.Items.Append(nil), want)
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
