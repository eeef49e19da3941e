// Package trust decides which headers of a request count: those by which a request names its flow, its objective and
// its deadlines count only from a source that the configuration trusts. It reads messages of a proxy and changes none.
package trust

import (
	"slices"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
)

// namespace is the one of the metadata that may stand in for headers.
const namespace = "envoy.lb"

// Policy says which headers a client may not set by itself, and what sets them instead. It is immutable. A nil Policy
// leaves all headers to clients.
type Policy struct {
	headers  []string
	barred   map[string]bool // the same
	metadata bool            // filter metadata set them
	proxies  []string        // proxies whose certificate has one of these names set them
}

// ByMetadata returns the Policy by which these headers count only as fields of the filter metadata envoy.lb, each
// under its own name.
func ByMetadata(headers []string) *Policy { return newPolicy(Policy{headers: headers, metadata: true}) }

// ByCertificate returns the Policy by which these headers count only in streams of proxies whose certificate has one of
// the names.
func ByCertificate(headers, names []string) *Policy {
	return newPolicy(Policy{headers: headers, proxies: names})
}

func newPolicy(p Policy) *Policy {
	p.barred = make(map[string]bool, len(p.headers))
	for _, name := range p.headers {
		p.barred[name] = true
	}
	return &p
}

// For returns the Policy for the streams of a proxy whose verified certificate has these names; nil = all their headers
// count.
func (p *Policy) For(names []string) *Policy {
	if p == nil || slices.ContainsFunc(names, func(name string) bool { return slices.Contains(p.proxies, name) }) {
		return nil
	}
	return p
}

// Bars reports whether a header, by its name in lower case, has no effect and goes no further.
func (p *Policy) Bars(name []byte) bool { return p != nil && p.barred[string(name)] }

// Headers returns all headers that the policy bars.
func (p *Policy) Headers() []string {
	if p == nil {
		return nil
	}
	return p.headers
}

// Stand calls visit for each header that the metadata of a message have a text for. Of a list of texts the first
// counts.
func (p *Policy) Stand(in *wire.Request, visit func(name string, value []byte)) {
	if p == nil || !p.metadata {
		return
	}
	for _, name := range p.headers {
		in.Meta(namespace, []string{name}, func(value []byte) bool {
			visit(name, value)
			return false
		})
	}
}
