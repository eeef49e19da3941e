package records

import (
	"strings"
	"unicode/utf8"

	"github.com/signalbox-epp/signalbox/engine/clip"
)

// LabelBytes is how many bytes are kept of a client's text, such as the name of a model or flow, or a request id.
const LabelBytes = 128

// Label returns a client's text as valid UTF-8, cut between characters to at most LabelBytes. If it cuts or changes the
// text it returns a copy, which does not keep the rest in memory.
func Label(s string) string {
	if len(s) <= LabelBytes && utf8.ValidString(s) {
		return s
	}
	s = strings.ToValidUTF8(s[:min(len(s), LabelBytes+utf8.UTFMax)], "\uFFFD")
	return strings.Clone(clip.Bytes(s, LabelBytes))
}
