package parsers

import (
	"math"

	"github.com/signalbox-epp/signalbox/messages"
)

// answerForm gathers what a body asks of the form of its answer.
type answerForm struct {
	usageInEach, structured       bool
	logProbs                      bool // the member says true, of chat, or a number, of completions
	echo, promptLogProbs, withIDs bool // each repeats the prompt in the answer
	top, choices, prompts         int
}

// formMember reads a member of the top object that decides the form of the answer; another one is skipped.
func (r *reader) formMember(key []byte) (ok bool) {
	switch string(key) {
	case "n":
		r.form.choices, ok = r.count()
	case "logprobs":
		ok = r.logProbs()
	case "top_logprobs":
		if r.format != chatFormat {
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

// logProbs reads true or false, of chat, or how many, of completions.
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

// isGiven reports whether the value ahead is there at all: neither null nor an empty array.
func (r *reader) isGiven() bool {
	if r.peek() == '[' {
		ahead := r.scanner
		return ahead.open(']')
	}
	return r.peek() != 'n'
}

// answer is the form of the answer. A server that is told less than it needs takes 1 of a choice, and of a prompt.
func (r *reader) answer() messages.AnswerForm {
	f := r.form
	out := messages.AnswerForm{
		API: messages.ChatAPI, Stream: r.stream, UsageInEach: r.stream && f.usageInEach, Structured: f.structured,
		RepeatsMore: f.echo || f.promptLogProbs || f.withIDs,
		Choices:     upTo255(max(f.choices, 1) * max(f.prompts, 1)),
	}
	if f.logProbs {
		out.LogProbs = upTo255(f.top + 1)
	}
	if r.format == completionFormat {
		out.API = messages.CompletionAPI
	}
	return out
}

func upTo255(n int) uint8 { return uint8(min(max(n, 0), math.MaxUint8)) }
