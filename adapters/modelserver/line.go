package modelserver

import (
	"bytes"
	"strings"
)

// sample is one line of a page, taken apart. Its fields refer to the page.
type sample struct {
	name   []byte
	labels labels
	value  []byte // as written, without what follows it on the line
}

// labels is the text between the braces of a line.
type labels []byte

// parseSample takes a line apart. It returns false if the line is no sample. It accepts what the text formats 0.0.4
// and 1.0.0 and OpenMetrics allow, and more, because it only has to find its way to the value.
func parseSample(line []byte) (s sample, ok bool) {
	line = skipBlanks(line)
	if len(line) == 0 || line[0] == '#' {
		return s, false
	}
	rest := line
	if line[0] != '{' {
		end := nameEnd(line)
		s.name, rest = line[:end], skipBlanks(line[end:])
	}
	if len(rest) > 0 && rest[0] == '{' {
		end := closingBrace(rest)
		if end < 0 {
			return s, false
		}
		s.labels, rest = labels(rest[1:end]), rest[end+1:]
	}
	if s.name == nil && !s.takeQuotedName() {
		return s, false
	}
	s.value = firstWord(rest)
	return s, len(s.value) > 0
}

// takeQuotedName reads the form of text format 1.0.0 in which the name stands inside the braces, quoted, before the
// labels.
func (s *sample) takeQuotedName() bool {
	l := skipBlanks(s.labels)
	if len(l) == 0 || l[0] != '"' {
		return false
	}
	end := closingQuote(l)
	if end < 0 {
		return false
	}
	s.name, s.labels = l[1:end], labels(l[end+1:])
	return true
}

// label returns the value of a label as it stands on the page; escaped says that it holds backslashes.
func (l labels) label(key string) (value []byte, escaped, ok bool) {
	rest := []byte(l)
	for {
		rest = bytes.TrimLeft(rest, " \t,")
		equals := bytes.IndexByte(rest, '=')
		if equals < 0 {
			return nil, false, false
		}
		name := bytes.Trim(rest[:equals], " \t\"")
		rest = skipBlanks(rest[equals+1:])
		if len(rest) == 0 || rest[0] != '"' {
			return nil, false, false
		}
		end := closingQuote(rest)
		if end < 0 {
			return nil, false, false
		}
		if string(name) == key {
			value = rest[1:end]
			return value, bytes.IndexByte(value, '\\') >= 0, true
		}
		rest = rest[end+1:]
	}
}

// is reports whether a label has the value want. A label that is absent has the value "".
func (l labels) is(key, want string) bool {
	value, _, _ := l.label(key)
	return string(value) == want
}

// have reports whether all labels of a list are there with their values.
func (l labels) have(list []Label) bool {
	for _, x := range list {
		if l.text(x.Name) != x.Value {
			return false
		}
	}
	return true
}

// text returns the value of a label with its escapes resolved.
func (l labels) text(key string) string {
	value, escaped, _ := l.label(key)
	if !escaped {
		return string(value)
	}
	return unescape.Replace(string(value))
}

var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")

func skipBlanks(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

// nameEnd returns where the name at the start of a line ends.
func nameEnd(line []byte) int {
	for i, c := range line {
		if c == '{' || c == ' ' || c == '\t' {
			return i
		}
	}
	return len(line)
}

// closingBrace returns the index of the brace that closes the one at the start of b, or -1. Braces within quotes do
// not count.
func closingBrace(b []byte) int {
	quoted := false
	for i := 1; i < len(b); i++ {
		switch {
		case b[i] == '"':
			quoted = !quoted
		case quoted && b[i] == '\\':
			i++
		case !quoted && b[i] == '}':
			return i
		}
	}
	return -1
}

// closingQuote returns the index of the quote that closes the one at the start of b, or -1.
func closingQuote(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

func firstWord(b []byte) []byte {
	b = skipBlanks(b)
	for i, c := range b {
		if c == ' ' || c == '\t' || c == '\r' {
			return b[:i]
		}
	}
	return b
}
