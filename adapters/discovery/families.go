package discovery

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"
)

// family is one of IPv4 and IPv6; the zero family is neither.
type family uint8

const (
	ipv4 family = 1 + iota
	ipv6
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// families holds by which family each port of a host is reached. A host with addresses of both families is one server,
// or a set of servers, with two addresses each. If both became endpoints, the server would count twice, and one that
// listens on one family alone would have an endpoint that never answers. Envoy knows the addresses of both.
type families map[uint16]family

const (
	answerWithin  = time.Second // as long as Envoy waits for a connection
	answersWanted = 4           // addresses of a family that are tried: one that answers is enough
	triesAtOnce   = 32          // ports that are tried at once, of all hosts
)

// choose returns the family of each port. The first choice is IPv4 if there are such addresses. A choice stays as long
// as one of its addresses takes a connection, or none of the other family does, so that a server that restarts keeps
// its family.
func (n *names) choose(ctx context.Context, addresses []netip.Addr, ports []uint16, before families) families {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	chosen := make(families, len(ports))
	for _, port := range ports {
		chosen[port] = max(before[port], ipv4)
	}
	four, six := ofFamily(addresses, ipv4), ofFamily(addresses, ipv6)
	if len(four) == 0 || len(six) == 0 {
		return chosen
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	for port, was := range maps.Clone(chosen) {
		n.tries <- struct{}{}
		all.Go(func() {
			defer func() { <-n.tries }()
			now := n.reached(ctx, was, map[family][]netip.Addr{ipv4: four, ipv6: six}, port)
			mu.Lock()
			defer mu.Unlock()
			chosen[port] = now
		})
	}
	all.Wait()
	return chosen
}

// reached returns the family by which a port is reached: the one before, unless only the other one answers.
func (n *names) reached(ctx context.Context, before family, addresses map[family][]netip.Addr, port uint16) family {
	other := ipv4 + ipv6 - before
	if !n.anyAnswers(ctx, addresses[before], port) && n.anyAnswers(ctx, addresses[other], port) {
		return other
	}
	return before
}

// anyAnswers reports whether a connection can be made to one of the addresses.
func (n *names) anyAnswers(ctx context.Context, addresses []netip.Addr, port uint16) bool {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	addresses = addresses[:min(len(addresses), answersWanted)]
	answers := make(chan bool, len(addresses))
	for _, a := range addresses {
		n.running.Go(func() { answers <- n.answers(ctx, netip.AddrPortFrom(a, port)) })
	}
	for range addresses {
		if <-answers {
			return true
		}
	}
	return false
}

// connects reports whether a server takes a connection.
func connects(ctx context.Context, at netip.AddrPort) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return false
	}
	_ = conn.Close() // it was opened only to see whether that works
	return true
}

func ofFamily(addresses []netip.Addr, f family) []netip.Addr {
	var some []netip.Addr
	for _, a := range addresses {
		if familyOf(a) == f {
			some = append(some, a)
		}
	}
	return some
}

// at returns the addresses by which a port of the host is reached.
func (h *name) at(port uint16) []netip.Addr {
	if some := ofFamily(h.addresses, h.families[port]); len(some) > 0 {
		return some
	}
	return h.addresses // they are all of the other family, or no lookup was for this port so far
}
