package vllm

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
)

const (
	eventStream = "text/event-stream; charset=utf-8"
	streamDone  = "data: [DONE]\n\n" // ends the streams whose events have no names
)

// format is what differs between chat completions and completions: pieces of JSON in vLLM's order of keys. Words of
// answers are plain ASCII letters and spaces, so that none has to be escaped.
type format struct {
	idPrefix, object, chunkObject string
	idMember                      string // of a request, with its id; "" = the API has none
	maxTokens                     int    // of an answer whose request names no limit; 0 = any number
	chat                          bool
	spoken                        *spoken // nil = answers are lists of choices, of the pieces below

	text, afterText, endOfChoice, tail string // of a whole answer

	role                     string // delta and rest of the first chunk of a choice; "" = there is none
	delta, afterDelta        string // around a word
	afterWords               string // behind the last word
	unfinished, beforeReason string // end of a chunk's choice, without and with a finish reason
	afterReason              string
}

var chatFormat = format{
	idPrefix: "chatcmpl-", object: "chat.completion", chunkObject: "chat.completion.chunk", chat: true,
	text:        `,"message":{"role":"assistant","content":"`,
	afterText:   `","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},"logprobs":null,`,
	endOfChoice: `","stop_reason":null,"token_ids":null,"routed_experts":null}`,
	tail:        `,"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`,

	role:  `,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`,
	delta: `,"delta":{"content":"`, afterDelta: `"},"logprobs":null,"finish_reason":`,
	unfinished: `null,"token_ids":null}]`, beforeReason: `"`, afterReason: `","stop_reason":null,"token_ids":null}]`,
}

var completionFormat = format{
	idPrefix: "cmpl-", object: "text_completion", chunkObject: "text_completion", maxTokens: 16,
	text:        `,"text":"`,
	afterText:   `","logprobs":null,`,
	endOfChoice: `","stop_reason":null,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null,"routed_experts":null}`,
	tail:        `,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`,

	delta: `,"text":"`, afterDelta: `","logprobs":null,"finish_reason":`,
	unfinished:   `null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]`,
	beforeReason: `"`, afterReason: `","stop_reason":null,"prompt_token_ids":null,"token_ids":null}]`,
}

// callFormat is a chat whose answer calls a tool. Its arguments are an object with one text.
func callFormat(name, id string) *format {
	f := chatFormat
	head := `"tool_calls":[{"index":0,"id":"call_` + id + `","type":"function","function":{"name":` +
		string(quoted(name)) + `,"arguments":"` + inner(callBegins)
	f.text = `,"message":{"role":"assistant","content":null,` + strings.Replace(head, `"index":0,`, "", 1)
	f.afterText = inner(callEnds) + `"}}],"refusal":null,"annotations":null,"audio":null,"function_call":null,` +
		`"reasoning":null},"logprobs":null,`
	f.role = `,"delta":{"role":"assistant","content":null,` + head +
		`"}}]},"logprobs":null,"finish_reason":null}]`
	f.delta = `,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"`
	f.afterWords, f.afterDelta = inner(callEnds), `"}}]},"logprobs":null,"finish_reason":`
	return &f
}

// reason is why a choice ended, as its answer says it.
func (a *answer) reason(ended batch.Reason) string {
	if a.call != "" && a.format.chat && ended != batch.Abort {
		return "tool_calls"
	}
	return ended.String()
}

// lastEvents ends a stream with an error. Here, and nowhere else, vLLM puts blanks into its JSON.
func (f *failure) lastEvents(b []byte, api *format) []byte {
	if api.spoken != nil && api.spoken.failed != nil {
		return append(b, api.spoken.lastError(f)...)
	}
	b = append(append(b, `data: {"error": {"message": `...), quoted(f.message)...)
	b = append(append(b, `, "type": `...), quoted(f.kind)...)
	b = strconv.AppendInt(append(b, `, "param": null, "code": `...), int64(f.status), 10)
	return append(b, "}}\n\n"+streamDone...)
}

// stream writes an answer as it comes out: all events of a delivery in one write. It returns when the answer is
// complete or the client has left.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, a *answer) {
	w.Header().Set("Content-Type", eventStream)
	flush := http.NewResponseController(w)
	head := a.head([]byte("data: "), a.format.chunkObject)
	var b []byte
	turned := s.turning()
	for {
		if flush.Flush() != nil {
			return
		}
		select {
		case <-a.ready:
		case <-turned:
		case <-r.Context().Done():
			return
		}
		turned = s.turning()
		var done bool
		b, done = s.events(b[:0], head, a)
		if _, err := w.Write(b); err != nil || done {
			return
		}
	}
}

// events appends what came out since the last call, and reports whether that was all.
func (s *Server) events(b, head []byte, a *answer) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.broken {
		return engineDead().lastEvents(b, a.format), true
	}
	if s.faults.Stalled {
		return b, false
	}
	if a.format.spoken != nil {
		return s.spokenEvents(b, a)
	}
	for i := range a.choices {
		c := &a.choices[i]
		if a.stall == 0 {
			return b, false
		}
		if c.sent == 0 && c.generated > 0 && a.format.role != "" {
			b = append(b, head...)
			b = append(b, `{"index":`...)
			b = append(strconv.AppendInt(b, int64(i), 10), a.format.role...)
			b = append(a.runningUsage(b, 0), ",\"prompt_token_ids\":null,\"prompt_text\":null}\n\n"...)
		}
		for c.sent < c.generated && a.stall != 0 {
			c.sent++
			b = s.event(b, head, a, i, s.tokens.Word(c.key, c.sent-1))
			a.stall = max(a.stall-1, -1)
		}
		if c.ended == batch.Abort && !c.closed {
			b = s.event(b, head, a, i, "")
		}
	}
	if a.open > 0 || a.stall == 0 {
		return b, false
	}
	if a.each.usage {
		b = append(b, head...)
		b = append(s.finalUsage(append(b, `],"usage":`...), a), `,"system_fingerprint":"`...)
		b = append(append(b, s.fingerprint()...), "\"}\n\n"...)
	}
	return append(b, streamDone...), true
}

// event appends a word of choice i, the last one that is sent, or without a word that the choice was aborted.
func (s *Server) event(b, head []byte, a *answer, i int, word string) []byte {
	c := &a.choices[i]
	b = append(b, head...)
	b = append(b, `{"index":`...)
	b = append(strconv.AppendInt(b, int64(i), 10), a.format.delta...)
	last := c.sent == c.generated && c.ended != batch.Running && (c.ended != batch.Abort || word == "")
	if b = append(b, word...); last {
		b = append(b, a.format.afterWords...)
	}
	b = append(b, a.format.afterDelta...)
	if c.closed = last; last {
		b = append(append(b, a.format.beforeReason...), a.reason(c.ended)...)
		b = append(b, a.format.afterReason...)
	} else {
		b = append(b, a.format.unfinished...)
	}
	b = a.runningUsage(b, c.sent)
	if last && !a.each.usage {
		b = append(append(b, `,"system_fingerprint":"`...), s.fingerprint()...)
		b = append(b, '"')
	}
	return append(b, "}\n\n"...)
}

// runningUsage appends the usage of one choice up to now, if it was asked for in each chunk.
func (a *answer) runningUsage(b []byte, generated int) []byte {
	if !a.each.usage || !a.each.usageEach {
		return b
	}
	b = appendCounts(append(b, `,"usage":`...), a.promptTokens, generated)
	return append(b, `,"completion_tokens_details":null}`...)
}

// finalUsage appends the usage of the last chunk.
func (s *Server) finalUsage(b []byte, a *answer) []byte {
	generated, cached := 0, 0
	for i, c := range a.choices {
		generated += c.generated
		if i%a.each.n == 0 {
			cached += c.cached
		}
	}
	b = appendCounts(b, a.promptTokens, generated)
	if s.cfg.PromptTokensDetails {
		b = append(b, `,"prompt_tokens_details":{"cached_tokens":`...)
		b = strconv.AppendInt(b, int64(cached), 10)
		if a.format.chat {
			b = strconv.AppendInt(append(b, `,"created_cache_tokens":`...), int64(s.created(a, cached)), 10)
		}
		b = append(b, '}')
	}
	return append(b, '}')
}
