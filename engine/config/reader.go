package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	maxBytes    = 1 << 20
	maxNodes    = 100_000 // values that are looked at, each alias counted as what it stands for
	maxProblems = 100
	maxMerges   = 10 // depth of merge keys
)

// parse finds the mapping that a file holds; nil = the file is empty.
func parse(data []byte) (root *yaml.Node, problem *Problem) {
	if len(data) > maxBytes {
		return nil, &Problem{Text: fmt.Sprintf("more than %d bytes, the limit", maxBytes)}
	}
	defer func() {
		if cause := recover(); cause != nil { // of the YAML reader, which bytes from outside must not end us with
			root, problem = nil, &Problem{Text: fmt.Sprintf("not readable as YAML: %v", cause)}
		}
	}()
	documents := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err := documents.Decode(&first); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, syntax(data, err)
	}
	if err := documents.Decode(&second); err == nil {
		return nil, &Problem{Line: second.Line, Text: "got a second document, want one"}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntax(data, err)
	}
	root = first.Content[0]
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return nil, nil
	}
	return root, nil
}

// syntax is an error of the YAML reader as a problem.
func syntax(data []byte, err error) *Problem {
	line, text := Syntax(data, err)
	return &Problem{Line: line, Text: "not readable as YAML: " + text}
}

// Syntax says where and why data is not YAML; err is what the YAML reader said of it. Lines count from 1; 0 is the whole file,
// where the reader does not say more.
func Syntax(data []byte, err error) (line int, text string) {
	text = strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		number, what, _ := strings.Cut(rest, ": ")
		if line, err := strconv.Atoi(number); err == nil {
			if strings.HasPrefix(what, "did not find expected") { // of its parser, which counts from 0
				line++
			}
			return line, what
		}
	}
	for _, word := range []string{"UTF-8", "character", "Unicode"} { // of its decoder, which names no line
		if strings.Contains(text, word) && !strings.HasPrefix(text, "found") {
			if line, what := unreadable(data); line > 0 {
				return line, what
			}
			return 0, text
		}
	}
	if strings.HasPrefix(text, "unknown anchor") {
		return 0, text
	}
	return 1, text // its scanner and its parser name every line but the first
}

// unreadable finds the first byte that YAML in UTF-8 may not have; line 0 = none is found, or the data is UTF-16.
func unreadable(data []byte) (line int, text string) {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return 0, ""
	}
	line = 1
	for rest := data; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && n == 1:
			return line, fmt.Sprintf("byte 0x%02x is not UTF-8", rest[0])
		case r == '\n':
			line++
		case r < ' ' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0 && r != 0x85 || r == 0xfffe || r == 0xffff:
			return line, fmt.Sprintf("control character %U", r)
		}
		rest = rest[n:]
	}
	return 0, ""
}

// reader collects what is found in a file, and remembers where each value stands.
type reader struct {
	lines    map[string]int // path -> line
	failed   map[string]bool
	problems []Problem
	warnings []Problem
	more     int
	nodes    int // that may still be looked at
}

func newReader() *reader {
	return &reader{lines: map[string]int{"": 1}, failed: map[string]bool{}, nodes: maxNodes}
}

// fail enters a problem of the value at path. One value has one problem: the first.
func (r *reader) fail(path, format string, args ...any) {
	if r.failed[path] {
		return
	}
	if len(r.problems) == maxProblems {
		r.more++
		return
	}
	r.failed[path] = true
	r.problems = append(r.problems, Problem{r.line(path), oneLine(path), oneLine(fmt.Sprintf(format, args...))})
}

// warn enters something that has no effect.
func (r *reader) warn(path, format string, args ...any) {
	if len(r.warnings) < maxProblems {
		r.warnings = append(r.warnings, Problem{r.line(path), oneLine(path), oneLine(fmt.Sprintf(format, args...))})
	}
}

// line is where the value at path stands, or, if it was not written, where the value stands that should hold it.
func (r *reader) line(path string) int {
	for {
		if line, ok := r.lines[path]; ok {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
}

// exhausted says, and enters, that the file has more values than are looked at.
func (r *reader) exhausted() bool {
	if r.nodes == 0 {
		r.fail("", "got more than %d values, aliases counted as what they stand for", maxNodes)
	}
	return r.nodes == 0
}

// follow is the node that an alias stands for; nil once too many were looked at.
func (r *reader) follow(n *yaml.Node) *yaml.Node {
	if r.exhausted() {
		return nil
	}
	r.nodes--
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// pair is a key of a mapping and its value.
type pair struct {
	name  string
	line  int
	value *yaml.Node
}

// pairs lists a mapping, merge keys included. A key that stands twice is a problem.
func (r *reader) pairs(n *yaml.Node, path string, depth int) []pair {
	var list, merged []pair
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := r.follow(n.Content[i]), n.Content[i+1]
		switch {
		case key == nil:
			return nil
		case key.Kind != yaml.ScalarNode:
			r.lines[path+"."] = key.Line
			r.fail(path+".", "got a key that is a list or a mapping, want a word")
		case key.ShortTag() == "!!merge":
			merged = append(merged, r.merge(value, path, depth+1)...)
		case seen[key.Value]:
			r.duplicate(join(path, clip(key.Value)), key.Line)
		default:
			seen[key.Value] = true
			list = append(list, pair{key.Value, n.Content[i].Line, value})
		}
	}
	for _, p := range merged {
		if !seen[p.name] {
			seen[p.name] = true
			list = append(list, p)
		}
	}
	return list
}

func (r *reader) duplicate(path string, line int) {
	r.lines[path] = line
	r.fail(path, "this key stands twice")
}

// merge lists what a merge key brings.
func (r *reader) merge(n *yaml.Node, path string, depth int) []pair {
	n = r.follow(n)
	switch {
	case n == nil:
		return nil
	case depth > maxMerges:
		r.fail(path, "merge keys are nested deeper than %d levels", maxMerges)
	case n.Kind == yaml.MappingNode:
		return r.pairs(n, path, depth)
	case n.Kind == yaml.SequenceNode:
		var list []pair
		for _, item := range n.Content {
			list = append(list, r.merge(item, path, depth+1)...)
		}
		return list
	default:
		r.fail(path, "got a merge key with a plain value, want a mapping")
	}
	return nil
}

// join extends a path by a key.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
