package parsers

import (
	"bytes"
	"math"

	"github.com/signalbox-epp/signalbox/messages"
)

// answerForm gathers what a request asks of the form of its answer.
type answerForm struct {
	usageInEach, structured       bool
	logProbs                      bool // the member is true (chat), or a number (completions)
	echo, promptLogProbs, withIDs bool // each of these makes the answer repeat the prompt or more
	top, choices, prompts         int
}

// formMember reads a member of the top object that decides the form of the answer. It skips any other member.
func (r *reader) formMember(key []byte) (ok bool) {
	switch string(key) {
	case "n":
		r.form.choices, ok = r.count()
	case "logprobs":
		ok = r.logProbs()
	case "top_logprobs":
		if r.format != chatFormat && r.format != responsesFormat {
			return r.skip()
		}
		r.form.top, ok = r.count()
	case "response_format", "structured_outputs":
		r.form.structured = r.isGiven() || r.form.structured
		ok = r.skip()
	case "echo":
		r.form.echo, ok = r.isTrue()
	case "prompt_logprobs":
		r.form.promptLogProbs = r.isGiven()
		ok = r.skip()
	case "return_token_ids":
		r.form.withIDs, ok = r.isTrue()
	default:
		ok = r.skip()
	}
	return ok
}

// logProbs reads the member logprobs: a bool in chat completions, a number in completions.
func (r *reader) logProbs() (ok bool) {
	if r.format == chatFormat {
		r.form.logProbs, ok = r.isTrue()
		return ok
	}
	c := r.peek()
	r.form.logProbs = c >= '0' && c <= '9'
	r.form.top, ok = r.count()
	return ok
}

// isGiven reports whether the next value is neither null nor an empty array or string.
func (r *reader) isGiven() bool {
	switch r.peek() {
	case '[':
		ahead := r.scanner // a copy: the array itself is still to be read
		return ahead.open(']')
	case '"':
		return !bytes.HasPrefix(r.body[r.pos:], []byte(`""`))
	case 'n':
		return false
	}
	return true
}

// answer returns the form of the answer. A missing number of choices, or of prompts, counts as 1, as servers take it.
func (r *reader) answer() messages.AnswerForm {
	f := r.form
	api := r.format.api()
	if api == messages.UnknownAPI {
		return messages.AnswerForm{}
	}
	out := messages.AnswerForm{
		API: api, Stream: r.stream, UsageInEach: r.stream && f.usageInEach, Structured: f.structured,
		RepeatsMore: f.echo || f.promptLogProbs || f.withIDs || f.ownForm(api),
		Choices:     upTo255(max(f.choices, 1) * max(f.prompts, 1)),
	}
	if f.logProbs {
		out.LogProbs = upTo255(f.top + 1)
	}
	return out
}

// ownForm reports whether the bytes of an answer say nothing of its tokens: a stream of SGLang repeats the text with
// each event, an answer of responses repeats what it was asked, and one of token ids has no text.
func (answerForm) ownForm(api messages.API) bool {
	switch api {
	case messages.GenerateAPI, messages.ResponsesAPI, messages.TokensAPI, messages.EngineAPI, messages.EngineEmbedAPI:
		return true
	default:
		return false
	}
}

func upTo255(n int) uint8 { return uint8(min(max(n, 0), math.MaxUint8)) }
