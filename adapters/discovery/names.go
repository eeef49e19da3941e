package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Resolver finds the addresses of a host name. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

const (
	lookupTimeout = 5 * time.Second
	lookupsAtOnce = 8
	maxAddresses  = 256 // of one name
)

// names is what host names resolved to. It belongs to the goroutine of Run; lookups run on their own and come back
// through found.
type names struct {
	resolver Resolver
	known    map[string]*name
	found    chan found
	turns    chan struct{}
	running  sync.WaitGroup
}

type name struct {
	addresses []netip.Addr // sorted; what the last lookup that succeeded said
	looking   bool         // a lookup runs
	tried     bool         // a lookup has ended
}

type found struct {
	host      string
	addresses []netip.Addr
	err       error
}

func newNames(r Resolver) *names {
	return &names{resolver: r, known: map[string]*name{}, found: make(chan found), turns: make(chan struct{}, lookupsAtOnce)}
}

// want forgets the hosts that no entry has any more, and looks up those that are new.
func (n *names) want(ctx context.Context, entries []Entry) {
	wanted := make(map[string]bool)
	for _, e := range entries {
		if e.Host == "" {
			continue
		}
		wanted[e.Host] = true
		if n.known[e.Host] == nil {
			n.known[e.Host] = &name{}
			n.look(ctx, e.Host)
		}
	}
	for host := range n.known {
		if !wanted[host] {
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
	if n.known[host].looking {
		return
	}
	n.known[host].looking = true
	n.running.Go(func() {
		f := found{host: host}
		f.addresses, f.err = n.lookup(ctx, host)
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

// take keeps what a lookup said; a failure keeps what the one before said.
func (n *names) take(f found) error {
	of := n.known[f.host]
	if of == nil {
		return nil // no entry has it any more
	}
	of.looking, of.tried = false, true
	if f.err != nil {
		if len(of.addresses) == 0 {
			return fmt.Errorf("host %s has no address, it is left out: %w", f.host, f.err)
		}
		return fmt.Errorf("host %s: %w; its last %d addresses stay", f.host, f.err, len(of.addresses))
	}
	of.addresses = f.addresses
	return nil
}

// complete says that every host was looked up at least once.
func (n *names) complete() bool {
	for _, of := range n.known {
		if !of.tried {
			return false
		}
	}
	return true
}
