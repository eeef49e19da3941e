package discovery

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
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
}

// Parse reads a file of endpoints: YAML or JSON of at most 1 MiB with one key, endpoints, a list of
//
//	name:      required
//	namespace: "default" if it is left out
//	address:   required; IPv4, IPv6 (with or without brackets) or a host name
//	port:      required; "8000" or 8000
//	labels:    names and values, at most 64
//
// A name that stands twice in one namespace counts once, the last wins. The error is Problems: all of them, at most 100.
func Parse(file []byte) ([]Entry, error) {
	p := &parser{}
	root := p.document(file)
	if root == nil {
		return nil, p.problems
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
		return nil, p.problems
	}
	return lastOfEachName(p.out), nil
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

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

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
	text, line := err.Error(), 0
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1]) // "" = 0 = the whole file
		text = text[len(m[0]):]
	}
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

func (p *parser) entries(list *yaml.Node) {
	for i, n := range list.Content {
		path := "endpoints[" + strconv.Itoa(i) + "]"
		before := len(p.problems)
		e := p.entry(n, path)
		if len(p.problems) == before {
			p.out = append(p.out, e)
		}
	}
}

func (p *parser) entry(n *yaml.Node, path string) Entry {
	e := Entry{Namespace: "default"}
	missing := map[string]bool{"name": true, "address": true, "port": true}
	p.mapping(n, path, func(key string, value *yaml.Node, path string) {
		delete(missing, key)
		switch key {
		case "name":
			e.Name = p.name(value, path)
		case "namespace":
			e.Namespace = p.name(value, path)
		case "address":
			p.address(&e, value, path)
		case "port":
			e.Port = p.port(value, path)
		case "labels":
			e.Labels = p.labels(value, path)
		default:
			p.problem(value, path, "unknown key; the keys are name, namespace, address, port, labels")
		}
	})
	for _, key := range []string{"name", "address", "port"} {
		if missing[key] && n.Kind == yaml.MappingNode {
			p.problem(n, path+"."+key, "is missing")
		}
	}
	return e
}

func (p *parser) name(n *yaml.Node, path string) string {
	before := len(p.problems)
	s := p.text(n, path)
	if len(p.problems) == before && (s == "" || len(s) > maxNameBytes) {
		p.problem(n, path, "got %d bytes, want 1 to %d", len(s), maxNameBytes)
	}
	return s
}

func (p *parser) port(n *yaml.Node, path string) uint16 {
	before := len(p.problems)
	s := p.text(n, path)
	port, err := strconv.ParseUint(s, 10, 16)
	if len(p.problems) == before && (err != nil || port == 0) {
		p.problem(n, path, "got %q, want 1 to 65535", shorten(s))
	}
	return uint16(port)
}

func (p *parser) labels(n *yaml.Node, path string) map[string]string {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	labels := map[string]string{}
	p.mapping(n, path, func(key string, value *yaml.Node, path string) {
		if len(labels) == maxLabels {
			p.problem(value, path, "one label too many, want at most %d", maxLabels)
			return
		}
		labels[key] = p.text(value, path)
	})
	return labels
}

func (p *parser) address(e *Entry, n *yaml.Node, path string) {
	before := len(p.problems)
	s := p.text(n, path)
	if len(p.problems) > before {
		return
	}
	bare := s
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") && strings.Contains(s, ":") {
		bare = s[1 : len(s)-1]
	}
	ip, err := netip.ParseAddr(bare)
	ip = ip.Unmap()
	switch {
	case err == nil && ip.Zone() != "":
		p.problem(n, path, "got %q, want no zone: Envoy cannot reach it", shorten(s))
	case err == nil && (ip.IsUnspecified() || ip.IsMulticast()):
		p.problem(n, path, "got %q, want the address of one server", shorten(s))
	case err == nil:
		e.IP = ip
	case isHostName(s):
		e.Host = strings.ToLower(strings.TrimSuffix(s, "."))
	default:
		p.problem(n, path, "got %q, want an IPv4 or IPv6 address or a host name, without port", shorten(s))
	}
}

var hostLabel = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)

// isHostName says whether s can be resolved. What ends in a number is an IPv4 address with a mistake.
func isHostName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > maxNameBytes {
		return false
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if !hostLabel.MatchString(l) {
			return false
		}
	}
	return strings.Trim(labels[len(labels)-1], "0123456789") != ""
}

// lastOfEachName keeps the last entry of each name in a namespace, in the order of the file.
func lastOfEachName(all []Entry) []Entry {
	type key struct{ namespace, name string }
	last := make(map[key]int, len(all))
	for i, e := range all {
		last[key{e.Namespace, e.Name}] = i
	}
	kept := all[:0]
	for i, e := range all {
		if last[key{e.Namespace, e.Name}] == i {
			kept = append(kept, e)
		}
	}
	return kept
}
