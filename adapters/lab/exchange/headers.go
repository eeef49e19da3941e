package exchange

import (
	"fmt"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// Field is one header line. Name is lower case, Value any bytes.
type Field struct {
	Name, Value string
}

// Headers is a header map in order; a name may stand in it more than once.
type Headers []Field

// Get returns the first value of name, empty if there is none.
func (h Headers) Get(name string) string {
	for _, f := range h {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// Add appends a line.
func (h *Headers) Add(name, value string) { *h = append(*h, Field{name, value}) }

// Set replaces every line of name by one.
func (h *Headers) Set(name, value string) {
	h.Remove(name)
	h.Add(name, value)
}

// Remove drops every line of name.
func (h *Headers) Remove(name string) {
	*h = slices.DeleteFunc(*h, func(f Field) bool { return f.Name == name })
}

func (h Headers) has(name string) bool {
	return slices.ContainsFunc(h, func(f Field) bool { return f.Name == name })
}

func (h Headers) bytes() int {
	n := 0
	for _, f := range h {
		n += len(f.Name) + len(f.Value)
	}
	return n
}

// proto puts the values in raw_value, the only field that carries any byte; or in value, as other proxies may.
func (h Headers) proto(plain bool) *corev3.HeaderMap {
	values := make([]corev3.HeaderValue, len(h))
	lines := make([]*corev3.HeaderValue, len(h))
	for i, f := range h {
		values[i].Key = f.Name
		if plain {
			values[i].Value = f.Value
		} else {
			values[i].RawValue = []byte(f.Value)
		}
		lines[i] = &values[i]
	}
	return &corev3.HeaderMap{Headers: lines}
}

// Limits bound a header map that is about to be changed, and the result. Zero means the default.
type Limits struct {
	Lines int // default 100
	Bytes int // names and values together, default 60 KiB
}

func (l Limits) withDefaults() Limits {
	if l.Lines == 0 {
		l.Lines = 100
	}
	if l.Bytes == 0 {
		l.Bytes = 60 << 10
	}
	return l
}

// apply changes h as Envoy does with its default mutation rules: removals first, then sets; append_action is not read.
// A fatal violation leaves h as it was.
func (h *Headers) apply(d *directionState, m *extprocv3.HeaderMutation, limits Limits) []*Violation {
	if m == nil {
		return nil
	}
	limits = limits.withDefaults()
	if len(m.GetSetHeaders()) > limits.Lines || len(m.GetRemoveHeaders()) > limits.Lines {
		return []*Violation{d.fatal(InvalidMutation, "%d sets and %d removals, limit %d", len(m.GetSetHeaders()),
			len(m.GetRemoveHeaders()), limits.Lines)}
	}
	out := slices.Clone(*h)
	found, bad := out.applyRemovals(d, m.GetRemoveHeaders())
	if bad != nil {
		return append(found, bad)
	}
	for _, option := range m.GetSetHeaders() {
		v := out.applySet(d, option)
		if v == nil {
			continue
		}
		found = append(found, v)
		if v.Fatal {
			return found
		}
	}
	if len(out) > limits.Lines || out.bytes() > limits.Bytes {
		return append(found, d.fatal(InvalidMutation, "result has %d lines and %d bytes, limits %d and %d", len(out),
			out.bytes(), limits.Lines, limits.Bytes))
	}
	*h = out
	return found
}

func (h *Headers) applyRemovals(d *directionState, names []string) (found []*Violation, bad *Violation) {
	for _, name := range names {
		if !validName(name) {
			return found, d.fatal(InvalidMutation, "removed header name %q", name)
		}
		name = strings.ToLower(name)
		if name[0] == ':' || forbidden(name) {
			found = append(found, d.tolerated(IgnoredHeader, "removal of %q", name))
			continue
		}
		h.Remove(name)
	}
	return found, nil
}

func (h *Headers) applySet(d *directionState, option *corev3.HeaderValueOption) *Violation {
	header := option.GetHeader()
	if header == nil {
		return nil
	}
	value := string(header.GetRawValue())
	switch {
	case value != "" && header.GetValue() != "":
		return d.fatal(InvalidMutation, "header %q has both value and raw_value", header.GetKey())
	case !validName(header.GetKey()) || !validValue(value):
		return d.fatal(InvalidMutation, "header %q: %q", header.GetKey(), value)
	}
	name := strings.ToLower(header.GetKey())
	if v := checkName(d, name, value); v != nil {
		return v
	}
	appends := option.GetAppend().GetValue() //nolint:staticcheck // deprecated, and the one field that Envoy heeds
	if appends && h.has(name) && name[0] != ':' {
		h.Add(name, value)
	} else {
		h.Set(name, value)
	}
	if name == "content-length" {
		return d.tolerated(LengthSet, "set of content-length: %q", value)
	}
	if header.GetValue() != "" {
		return d.tolerated(ValueNotRaw, "header %q uses value, only raw_value is read", name)
	}
	return nil
}

// checkName returns why a header is not set, nil if it is.
func checkName(d *directionState, name, value string) *Violation {
	switch {
	case forbidden(name), name == "content-length" && d.mode.dropsLength():
		return d.tolerated(IgnoredHeader, "set of %q", name)
	case connectionHeader(name):
		return d.tolerated(ConnectionHeader, "set of %q", name)
	case name == ":status" && (d.id == Request || !validStatus(value)), name[0] == ':' && name != ":status" &&
		name != ":path":
		return d.fatal(InvalidMutation, "pseudo header %q: %q", name, value)
	}
	return nil
}

func forbidden(name string) bool {
	switch name {
	case ":method", ":authority", ":scheme", "host":
		return true
	}
	return strings.HasPrefix(name, "x-envoy-")
}

func connectionHeader(name string) bool {
	switch name {
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "te", "upgrade":
		return true
	}
	return false
}

func validStatus(v string) bool {
	return len(v) == 3 && v[0] >= '1' && v[0] <= '5' && v[1] >= '0' && v[1] <= '9' && v[2] >= '0' && v[2] <= '9'
}

func validName(name string) bool {
	rest := strings.TrimPrefix(name, ":")
	if rest == "" {
		return false
	}
	for _, c := range []byte(rest) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return true
}

func validValue(value string) bool {
	for _, c := range []byte(value) {
		if c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// Text prints the map for people, one line each.
func (h Headers) Text() string {
	var b strings.Builder
	for _, f := range h {
		fmt.Fprintf(&b, "%s: %q\n", f.Name, f.Value)
	}
	return b.String()
}
