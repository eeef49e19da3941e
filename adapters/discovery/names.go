package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Resolver looks up the addresses of a host name. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

const (
	lookupTimeout = 5 * time.Second
	lookupsAtOnce = 8
	maxAddresses  = 256 // of one name
)

// names holds the addresses of host names, and by which of IPv4 and IPv6 their servers are reached. It belongs to the
// goroutine of Run. Lookups run on goroutines of their own and send what they found to found.
type names struct {
	resolver Resolver
	answers  func(context.Context, netip.AddrPort) bool
	known    map[string]*name
	found    chan found
	turns    chan struct{} // holds one item for each lookup that runs
	tries    chan struct{} // holds one item for each port that is tried
	running  sync.WaitGroup
}

type name struct {
	addresses []netip.Addr // of both families, sorted; result of the last lookup that succeeded
	ports     []uint16     // of the entries with this host; replaced, never written to, because lookups read it
	families  families     // of the ports of the last lookup; replaced, never written to, because lookups read it
	looking   bool         // a lookup runs
}

type found struct {
	host      string
	addresses []netip.Addr
	families  families // of the ports that the lookup was for
	err       error
}

func newNames(cfg *Config) *names {
	return &names{
		resolver: cfg.Resolver, answers: cfg.Answers,
		known: map[string]*name{}, found: make(chan found), turns: make(chan struct{}, lookupsAtOnce),
		tries: make(chan struct{}, triesAtOnce),
	}
}

// want drops the hosts that no entry has any more, and looks up those that are new or have a new port.
func (n *names) want(ctx context.Context, entries []Entry) {
	wanted := make(map[string][]uint16)
	for _, e := range entries {
		if e.Host != "" {
			wanted[e.Host] = append(wanted[e.Host], e.Port)
		}
	}
	for host, ports := range wanted {
		if n.known[host] == nil {
			n.known[host] = &name{}
		}
		n.known[host].ports = ports
		if !n.known[host].complete() {
			n.look(ctx, host)
		}
	}
	for host := range n.known {
		if wanted[host] == nil {
			delete(n.known, host)
		}
	}
}

// again looks up every host.
func (n *names) again(ctx context.Context) {
	for host := range n.known {
		n.look(ctx, host)
	}
}

func (n *names) look(ctx context.Context, host string) {
	known := n.known[host]
	if known.looking {
		return
	}
	known.looking = true
	ports, before := known.ports, known.families
	n.running.Go(func() {
		f := found{host: host}
		f.addresses, f.err = n.lookup(ctx, host)
		f.families = n.choose(ctx, f.addresses, ports, before)
		select {
		case n.found <- f:
		case <-ctx.Done():
		}
	})
}

func (n *names) lookup(ctx context.Context, host string) (addresses []netip.Addr, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("lookup of %s: panic: %v", host, r)
		}
	}()
	select {
	case n.turns <- struct{}{}:
		defer func() { <-n.turns }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	all, err := n.resolver.LookupNetIP(ctx, "ip", host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		// Envoy resolves it to both loopback addresses, as RFC 6761 says, whatever the machine's hosts file has.
		all, err = append(all, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()), nil
	}
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a = a.Unmap(); a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast() {
			addresses = append(addresses, a)
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	if addresses = slices.Compact(addresses); len(addresses) == 0 {
		return nil, fmt.Errorf("lookup %s: no address that can be used", host)
	}
	return addresses[:min(len(addresses), maxAddresses)], nil
}

// take keeps the result of a lookup. If the lookup failed, the addresses before stay, and the error says so.
func (n *names) take(ctx context.Context, f found) error {
	known := n.known[f.host]
	if known == nil {
		return nil // no entry has it any more
	}
	known.looking, known.families = false, f.families
	if !known.complete() { // an entry with a new port came during the lookup
		n.look(ctx, f.host)
	}
	if f.err != nil {
		if len(known.addresses) == 0 {
			return fmt.Errorf("host %s has no address, it is left out: %w", f.host, f.err)
		}
		return fmt.Errorf("host %s: %w; its last %d addresses stay", f.host, f.err, len(known.addresses))
	}
	known.addresses = f.addresses
	return nil
}

// complete reports whether every host was looked up at least once, for all of its ports.
func (n *names) complete() bool {
	for _, known := range n.known {
		if !known.complete() {
			return false
		}
	}
	return true
}

func (h *name) complete() bool {
	return !slices.ContainsFunc(h.ports, func(p uint16) bool { return h.families[p] == 0 })
}
