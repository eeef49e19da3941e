package admin

import (
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

// What explain says of tokens has no number that is not known.
func TestUnknownTokensAreNoNumbers(t *testing.T) {
	for want, u := range map[string]messages.Usage{
		"prompt 7 tokens, 0 of them cached (0%); output 5 tokens; response 9 bytes": {
			Source: messages.UsageReported, PromptKnown: true, PromptTokens: 7, CachedKnown: true, OutputTokens: 5,
		},
		"prompt not reported; output 5 tokens; response 9 bytes": {Source: messages.UsageReported, OutputTokens: 5},
		"prompt not reported, 3 of its tokens cached; output 5 tokens; response 9 bytes": {
			Source: messages.UsageReported, CachedKnown: true, CachedTokens: 3, OutputTokens: 5,
		},
		"prompt 7 tokens; output about 5 tokens, estimated from its bytes; response 9 bytes": {
			Source: messages.UsageEstimated, PromptKnown: true, PromptTokens: 7, OutputTokens: 5,
		},
		"prompt 7 tokens; output not known: how many bytes the response has is not known; response 9 bytes": {
			Source: messages.UsageNotMeasured, PromptKnown: true, PromptTokens: 7,
		},
		"output about 5 tokens, estimated from its bytes; response 9 bytes": {
			Source: messages.UsageEstimated, OutputTokens: 5,
		},
		"none; response 9 bytes": {},
	} {
		v := requestView{Usage: usage(u), ResponseBytes: 9}
		if got := used(&v); got != want {
			t.Errorf("%+v: %q, want %q", u, got, want)
		}
	}
}
