package vllm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
)

// spoken is an API whose answers are not made of the pieces of a format: all but chat completions and completions.
type spoken struct {
	whole func(s *Server, a *answer) string // JSON
	// events of a stream: before the first word, of the newest word of a choice, and after the last; nil = the API has
	// no streams. A begin has those alone whose events have names, and which have one choice.
	begin func(a *answer) string
	word  func(s *Server, a *answer, i int) string
	end   func(s *Server, a *answer) string
	// failed is the JSON of an error; nil = that of the OpenAI API
	failed func(f *failure) string
}

// lastError is the end of a stream that failed, of an API with errors of its own.
func (p *spoken) lastError(f *failure) string {
	if p.begin != nil {
		return sse("error", "%s", p.failed(f))
	}
	return data(p.failed(f)) + streamDone
}

// data is an event without a name.
func data(text string) string { return "data: " + text + "\n\n" }

// sse is an event with a name, as responses and messages have them.
func sse(name, format string, parts ...any) string {
	return "event: " + name + "\ndata: " + fmt.Sprintf(format, parts...) + "\n\n"
}

// spokenEvents appends what came out since the last call, and reports whether that was all. The caller holds the lock.
func (s *Server) spokenEvents(b []byte, a *answer) ([]byte, bool) {
	spoken := a.format.spoken
	for i := range a.choices {
		c := &a.choices[i]
		if a.stall == 0 || c.generated == 0 && a.open > 0 {
			continue
		}
		if c.sent == 0 && spoken.begin != nil {
			b = append(b, spoken.begin(a)...)
		}
		for c.sent < c.generated && a.stall != 0 {
			c.sent++
			b = append(b, spoken.word(s, a, i)...)
			a.stall = max(a.stall-1, -1)
		}
	}
	if a.open > 0 || a.stall == 0 {
		return b, false
	}
	return append(b, spoken.end(s, a)...), true
}

// words are those of a choice from one to before another.
func (s *Server) words(c *choice, from, to int) string {
	var b strings.Builder
	for n := from; n < to; n++ {
		b.WriteString(s.tokens.Word(c.key, n))
	}
	return b.String()
}

// newest is the last word that was sent of a choice.
func (s *Server) newest(a *answer, i int) string {
	c := &a.choices[i]
	return s.words(c, c.sent-1, c.sent)
}

// text is all that an answer of one choice says: words, or the arguments of a call.
func (s *Server) text(a *answer) string {
	said := s.words(&a.choices[0], 0, a.choices[0].generated)
	if a.call != "" {
		return callBegins + said + callEnds
	}
	return said
}

// Arguments of a call are an object with one text.
const (
	callBegins = `{"text":"`
	callEnds   = `"}`
)

// forcedCall returns the tool that the answer has to call; "" = it calls none. Tools and choices have the forms of all
// three APIs.
func forcedCall(o object) string {
	type named struct {
		Type     string `json:"type"`
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	var tools []named
	var choice named
	if json.Unmarshal(o["tools"], &tools) != nil || len(tools) == 0 {
		return ""
	}
	first := cmp.Or(tools[0].Name, tools[0].Function.Name)
	if string(o["tool_choice"]) == `"required"` {
		return first
	}
	if json.Unmarshal(o["tool_choice"], &choice) != nil {
		return "" // "auto" and "none", or nothing
	}
	if choice.Type == "any" {
		return first
	}
	return cmp.Or(choice.Name, choice.Function.Name)
}

// dialogue makes the prompt of a system text and of items, which are messages or what stands between them.
func (s *Server) dialogue(o object, system json.RawMessage, items []json.RawMessage) []uint32 {
	prompt := s.tokens.Special(nil, "<|begin|>"+s.drift())
	if o.has("tools") {
		prompt = s.tokens.Encode(prompt, string(o["tools"]))
	}
	turn := func(role string, content json.RawMessage) {
		prompt = s.tokens.Special(prompt, "<|"+role+"|>")
		prompt = s.tokens.Special(s.content(prompt, content), "<|end|>")
	}
	if len(system) > 0 && string(system) != "null" {
		turn("system", system)
	}
	for _, raw := range items {
		var item struct {
			Role    string          `json:"role"`
			Type    string          `json:"type"`
			Content json.RawMessage `json:"content"`
		}
		if json.Unmarshal(raw, &item) != nil || len(item.Content) == 0 {
			item.Content = raw
		}
		turn(cmp.Or(item.Role, item.Type, "user"), item.Content)
	}
	return s.tokens.Special(prompt, "<|assistant|>")
}

// content encodes a text, or a list of texts, media and others.
func (s *Server) content(prompt []uint32, content json.RawMessage) []uint32 {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return s.tokens.Encode(prompt, text)
	}
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) != nil {
		return s.tokens.Encode(prompt, string(content))
	}
	for _, raw := range parts {
		var p part
		switch {
		case json.Unmarshal(raw, &p) == nil && p.Text != nil:
			prompt = s.tokens.Encode(prompt, *p.Text)
		case slices.Contains([]string{"image", "document", "input_image", "input_file", "input_audio"}, p.Type):
			media := s.tokens.Special(nil, string(raw))[0]
			for i := range uint32(mediaTokens) {
				prompt = append(prompt, media+i)
			}
		default: // calls of tools and their results
			prompt = s.tokens.Encode(prompt, string(raw))
		}
	}
	return prompt
}

// items reads a list of items that must be there.
func (o object) items(field string) ([]json.RawMessage, *failure) {
	if !o.has(field) {
		return nil, missing(len(o), field)
	}
	var list []json.RawMessage
	f := o.decode(field, &list, "list_type", "Input should be a valid list")
	if f == nil && len(list) == 0 {
		f = badRequest("List should have at least 1 item", field)
	}
	return list, f
}

// cached is how many tokens of the prompts were found in the prefix cache.
func (a *answer) cached() (tokens int) {
	for _, c := range a.choices {
		tokens += c.cached
	}
	return tokens
}

// cut reports whether the answer reached its limit.
func (a *answer) cut() bool { return a.choices[0].ended == batch.Length && a.call == "" }

// writeAs answers with an error in the form of an API.
func (f *failure) writeAs(w http.ResponseWriter, api *format) {
	if api.spoken == nil || api.spoken.failed == nil || f.kind == "" {
		f.write(w)
		return
	}
	writeJSON(w, f.status, json.RawMessage(api.spoken.failed(f)))
}

// onModel answers with one model.
func (s *Server) onModel(w http.ResponseWriter, id string) {
	for _, card := range s.cards() {
		if card.ID == id {
			writeJSON(w, http.StatusOK, card)
			return
		}
	}
	s.unknownModel(id).write(w)
}

// compact is a JSON value without blanks, as text.
func compact(raw json.RawMessage, otherwise string) string {
	var b bytes.Buffer
	if len(raw) == 0 || json.Compact(&b, raw) != nil {
		return otherwise
	}
	return b.String()
}

// inner is text as it stands within a JSON string.
func inner(text string) string {
	q := quoted(text)
	return string(q[1 : len(q)-1])
}

// bare is the part of an answer's id behind its prefix.
func (a *answer) bare() string {
	id, err := strconv.Unquote(string(a.id))
	if err != nil {
		return "0"
	}
	return inner(strings.TrimPrefix(id, a.format.idPrefix))
}
