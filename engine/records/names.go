package records

import (
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/cow"
)

// Names is a set of labels that only grows, up to a limit. Any goroutine may add and ask: when labels are added, the
// map that holds them is replaced, never changed.
type Names struct {
	limit int
	known cow.Map[string, struct{}]
}

// NewNames returns an empty set for at most limit labels.
func NewNames(limit int) *Names { return &Names{limit: limit} }

// Has reports whether a label is in the set. It must be a label already: see Label.
func (n *Names) Has(label string) bool {
	_, ok := n.known.Get(label)
	return ok
}

// Add adds the labels of texts that come from clients or servers. Labels for which the set has no room are left out.
func (n *Names) Add(texts ...string) {
	n.known.Change(func(now map[string]struct{}) map[string]struct{} { return n.with(now, texts) })
}

// with returns a set with the new labels of texts; nil = there are none, or the set is full.
func (n *Names) with(now map[string]struct{}, texts []string) (more map[string]struct{}) {
	for _, text := range texts {
		label := Label(text)
		if _, ok := now[label]; ok || max(len(now), len(more)) >= n.limit {
			continue
		}
		if more == nil {
			more = make(map[string]struct{}, len(now)+len(texts))
			maps.Copy(more, now)
		}
		more[label] = struct{}{}
	}
	return more
}

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
