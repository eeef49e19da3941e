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

// spoken is an API whose answers are not lists of choices: responses, messages, embeddings, rerank. An answer of it has
// one choice, or as many as there are inputs that are not generated from.
type spoken struct {
	whole func(s *Server, a *answer) string // JSON
	// events of a stream: before the first word, of a word, and after the last; nil = the API has no streams
	begin func(a *answer) string
	word  func(a *answer, word string) string
	end   func(s *Server, a *answer) string
	// failed is the JSON of an error; nil = that of the OpenAI API
	failed func(f *failure) string
}

// sse is an event with a name, as responses and messages have them.
func sse(name, format string, parts ...any) string {
	return "event: " + name + "\ndata: " + fmt.Sprintf(format, parts...) + "\n\n"
}

// spokenEvents appends what came out since the last call, and reports whether that was all. The caller holds the lock.
func (s *Server) spokenEvents(b []byte, a *answer) ([]byte, bool) {
	c, spoken := &a.choices[0], a.format.spoken
	if a.stall == 0 || c.generated == 0 && a.open > 0 {
		return b, false
	}
	if !c.closed { // the events before the first word are to come
		c.closed = true
		b = append(b, spoken.begin(a)...)
	}
	for c.sent < c.generated && a.stall != 0 {
		c.sent++
		b = append(b, spoken.word(a, s.tokens.Word(c.key, c.sent-1))...)
		a.stall = max(a.stall-1, -1)
	}
	if a.open > 0 || a.stall == 0 {
		return b, false
	}
	return append(b, spoken.end(s, a)...), true
}

// text is all that an answer says: words, or the arguments of a call.
func (s *Server) text(a *answer) string {
	var b strings.Builder
	for n := range a.choices[0].generated {
		b.WriteString(s.tokens.Word(a.choices[0].key, n))
	}
	if a.call != "" {
		return callBegins + b.String() + callEnds
	}
	return b.String()
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
