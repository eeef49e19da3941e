package vllm

import (
	"encoding/json"
	"fmt"
)

// responsesFormat is the API of responses.
var responsesFormat = format{idPrefix: "resp_", spoken: &spoken{
	whole: func(s *Server, a *answer) string {
		return a.response(a.responseEnd(), s.responseOutput(a), s.responseUsage(a))
	},
	begin: func(a *answer) string {
		running := a.response("in_progress", "", "null")
		text := a.numbered("response.created", `"response":%s`, running) +
			a.numbered("response.in_progress", `"response":%s`, running)
		if a.call != "" {
			return text + a.numbered("response.output_item.added", `"item":%s,"output_index":0`,
				a.responseItem("in_progress", "")) + responsesDelta(a, callBegins)
		}
		return text + a.numbered("response.output_item.added", `"item":{"id":"msg_%s","content":[],"role":"assistant",`+
			`"status":"in_progress","type":"message","phase":null},"output_index":0`, a.bare()) +
			a.numbered("response.content_part.added", `"content_index":0,"item_id":"msg_%s","output_index":0,"part":`+
				`{"annotations":[],"text":"","type":"output_text","logprobs":[]}`, a.bare())
	},
	word: func(s *Server, a *answer, i int) string { return responsesDelta(a, s.newest(a, i)) },
	end: func(s *Server, a *answer) string {
		said, text := s.text(a), ""
		if a.call != "" {
			text = responsesDelta(a, callEnds) + a.numbered("response.function_call_arguments.done",
				`"arguments":%s,"item_id":"fc_%s","name":%s,"output_index":0`, quoted(said), a.bare(), quoted(a.call))
		} else {
			a.events++
			text = sse("response.output_text.done", `{"content_index":0,"item_id":"msg_%s","logprobs":[],"output_index":0,`+
				`"sequence_number":%d,"text":%s,"type":"response.output_text.done"}`, a.bare(), a.events-1, quoted(said)) +
				a.numbered("response.content_part.done", `"content_index":0,"item_id":"msg_%s","output_index":0,"part":%s`,
					a.bare(), responsePart(said))
		}
		return text + a.numbered("response.output_item.done", `"item":%s,"output_index":0`,
			a.responseItem("completed", said)) +
			a.numbered("response.completed", `"response":%s`, a.response(a.responseEnd(), s.responseOutput(a),
				s.responseUsage(a)))
	},
}}

func responsesDelta(a *answer, word string) string {
	if a.call != "" {
		return a.numbered("response.function_call_arguments.delta", `"delta":%s,"item_id":"fc_%s","output_index":0`,
			quoted(word), a.bare())
	}
	return a.numbered("response.output_text.delta",
		`"content_index":0,"delta":%s,"item_id":"msg_%s","logprobs":[],"output_index":0`, quoted(word), a.bare())
}

// numbered is an event with the next number of the stream.
func (a *answer) numbered(name, format string, parts ...any) string {
	a.events++
	return sse(name, `{%s,"sequence_number":%d,"type":"%s"}`, fmt.Sprintf(format, parts...), a.events-1, name)
}

func (a *answer) responseEnd() string {
	if a.cut() {
		return "incomplete"
	}
	return "completed"
}

func responsePart(text string) string {
	return fmt.Sprintf(`{"annotations":[],"text":%s,"type":"output_text","logprobs":null}`, quoted(text))
}

// responseItem is the only item of an answer's output.
func (a *answer) responseItem(status, said string) string {
	if a.call != "" {
		return fmt.Sprintf(`{"arguments":%s,"call_id":"call_%s","name":%s,"type":"function_call","id":"fc_%[2]s",`+
			`"status":"%[4]s"}`, quoted(said), a.bare(), quoted(a.call), status)
	}
	return fmt.Sprintf(`{"id":"msg_%s","content":[%s],"role":"assistant","status":"%s","type":"message","phase":null}`,
		a.bare(), responsePart(said), status)
}

func (s *Server) responseOutput(a *answer) string { return a.responseItem("completed", s.text(a)) }

func (s *Server) responseUsage(a *answer) string {
	cached, generated := a.cached(), a.choices[0].generated
	if !s.cfg.PromptTokensDetails {
		cached = 0
	}
	return fmt.Sprintf(`{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":0,`+
		`"input_tokens_per_turn":[],"cached_tokens_per_turn":[]},"output_tokens":%d,"output_tokens_details":`+
		`{"reasoning_tokens":0,"tool_output_tokens":0,"output_tokens_per_turn":[],"tool_output_tokens_per_turn":[]},`+
		`"total_tokens":%d}`, a.promptTokens, cached, generated, a.promptTokens+generated)
}

// response is the object of an answer.
func (a *answer) response(status, output, usage string) string {
	why, limit := "null", "null"
	if status == "incomplete" {
		why = `{"reason":"max_output_tokens"}`
	}
	if a.each.maxTokens > 0 {
		limit = fmt.Sprint(a.each.maxTokens)
	}
	return fmt.Sprintf(`{"id":%s,"created_at":%d,"incomplete_details":%s,"instructions":%s,"metadata":null,"model":%s,`+
		`"object":"response","output":[%s],"parallel_tool_calls":true,"temperature":1.0,"tool_choice":%s,"tools":%s,`+
		`"top_p":1.0,"background":false,"max_output_tokens":%s,"max_tool_calls":null,"previous_response_id":null,`+
		`"prompt":null,"reasoning":null,"service_tier":"auto","status":"%s","text":null,"top_logprobs":null,`+
		`"truncation":"disabled","usage":%s,"user":null,"presence_penalty":0.0,"frequency_penalty":0.0,`+
		`"kv_transfer_params":null,"ec_transfer_params":null,"input_messages":null,"output_messages":null}`,
		a.id, a.came.Unix(), why, compact(a.asked["instructions"], "null"), a.model, output,
		compact(a.asked["tool_choice"], `"auto"`), compact(a.asked["tools"], "[]"), limit, status, usage)
}

func (s *Server) responsesPrompts(o object) ([][]uint32, *failure) {
	delete(o, "n")
	if o.has("max_output_tokens") {
		o["max_tokens"] = o["max_output_tokens"]
	}
	items, f := []json.RawMessage{o["input"]}, (*failure)(nil)
	if !o.has("input") || o["input"][0] != '"' { // a text is the only item
		items, f = o.items("input")
	}
	if f != nil {
		return nil, f
	}
	return [][]uint32{s.dialogue(o, o["instructions"], items)}, nil
}
