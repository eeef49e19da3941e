package scorers

import (
	"errors"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// ContextLength prefers servers for prompts of this length, as a label of each says: MIN-MAX, in tokens. Servers whose
// range has the length score more than 0.3, the more the narrower the range is and the more room it leaves for the
// output, up to 1. The others score less than 0.3, the less the further the length is from their range. A server
// without the label scores 0.5, one whose label is no range 0. The length is estimated at 4 bytes a token.
type ContextLength struct {
	// Label is the key of the label; required.
	Label string `json:"label"`
	// EnableFiltering also drops the servers whose range has not the length, and those whose label is no range.
	EnableFiltering bool `json:"enableFiltering"`
}

// Validate returns which parameters are missing.
func (s *ContextLength) Validate() error {
	if s.Label == "" {
		return errors.New("label: missing; name the label that says the range")
	}
	return nil
}

// Filter drops servers for prompts of other lengths, if that is enabled.
func (s *ContextLength) Filter(in *schedule.Input, keep []bool) {
	if !s.EnableFiltering {
		return
	}
	length := in.Request().PromptTokens()
	for i, c := range in.Candidates().All() {
		text, labelled := c.Label(s.Label)
		lo, hi, ok := span(text)
		keep[i] = !labelled || ok && lo <= length && length <= hi
	}
}

const (
	outOfRange = 0.3     // the score that no server outside of its range reaches
	halfWidth  = 10000.0 // the width of a range whose narrowness counts one half
	halfWay    = 1000.0  // the tokens beyond a range that halve the score
)

// Score compares the length of the prompt with the range of each candidate.
func (s *ContextLength) Score(in *schedule.Input, scores []float32) {
	length := in.Request().PromptTokens()
	for i, c := range in.Candidates().All() {
		text, labelled := c.Label(s.Label)
		if !labelled {
			scores[i] = 0.5
		} else if lo, hi, ok := span(text); ok {
			scores[i] = float32(fit(length, lo, hi))
		}
	}
}

// fit returns how well a length fits into a range.
func fit(length, lo, hi int) float64 {
	switch {
	case length < lo:
		return outOfRange / (1 + float64(lo-length)/halfWay)
	case length > hi:
		return outOfRange / (1 + float64(length-hi)/halfWay)
	case lo == hi:
		return 1
	}
	width := float64(hi - lo)
	return outOfRange + (1-outOfRange)*(0.7/(1+width/halfWidth)+0.3*float64(hi-length)/width)
}

// span reads a range such as 0-8192.
func span(text string) (lo, hi int, ok bool) {
	first, last, cut := strings.Cut(text, "-")
	lo, fine := tokens(first)
	hi, ok = tokens(last)
	return lo, hi, ok && cut && fine && lo <= hi
}

// tokens reads a number without a sign. It does not allocate, whatever the text is.
func tokens(text string) (n int, ok bool) {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > 15 {
		return 0, false
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}
