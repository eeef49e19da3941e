package records

import (
	"strings"
	"unicode/utf8"
)

// LabelBytes is what is kept of a client's text: a model's name, a flow's, a request id.
const LabelBytes = 128

// Label cuts a client's text to what is kept of it, at a character, and makes it clean UTF-8. What it cuts is not kept
// in memory by what it gives.
func Label(s string) string {
	if len(s) <= LabelBytes && utf8.ValidString(s) {
		return s
	}
	s = strings.ToValidUTF8(s[:min(len(s), LabelBytes+utf8.UTFMax)], "\uFFFD")
	if len(s) > LabelBytes {
		end := LabelBytes
		for !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	return strings.Clone(s)
}
