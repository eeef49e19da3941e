package discovery

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
	e := Entry{Namespace: "default", line: n.Line}
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
	case IsHostName(s):
		e.Host = strings.ToLower(strings.TrimSuffix(s, "."))
	default:
		p.problem(n, path, "got %q, want an IPv4 or IPv6 address or a host name, without port", shorten(s))
	}
}

var hostLabel = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)

// IsHostName reports whether s has the form of a host name. What ends in a number is an IPv4 address with a mistake.
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
