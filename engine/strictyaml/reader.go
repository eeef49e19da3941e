// Package strictyaml decodes YAML and JSON strictly: every key must be known and stand once, and every value must be of
// the right kind. It reports all problems of a file together, each with line and path. It owns the limits that protect
// from files from outside. It never reads files, and never decides what a value means.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/clip"
)

const (
	MaxBytes    = 1 << 20 // size of a file, at most
	MaxProblems = 100     // listed problems and warnings of a file, at most of each
	maxMerges   = 10      // depth of nested merge keys, at most
)

// Parse returns the one value of a file, which should be a mapping; nil = the file is empty.
func Parse(data []byte) (root *yaml.Node, problem *Problem) {
	if len(data) > MaxBytes {
		return nil, &Problem{Text: fmt.Sprintf("more than %d bytes, the limit", MaxBytes)}
	}
	defer func() {
		if cause := recover(); cause != nil { // a panic of the YAML library, which bytes from outside must not provoke
			root, problem = nil, &Problem{Text: fmt.Sprintf("not readable as YAML: %v", cause)}
		}
	}()
	documents := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err := documents.Decode(&first); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, SyntaxProblem(data, err)
	}
	if err := documents.Decode(&second); err == nil {
		return nil, &Problem{Line: second.Line, Text: "got a second document, want one"}
	} else if !errors.Is(err, io.EOF) {
		return nil, SyntaxProblem(data, err)
	}
	root = first.Content[0]
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return nil, nil
	}
	return root, nil
}

// SyntaxProblem returns an error of the YAML library as a problem.
func SyntaxProblem(data []byte, err error) *Problem {
	line, text := syntax(data, err)
	return &Problem{Line: line, Text: "not readable as YAML: " + text}
}

// syntax returns where and why data is not YAML. err is the error of the YAML library, whose parts name lines in
// different ways. Lines count from 1; 0 = the library names none.
func syntax(data []byte, err error) (line int, text string) {
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

// unreadable finds the first byte that YAML in UTF-8 may not have; line 0 = there is none, or the data is UTF-16.
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

// Reader decodes one file. It collects problems and warnings, and keeps the line of each value.
type Reader struct {
	lines    map[string]int  // by path
	failed   map[string]bool // paths that have a problem
	problems []Problem       // at most MaxProblems
	warnings []Problem       // at most MaxProblems
	more     int             // problems beyond those that are listed
	Lenient  bool            // unknown keys are warnings
	limit    int             // values that are looked at, at most, each alias counted as what it stands for
	nodes    int             // values that may still be looked at; 0 <= nodes <= limit
}

// NewReader returns a reader of one file of at most so many values, each alias counted as what it stands for.
func NewReader(values int) *Reader {
	return &Reader{lines: map[string]int{"": 1}, failed: map[string]bool{}, limit: values, nodes: values}
}

// Err returns the problems so far as an *Error; nil = there are none.
func (r *Reader) Err() error {
	if len(r.problems) == 0 {
		return nil
	}
	return &Error{Problems: sorted(r.problems), More: r.more}
}

// Warnings returns the warnings so far, in the order of lines.
func (r *Reader) Warnings() []Problem { return sorted(r.warnings) }

// Failed reports whether the value at path has a problem.
func (r *Reader) Failed(path string) bool { return r.failed[path] }

// Written reports whether the file has the value at path.
func (r *Reader) Written(path string) bool {
	_, written := r.lines[path]
	return written
}

// Full reports whether no further problem will be listed, so that hints for one need not be computed.
func (r *Reader) Full() bool { return len(r.problems) == MaxProblems }

// Fail enters a problem of the value at path, unless the value has one already.
func (r *Reader) Fail(path, format string, args ...any) {
	if r.failed[path] {
		return
	}
	r.failed[path] = true
	if len(r.problems) == MaxProblems {
		r.more++
		return
	}
	r.problems = append(r.problems, r.Remark(path, format, args...))
}

// Warn enters that the value at path has no effect, or is deprecated.
func (r *Reader) Warn(path, format string, args ...any) {
	if len(r.warnings) < MaxProblems {
		r.warnings = append(r.warnings, r.Remark(path, format, args...))
	}
}

// Remark returns a remark on the value at path. It is the caller's: Err and Warnings do not have it.
func (r *Reader) Remark(path, format string, args ...any) Problem {
	return Problem{r.Line(path), oneLine(path), oneLine(fmt.Sprintf(format, args...))}
}

// Line returns the line of the value at path or, if the file does not have it, of the innermost value around it.
func (r *Reader) Line(path string) int {
	for {
		if line, ok := r.lines[path]; ok {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
}

// exhausted reports whether the limit of values is reached, and enters that as a problem.
func (r *Reader) exhausted() bool {
	if r.nodes == 0 {
		r.Fail("", "got more than %d values, aliases counted as what they stand for", r.limit)
	}
	return r.nodes == 0
}

// follow counts a value and returns its node, or the one that an alias stands for; nil = the limit is reached.
func (r *Reader) follow(n *yaml.Node) *yaml.Node {
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

// pairs returns the pairs of a mapping, with those of its merge keys. A key that stands twice is a problem.
func (r *Reader) pairs(n *yaml.Node, path string, depth int) []pair {
	var list, merged []pair
	seen := map[string]int{} // key -> line
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := r.follow(n.Content[i]), n.Content[i+1]
		switch {
		case key == nil:
			return nil
		case key.Kind != yaml.ScalarNode:
			r.lines[path+"."] = key.Line
			r.Fail(path+".", "got a key that is a list or a mapping, want a word")
		case key.ShortTag() == "!!merge":
			merged = append(merged, r.merge(value, path, depth+1)...)
		case seen[key.Value] > 0:
			r.duplicate(join(path, clip.Value(key.Value)), key.Line, seen[key.Value])
		default:
			seen[key.Value] = key.Line
			list = append(list, pair{key.Value, n.Content[i].Line, value})
		}
	}
	for _, p := range merged {
		if seen[p.name] == 0 {
			seen[p.name] = p.line
			list = append(list, p)
		}
	}
	return list
}

func (r *Reader) duplicate(path string, line, first int) {
	r.lines[path] = line
	r.Fail(path, "this key stands twice, first in line %d", first)
}

// merge returns the pairs that a merge key adds.
func (r *Reader) merge(n *yaml.Node, path string, depth int) []pair {
	n = r.follow(n)
	switch {
	case n == nil:
		return nil
	case depth > maxMerges:
		r.Fail(path, "merge keys are nested deeper than %d levels", maxMerges)
	case n.Kind == yaml.MappingNode:
		return r.pairs(n, path, depth)
	case n.Kind == yaml.SequenceNode:
		var list []pair
		for _, item := range n.Content {
			list = append(list, r.merge(item, path, depth+1)...)
		}
		return list
	default:
		r.Fail(path, "got a merge key with a plain value, want a mapping")
	}
	return nil
}

// join returns the path of a key of the mapping at path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Keys returns the keys of a mapping, with those of its merge keys; none if root is no mapping.
func (r *Reader) Keys(root *yaml.Node) []string {
	var names []string
	if root.Kind == yaml.MappingNode {
		for _, p := range r.pairs(root, "", 0) {
			names = append(names, p.name)
		}
	}
	return names
}

// Find returns the value of a key that a mapping itself has; nil = n is no mapping, or has no such key.
func Find(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
