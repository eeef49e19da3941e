package points

import "github.com/signalbox-epp/signalbox/engine/schedule"

// OutputLength says of a request whether its answer will be long or short, for an inflight-load-producer that counts
// the output it expects. A chat completion is long if chat_template_kwargs has enable_thinking, or a thinking_budget
// above 4000 without saying false. It is short if it has tools and does not think. Any request is short whose limit of
// output tokens is below 500 and that is not long. Of others nothing is known.
type OutputLength struct{}

// Length is how long the answer to a request will be.
type Length uint8

// Lengths.
const (
	UnknownLength Length = iota
	ShortAnswer          // a call of a tool, or a few sentences
	LongAnswer           // the model thinks
)

const (
	longThinking = 4000 // tokens; more is long
	shortLimit   = 500  // tokens; less is short
)

// Length returns how long the answer to a request will be.
func (OutputLength) Length(of schedule.Request) Length {
	hints, limit := of.Hints(), of.OutputTokens()
	switch {
	case hints.Thinking, hints.ThinkingTokens > longThinking && !hints.NoThinking:
		return LongAnswer
	case hints.Tools, limit > 0 && limit < shortLimit:
		return ShortAnswer
	}
	return UnknownLength
}
