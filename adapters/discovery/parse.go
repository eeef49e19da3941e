package discovery

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/config"
)

const (
	maxFileBytes = 1 << 20
	maxEntries   = 10_000
	maxLabels    = 64 // of one entry
	maxNameBytes = 253
	maxProblems  = 100
)

// Entry is one endpoint as the file has it.
type Entry struct {
	Name      string
	Namespace string
	IP        netip.Addr // invalid if Host is to be resolved
	Host      string     // lower case, without the dot at its end; "" if the file has an IP
	Port      uint16
	Labels    map[string]string

	line int // in the file, 1 is the first
}

// Parse reads a file of endpoints: YAML or JSON of at most 1 MiB with one key, endpoints, a list of
//
//	name:      required
//	namespace: "default" if it is left out
//	address:   required; IPv4, IPv6 (with or without brackets) or a host name
//	port:      required; "8000" or 8000
//	labels:    names and values, at most 64
//
// A name that stands twice in one namespace counts once, and so do an address and port: the last wins, and doubles says which
// lost. The error is Problems: all of them, at most 100.
func Parse(file []byte) (entries []Entry, doubles Problems, err error) {
	p := &parser{}
	root := p.document(file)
	if root == nil {
		return nil, nil, p.problems
	}
	var list *yaml.Node
	p.mapping(root, "", func(key string, value *yaml.Node, path string) {
		if key != "endpoints" {
			p.problem(value, path, "unknown key; the only one is endpoints")
			return
		}
		list = value
	})
	switch {
	case list == nil && len(p.problems) == 0:
		p.problem(root, "", "no key endpoints; a file without endpoints says endpoints: []")
	case list != nil && list.Kind != yaml.SequenceNode:
		p.problem(list, "endpoints", "got %s, want a list; a file without endpoints says endpoints: []", kind(list))
	case list != nil && len(list.Content) > maxEntries:
		p.problem(list, "endpoints", "got %d entries, want at most %d", len(list.Content), maxEntries)
	case list != nil:
		p.entries(list)
	}
	if len(p.problems) > 0 {
		return nil, nil, p.problems
	}
	entries = p.lastOfEach("name", p.out, func(e Entry) string { return e.Namespace + "\x00" + e.Name })
	entries = p.lastOfEach("address", entries, Entry.target)
	return entries, p.problems, nil
}

// Recognise reports whether a file is meant for Parse rather than as a configuration: a mapping with the key endpoints and without
// those that every configuration has.
func Recognise(file []byte) bool {
	var doc yaml.Node
	if len(file) > maxFileBytes || yaml.Unmarshal(file, &doc) != nil || doc.Kind != yaml.DocumentNode {
		return false
	}
	found := false
	for i := 0; i+1 < len(doc.Content[0].Content) && doc.Content[0].Kind == yaml.MappingNode; i += 2 {
		switch doc.Content[0].Content[i].Value {
		case "apiVersion", "kind":
			return false
		case "endpoints":
			found = true
		}
	}
	return found
}

// parser collects entries and problems.
type parser struct {
	out      []Entry
	problems Problems
}

func (p *parser) problem(at *yaml.Node, path, format string, args ...any) {
	switch len(p.problems) {
	case maxProblems + 1:
		return
	case maxProblems:
		p.problems = append(p.problems, Problem{Text: "and more"})
		return
	}
	line := 0
	if at != nil {
		line = at.Line
	}
	p.problems = append(p.problems, Problem{line, path, fmt.Sprintf(format, args...)})
}

// document is the one document of a file, nil if there is a problem.
func (p *parser) document(file []byte) *yaml.Node {
	if len(file) > maxFileBytes {
		p.problem(nil, "", "more than %d bytes, the limit", maxFileBytes)
		return nil
	}
	var doc, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(file))
	err := d.Decode(&doc)
	if errors.Is(err, io.EOF) {
		p.problem(nil, "", "empty; a file without endpoints says endpoints: []")
		return nil
	}
	if err == nil {
		if err = d.Decode(&second); errors.Is(err, io.EOF) {
			return doc.Content[0]
		}
	}
	if err == nil {
		p.problem(&second, "", "a second document; want one")
		return nil
	}
	line, text := config.Syntax(file, err)
	p.problems = append(p.problems, Problem{Line: line, Text: text})
	return nil
}

// mapping calls each for every pair of a mapping, if it is one and its keys are names that stand once.
func (p *parser) mapping(n *yaml.Node, path string, each func(key string, value *yaml.Node, path string)) {
	if n.Kind != yaml.MappingNode {
		p.problem(n, path, "got %s, want names with values", kind(n))
		return
	}
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			p.problem(key, path, "got %s as a key, want a name", kind(key))
			continue
		}
		at := key.Value
		if path != "" {
			at = path + "." + key.Value
		}
		if line, twice := seen[key.Value]; twice {
			p.problem(key, at, "stands twice, first in line %d", line)
			continue
		}
		seen[key.Value] = key.Line
		each(key.Value, value, at)
	}
}

// text is a value as the file has it: a string, or a number or truth value as it is written.
func (p *parser) text(n *yaml.Node, path string) string {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Tag == "!!binary" {
		p.problem(n, path, "got %s, want text", kind(n))
		return ""
	}
	return n.Value
}

func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "names with values"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias, which is not supported"
	}
	switch n.Tag {
	case "!!null":
		return "nothing"
	case "!!merge":
		return "<<, which is not supported"
	}
	return strconv.Quote(shorten(n.Value))
}

func shorten(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}

// lastOfEach keeps the last entry of each key, in the order of the file, and notes the others as problems of a field.
func (p *parser) lastOfEach(field string, all []Entry, key func(Entry) string) []Entry {
	last := make(map[string]int, len(all))
	for i, e := range all {
		last[key(e)] = i
	}
	kept := make([]Entry, 0, len(last))
	for i, e := range all {
		winner := last[key(e)]
		if winner == i {
			kept = append(kept, e)
			continue
		}
		text := e.Name
		if field == "address" {
			text = e.target()
		}
		p.problem(&yaml.Node{Line: e.line}, field, "%s stands in line %d again: this entry is left out", text, all[winner].line)
	}
	return kept
}

// target is the address and port of an entry.
func (e Entry) target() string {
	host := e.Host
	if e.IP.IsValid() {
		host = e.IP.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(e.Port)))
}
