package discovery

import (
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/filters"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

const (
	maxEntries   = 10_000
	maxLabels    = 64 // of one entry
	maxNameBytes = 253
	maxValues    = 2_000_000 // of a file; more than 1 MiB can hold without aliases
)

// Entry is one endpoint of the file.
type Entry struct {
	Name      string
	Namespace string
	IP        netip.Addr // invalid if Host is to be resolved
	Host      string     // lower case, without the dot at its end; "" if the file has an IP
	Port      uint16
	Labels    map[string]string

	line int // of the file where it begins, from 1
}

// Parse reads a file of endpoints: YAML or JSON of at most 1 MiB with one key, endpoints, a list of
//
//	name:      required
//	namespace: "default" if it is left out
//	address:   required; IPv4, IPv6 (with or without brackets) or a host name
//	port:      required; "8000" or 8000
//	labels:    names and values, at most 64
//
// A name that stands twice in one namespace counts once, and so do an address and port: the last wins, and warnings
// says which lost. It names roles too that no filter reads. The error is a *strictyaml.Error with every problem.
func Parse(file []byte) (entries []Entry, warnings Warnings, err error) {
	root, problem := strictyaml.Parse(file)
	if root == nil && problem == nil {
		problem = &strictyaml.Problem{Text: "empty; a file without endpoints says endpoints: []"}
	}
	if problem != nil {
		return nil, nil, &strictyaml.Error{Problems: []strictyaml.Problem{*problem}}
	}
	p := &parser{Reader: strictyaml.NewReader(maxValues)}
	var doc document
	p.Decode(root, "", reflect.ValueOf(&doc).Elem())
	switch {
	case doc.Endpoints == nil && p.Written("endpoints"):
		p.Fail("endpoints", "got nothing, want a list; a file without endpoints says endpoints: []")
	case doc.Endpoints == nil && !p.Failed(""):
		p.Fail("endpoints", "missing; a file without endpoints says endpoints: []")
	case doc.Endpoints == nil:
	case len(*doc.Endpoints) > maxEntries:
		p.Fail("endpoints", "got %d entries, want at most %d", len(*doc.Endpoints), maxEntries)
	default:
		entries = p.entries(*doc.Endpoints)
	}
	if err := p.Err(); err != nil {
		return nil, nil, err
	}
	entries = lastOfEach(&warnings, "name", entries, func(e Entry) string { return e.Namespace + "\x00" + e.Name })
	entries = lastOfEach(&warnings, "address", entries, Entry.target)
	return entries, append(warnings, oddRoles(entries)...), nil
}

// oddRoles names the entries with a role that no filter reads.
func oddRoles(entries []Entry) (odd Warnings) {
	for _, e := range entries {
		if role, labelled := e.Labels[filters.RoleLabel]; labelled && isOdd(role) {
			odd = append(odd, strictyaml.Problem{
				Line: e.line, Path: "labels." + filters.RoleLabel,
				Text: fmt.Sprintf("%s: got %q, want one of %v: profiles that filter by role pass this server by",
					e.Name, clip.Value(role), filters.Roles),
			})
		}
	}
	return odd
}

// Recognise reports whether a file is meant for Parse rather than as a configuration: a mapping with the key endpoints
// and without those that every configuration has.
func Recognise(file []byte) bool {
	root, problem := strictyaml.Parse(file)
	if problem != nil || root == nil {
		return false
	}
	keys := strictyaml.NewReader(maxValues).Keys(root)
	return slices.Contains(keys, "endpoints") && !slices.Contains(keys, "apiVersion") && !slices.Contains(keys, "kind")
}

// parser reads one file.
type parser struct{ *strictyaml.Reader }

// Warnings holds what is doubtful: entries that are left out, each with the later entry that takes its place, and roles
// that serve no stage of a request.
type Warnings []strictyaml.Problem

// lastOfEach keeps the last entry of each key, in the order of the file. The others are added to warnings, with field
// as their path.
func lastOfEach(warnings *Warnings, field string, all []Entry, key func(Entry) string) []Entry {
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
		*warnings = append(*warnings, strictyaml.Problem{
			Line: e.line, Path: field,
			Text: fmt.Sprintf("%s stands in line %d again: this entry is left out", text, all[winner].line),
		})
	}
	return kept
}

// target returns the address and port of an entry.
func (e Entry) target() string {
	host := e.Host
	if e.IP.IsValid() {
		host = e.IP.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(e.Port)))
}
