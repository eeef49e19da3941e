package discovery

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// document is the form of the file.
type document struct {
	Endpoints *[]section `json:"endpoints"` // nil = absent or null
}

// section is the form of one entry.
type section struct {
	Name      strictyaml.Text            `json:"name"`
	Namespace *strictyaml.Text           `json:"namespace"`
	Address   strictyaml.Text            `json:"address"`
	Port      strictyaml.Text            `json:"port"`
	Labels    map[string]strictyaml.Text `json:"labels"`
}

// entries returns the entries of a file, and notes what is wrong with any of them.
func (p *parser) entries(sections []section) []Entry {
	out := make([]Entry, 0, len(sections))
	for i := range sections {
		out = append(out, p.entry(&sections[i], "endpoints["+strconv.Itoa(i)+"]"))
	}
	return out
}

func (p *parser) entry(s *section, path string) Entry {
	e := Entry{Namespace: "default", line: p.Line(path)}
	if p.Failed(path) {
		return e // the reader has noted that it is no mapping
	}
	for _, key := range []string{"name", "address", "port"} {
		if !p.Written(path + "." + key) {
			p.Fail(path+"."+key, "missing")
		}
	}
	e.Name = p.name(s.Name, path+".name")
	if s.Namespace != nil {
		e.Namespace = p.name(*s.Namespace, path+".namespace")
	}
	p.address(&e, string(s.Address), path+".address")
	e.Port = p.port(string(s.Port), path+".port")
	if len(s.Labels) > maxLabels {
		p.Fail(path+".labels", "got %d, want at most %d", len(s.Labels), maxLabels)
	}
	if len(s.Labels) > 0 {
		e.Labels = make(map[string]string, len(s.Labels))
	}
	for key, value := range s.Labels {
		e.Labels[key] = string(value)
	}
	return e
}

// The methods below report a problem also for a value that is missing or of the wrong kind. The reader has noted a
// problem of that value already, and drops the second one.

func (p *parser) name(s strictyaml.Text, path string) string {
	if s == "" || len(s) > maxNameBytes {
		p.Fail(path, "got %d bytes, want 1 to %d", len(s), maxNameBytes)
	}
	return string(s)
}

func (p *parser) port(s, path string) uint16 {
	port, err := strconv.ParseUint(s, 10, 16)
	if err != nil || port == 0 {
		p.Fail(path, "got %q, want 1 to 65535", clip.Value(s))
	}
	return uint16(port)
}

func (p *parser) address(e *Entry, s, path string) {
	bare := s
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") && strings.Contains(s, ":") {
		bare = s[1 : len(s)-1]
	}
	ip, err := netip.ParseAddr(bare)
	ip = ip.Unmap()
	switch {
	case err == nil && ip.Zone() != "":
		p.Fail(path, "got %q, want no zone: Envoy cannot reach it", clip.Value(s))
	case err == nil && (ip.IsUnspecified() || ip.IsMulticast()):
		p.Fail(path, "got %q, want the address of one server", clip.Value(s))
	case err == nil:
		e.IP = ip
	case IsHostName(s):
		e.Host = strings.ToLower(strings.TrimSuffix(s, "."))
	default:
		p.Fail(path, "got %q, want an IPv4 or IPv6 address or a host name, without port", clip.Value(s))
	}
}

var hostLabel = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)

// IsHostName reports whether s has the form of a host name. Its last label must not be a number, because such a text
// is an IPv4 address with a mistake in it.
func IsHostName(s string) bool {
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
