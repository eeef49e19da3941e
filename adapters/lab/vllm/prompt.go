package vllm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// mediaTokens is what a part of a message counts that is not text.
const mediaTokens = 256

// mediaTypes are the parts of a message that are not text.
var mediaTypes = []string{"image_url", "image_pil", "image_embeds", "input_audio", "audio_url", "audio_embeds",
	"video_url", "file"}

// message is one message of a chat. Content is a string, a list of parts, or null.
type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls"`
}

// part is one part of a message's content.
type part struct {
	Type string  `json:"type"`
	Text *string `json:"text"`
}

func (s *Server) chatPrompts(o object) ([][]uint32, *failure) {
	prompt, f := s.chatPrompt(o)
	return [][]uint32{prompt}, f
}

// chatPrompt applies the chat template: what tools there are, then each message between two tokens of its own, then the
// token that begins the answer.
func (s *Server) chatPrompt(o object) ([]uint32, *failure) {
	if !o.has("messages") {
		return nil, missing(len(o), "messages")
	}
	var messages []message
	if f := o.decode("messages", &messages, "list_type", "Input should be a valid list"); f != nil {
		return nil, f
	}
	if len(messages) == 0 {
		return nil, badRequest("Cannot apply chat template to an empty conversation. Provide at least one message.", "")
	}
	prompt := s.tokens.Special(nil, "<|begin|>"+s.drift())
	if o.has("tools") {
		prompt = s.tokens.Encode(prompt, string(o["tools"]))
	}
	for i, m := range messages {
		if f := m.check(i); f != nil {
			return nil, f
		}
		prompt = s.tokens.Special(prompt, "<|"+m.Role+"|>")
		var f *failure
		if prompt, f = s.encodeContent(prompt, m.Content); f != nil {
			return nil, f
		}
		if len(m.ToolCalls) > 0 {
			prompt = s.tokens.Encode(prompt, string(m.ToolCalls))
		}
		prompt = s.tokens.Special(prompt, "<|end|>")
	}
	return s.tokens.Special(prompt, "<|assistant|>"), nil
}

// drift returns what a chat template that drifts puts before a prompt, which is another text each time.
func (s *Server) drift() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.faults.RenderDrift {
		return ""
	}
	s.drawn++
	return strconv.FormatUint(s.drawn, 10)
}

// check finds the faults that vLLM refuses. It names one schema, where vLLM goes through all of them.
func (m message) check(i int) *failure {
	loc := fmt.Sprintf("body.messages.%d.", i)
	if m.Role == "" {
		return invalid(loc+"role", "{'type': 'missing', 'loc': '"+loc+"role', 'msg': 'Field required'}")
	}
	if string(m.Content) == "null" && m.Role != "assistant" && m.Role != "function" {
		return wrongType(loc+"content", "string_type", "Input should be a valid string", m.Content)
	}
	return nil
}

func (s *Server) encodeContent(prompt []uint32, content json.RawMessage) ([]uint32, *failure) {
	var text string
	if len(content) == 0 || json.Unmarshal(content, &text) == nil {
		return s.tokens.Encode(prompt, text), nil
	}
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) != nil {
		return nil, wrongContent()
	}
	for _, raw := range parts {
		var p part
		if json.Unmarshal(raw, &p) != nil {
			return nil, wrongContent()
		}
		if p.Text != nil {
			prompt = s.tokens.Encode(prompt, *p.Text)
			continue
		}
		if !slices.Contains(mediaTypes, p.Type) {
			return nil, wrongContent()
		}
		// Equal media give equal tokens, as many for a small picture as for a large one.
		media := s.tokens.Special(nil, string(raw))[0]
		for i := range uint32(mediaTokens) {
			prompt = append(prompt, media+i)
		}
	}
	return prompt, nil
}

func wrongContent() *failure {
	return invalid("body.messages", "{'type': 'string_type', 'loc': 'body.messages', 'msg': 'Input should be a valid "+
		"string or a list of parts'}")
}

// completionPrompts reads the prompt of a completion: a string, an array of tokens, or an array of either.
func (s *Server) completionPrompts(o object) ([][]uint32, *failure) {
	raw := o["prompt"]
	if !o.has("prompt") || string(raw) == `""` {
		return nil, badRequest("Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)",
			"prompt")
	}
	if one, ok := s.onePrompt(raw); ok {
		return [][]uint32{one}, nil
	}
	var list []json.RawMessage
	isList := json.Unmarshal(raw, &list) == nil
	if isList && len(list) == 0 {
		return nil, badRequest("You must pass at least one prompt", "")
	}
	if isList && len(list) <= choiceLimit {
		prompts := make([][]uint32, 0, len(list))
		for _, each := range list {
			if one, ok := s.onePrompt(each); ok {
				prompts = append(prompts, one)
			}
		}
		if len(prompts) == len(list) {
			return prompts, nil
		}
	}
	var details []string
	for _, kind := range []string{"list", "list", "string", "list"} { // of tokens, of lists, the text, of texts
		details = append(details, fmt.Sprintf(
			"{'type': '%[1]s_type', 'loc': 'body.prompt', 'msg': 'Input should be a valid %[1]s', 'input': '%[2]s'}",
			kind, shown(raw)))
	}
	return nil, invalid("body.prompt", details...)
}

func (s *Server) onePrompt(raw json.RawMessage) ([]uint32, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return s.tokens.Encode(nil, text), true
	}
	var tokens []uint32
	if json.Unmarshal(raw, &tokens) == nil && len(tokens) > 0 {
		return tokens, true
	}
	return nil, false
}
