package vllm

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// messagesFormat is the API of Anthropic.
var messagesFormat = format{idPrefix: "chatcmpl-", spoken: &spoken{
	whole: func(s *Server, a *answer) string {
		block := fmt.Sprintf(`{"type":"text","text":%s}`, quoted(s.text(a)))
		if a.call != "" {
			block = fmt.Sprintf(`{"type":"tool_use","id":"toolu_%s","name":%s,"input":%s}`, a.bare(), quoted(a.call),
				s.text(a))
		}
		return fmt.Sprintf(
			`{"id":%s,"type":"message","role":"assistant","content":[%s],"model":%s,"stop_reason":"%s",`+
				`"usage":%s}`, a.id, block, a.model, a.stopReason(), s.messagesUsage(a))
	},
	begin: func(a *answer) string {
		text := sse("message_start", `{"type":"message_start","message":{"id":%s,"type":"message","role":"assistant",`+
			`"content":[],"model":%s,"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":%d,`+
			`"output_tokens":0}}}`, a.id, a.model, a.promptTokens)
		block := `{"type":"text","text":""}`
		if a.call != "" {
			block = fmt.Sprintf(`{"type":"tool_use","id":"toolu_%s","name":%s,"input":{}}`, a.bare(), quoted(a.call))
		}
		text += sse("content_block_start", `{"type":"content_block_start","content_block":%s,"index":0}`, block)
		if a.call != "" {
			text += messagesDelta(a, callBegins)
		}
		return text
	},
	word: func(s *Server, a *answer, i int) string { return messagesDelta(a, s.newest(a, i)) },
	end: func(s *Server, a *answer) string {
		text := ""
		if a.call != "" {
			text = messagesDelta(a, callEnds)
		}
		return text + sse("content_block_stop", `{"type":"content_block_stop","index":0}`) +
			sse("message_delta", `{"type":"message_delta","delta":{"stop_reason":"%s","stop_sequence":null},"usage":%s}`,
				a.stopReason(), s.messagesUsage(a)) +
			sse("message_stop", `{"type":"message_stop"}`)
	},
	failed: func(f *failure) string {
		return fmt.Sprintf(`{"type":"error","error":{"type":%s,"message":%s}}`, quoted(f.kind), quoted(f.message))
	},
}}

func messagesDelta(a *answer, word string) string {
	kind, field := "text_delta", "text"
	if a.call != "" {
		kind, field = "input_json_delta", "partial_json"
	}
	return sse("content_block_delta",
		`{"type":"content_block_delta","delta":{"type":"%s","%s":%s},"index":0}`, kind, field, quoted(word))
}

func (a *answer) stopReason() string {
	switch {
	case a.call != "":
		return "tool_use"
	case a.cut():
		return "max_tokens"
	}
	return "end_turn"
}

// messagesUsage is the usage of an answer. With details the prompt is told in three parts.
func (s *Server) messagesUsage(a *answer) string {
	if !s.cfg.PromptTokensDetails {
		return fmt.Sprintf(`{"input_tokens":%d,"output_tokens":%d}`, a.promptTokens, a.choices[0].generated)
	}
	cached := a.cached()
	created := s.created(a, cached)
	return fmt.Sprintf(`{"input_tokens":%d,"output_tokens":%d,"cache_creation_input_tokens":%d,`+
		`"cache_read_input_tokens":%d}`, a.promptTokens-cached-created, a.choices[0].generated, created, cached)
}

// messagesPrompt reads the prompt of a message.
func (s *Server) messagesPrompt(o object) ([]uint32, *failure) {
	items, f := o.items("messages")
	if f != nil {
		return nil, f
	}
	return s.dialogue(o, o["system"], items), nil
}

func (s *Server) messagesPrompts(o object) ([][]uint32, *failure) {
	delete(o, "n")
	prompt, f := s.messagesPrompt(o)
	if f == nil && !o.has("max_tokens") {
		f = missing(len(o), "max_tokens")
	}
	return [][]uint32{prompt}, f
}

// onCountTokens answers with the length of a message's prompt.
func (s *Server) onCountTokens(w http.ResponseWriter, r *http.Request) {
	o, f := readObject(w, r)
	var prompt []uint32
	if f == nil {
		prompt, f = s.messagesPrompt(o)
	}
	if f == nil {
		_, f = s.readSettings(object{"model": o["model"]})
	}
	if f != nil {
		f.writeAs(w, &messagesFormat)
		return
	}
	writeJSON(w, http.StatusOK, json.RawMessage(fmt.Sprintf(
		`{"input_tokens":%d,"context_management":{"original_input_tokens":%[1]d}}`, len(prompt))))
}
