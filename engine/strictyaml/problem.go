package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/signalbox-epp/signalbox/engine/spelling"
)

// Problem is one thing that is wrong, or has no effect, in a file.
type Problem struct {
	Line int    // 1 is the first; 0 = no line
	Path string // of the value, such as schedulingProfiles[0].plugins[2].weight; "" = the whole file
	Text string
}

func (p Problem) String() string {
	text := p.Text
	if p.Path != "" {
		text = p.Path + ": " + text
	}
	if p.Line == 0 {
		return text
	}
	return fmt.Sprintf("line %d: %s", p.Line, text)
}

// Error lists everything that is wrong with a file, one problem a line.
type Error struct {
	Problems []Problem // at least one and at most MaxProblems, in the order of their lines
	More     int       // number of further problems, which are not listed
}

func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	for _, p := range e.Problems {
		lines = append(lines, p.String())
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.More))
	}
	return strings.Join(lines, "\n")
}

// sorted sorts a list by line; problems on the same line stay in the order in which they were found.
func sorted(list []Problem) []Problem {
	slices.SortStableFunc(list, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return list
}

// oneLine replaces control characters, so that a problem stays on one line whatever the file holds.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}

// DidYouMean returns a hint that names the nearest known name, or all if none is near. If the nearest one is among
// without, which have no effect, the hint says so in place of suggesting it.
func DidYouMean(name string, known, without []string) string {
	switch n := spelling.Nearest(name, slices.Concat(known, without)); {
	case n == "" && len(known) == 1:
		return "the only one is " + known[0]
	case n == "":
		return "known are " + strings.Join(known, ", ")
	case slices.Contains(known, n):
		return fmt.Sprintf("did you mean %s?", n)
	default:
		return n + " is not supported yet"
	}
}
