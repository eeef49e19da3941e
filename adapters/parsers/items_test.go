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
	const chats = "/v1/chat/completions"
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
		"last prompt": {chats, `{"messages":[` + image("a") + `],"messages":[` + image("b") + `]}`,
			[]string{"image b"}},
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
