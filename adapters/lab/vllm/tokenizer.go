package vllm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// readText reads a request that the front end answers without the engine.
func (s *Server) readText(w http.ResponseWriter, r *http.Request) (object, *failure) {
	o, f := readObject(w, r)
	if f == nil && s.Faults().Draining {
		f = drained()
	}
	if f == nil {
		_, f = s.readSettings(object{"model": o["model"]})
	}
	return o, f
}

// onTokenize answers with the tokens of a prompt or of a chat.
func (s *Server) onTokenize(w http.ResponseWriter, r *http.Request) {
	o, f := s.readText(w, r)
	var tokens []uint32
	if f == nil && o.has("messages") {
		tokens, f = s.chatPrompt(o)
	} else if f == nil {
		var text string
		if !o.has("prompt") {
			f = missing(len(o), "prompt", "messages")
		} else {
			f = o.text("prompt", &text)
		}
		tokens = s.tokens.Encode([]uint32{}, text)
	}
	if f != nil {
		f.write(w)
		return
	}
	writeJSON(w, 200, struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []uint32 `json:"tokens"`
		TokenStrs   *string  `json:"token_strs"`
	}{len(tokens), s.contextLength(), tokens, nil})
}

// onDetokenize answers with the text of tokens. Tokens are hashes: those that answers are made of have their words,
// any other one is a replacement character.
func (s *Server) onDetokenize(w http.ResponseWriter, r *http.Request) {
	o, f := s.readText(w, r)
	if f == nil && !o.has("tokens") {
		f = missing(len(o), "tokens")
	}
	var tokens []uint32
	if f == nil {
		tokens, f = o.tokens("tokens")
	}
	if f != nil {
		f.write(w)
		return
	}
	var text strings.Builder
	for _, token := range tokens {
		text.WriteString(s.tokens.Decode(token))
	}
	writeJSON(w, 200, map[string]string{"prompt": text.String()})
}

// render answers with the prompts of a request, each as a request of /inference/v1/generate that has it answered.
// Completions have a list of them.
func (s *Server) render(w http.ResponseWriter, r *http.Request, api api) {
	a, requests, f := s.prepare(w, r, api)
	if f == nil && s.Faults().Draining {
		f = drained()
	}
	if f != nil {
		f.writeAs(w, api.format)
		return
	}
	list := make([]string, 0, len(requests))
	for i := 0; i < len(requests); i += a.each.n {
		list = append(list, a.rendered(requests[i].Prompt, requests[i].MaxTokens))
	}
	text := list[0]
	if api.format == &completionFormat {
		text = "[" + strings.Join(list, ",") + "]"
	}
	writeJSON(w, http.StatusOK, json.RawMessage(text))
}

func (a *answer) rendered(prompt []uint32, maxTokens int) string {
	tokens, _ := json.Marshal(prompt) // numbers always encode
	asked := ""
	for _, name := range sampled[1:] { // the first is the limit, which always is there
		if a.asked.has(name) {
			asked += fmt.Sprintf(`,"%s":%s`, name, compact(a.asked[name], "null"))
		}
	}
	return fmt.Sprintf(`{"request_id":%s,"token_ids":%s,"token_offsets":null,"features":null,"content_parts":null,`+
		`"sampling_params":{"presence_penalty":0.0,"frequency_penalty":0.0,"repetition_penalty":1.0,`+
		`"temperature":1.0,"top_p":1.0,"min_p":0.0,"stop":[],"stop_token_ids":[],"max_tokens":%d,"output_kind":2,`+
		`"skip_clone":true,"bad_words":[],"skip_reading_prefix_cache":false%s},"model":%s,"reasoning_ended":null,"reasoning_parser_kwargs":null,`+
		`"return_token_ids":null,"output_mode":"tokens","stream":%t,"stream_options":%s,"cache_salt":%s,"priority":0,`+
		`"kv_transfer_params":null,"ec_transfer_params":null}`, a.id, tokens, maxTokens, asked, a.model, a.each.stream, compact(a.asked["stream_options"], "null"),
		compact(a.asked["cache_salt"], "null"))
}
