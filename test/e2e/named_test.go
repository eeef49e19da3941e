package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// What the name localhost leads to.
const (
	byIPv4 = "127.0.0.1"
	byIPv6 = "::1"
)

// hasIPv6 reports whether this machine has a loopback of IPv6.
func hasIPv6(t *testing.T) bool {
	t.Helper()
	for _, address := range loopbacks(t) {
		if address == byIPv6 {
			return true
		}
	}
	return false
}

// named is the address of a server, with the name localhost in place of its host.
func named(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("localhost", port)
}

// simulatedOn is one server that listens on that address alone.
func simulatedOn(t *testing.T, host string) string {
	t.Helper()
	return simulated(t, 1, append([]string{"--bind", host}, quick...)...)[0]
}

// TestEnvoyReachesNamedServers: what Signalbox picks of a name is in Envoy's list, and listens. The name has addresses
// of both families, at which servers listen by one alone.
func TestEnvoyReachesNamedServers(t *testing.T) {
	seenElsewhere(t)
	t.Parallel() // it mostly waits
	type place struct {
		host  string
		named bool
	}
	for name, places := range map[string][]place{
		"names":                 {{byIPv4, true}, {byIPv4, true}},
		"a name and an address": {{byIPv4, true}, {byIPv4, false}},
		"either family":         {{byIPv4, true}, {byIPv6, true}},
		"IPv6 alone":            {{byIPv6, true}, {byIPv6, false}},
	} {
		if !hasIPv6(t) && (name == "either family" || name == "IPv6 alone") {
			continue
		}
		for _, cluster := range []string{"override-host", "original-dst", "xds"} {
			t.Run(name+", "+cluster, func(t *testing.T) {
				var servers, entries []string
				for _, at := range places {
					address := simulatedOn(t, at.host)
					servers = append(servers, address)
					if at.named {
						address = named(t, address)
					}
					entries = append(entries, address)
				}
				p, _ := serveXds(t, entries)
				p.sampled(t, len(entries)) // until then, picks pass by those without a sample
				e := startPrinted(t, p, "--cluster", cluster)
				e.asksPicker(t)
				if cluster == "xds" {
					e.knows(t, servers)
				}
				allPicked(t, p, e, servers)
			})
		}
	}
}

// allPicked sends requests, each of which the server answers that Signalbox picked.
func allPicked(t *testing.T, p *picker, e *envoy, servers []string) {
	t.Helper()
	c := newClient(e.url)
	t.Cleanup(c.close)
	const requests = 40
	for n := range requests {
		a := c.chat(model, fmt.Sprintf("question %d", n), 2)
		if !a.whole() || a.header.Get("x-signalbox-request-id") == "" {
			t.Fatal(a.String())
		}
		var page struct {
			Requests []struct {
				Picked, Served *struct{ Address string }
			}
		}
		id := a.header.Get("x-signalbox-request-id")
		eventually(t, 5*time.Second, "the record of "+id, func() bool {
			status, text := get(p.metrics + "/debug/requests/" + id + "?format=json")
			return status == 200 && json.Unmarshal([]byte(text), &page) == nil && len(page.Requests) == 1 &&
				page.Requests[0].Served != nil
		})
		r := page.Requests[0]
		if r.Picked == nil || r.Picked.Address != r.Served.Address ||
			!strings.Contains(strings.Join(servers, " "), r.Served.Address) {
			t.Errorf("request %d: picked %v, served by %v; the servers are %v", n, r.Picked, r.Served, servers)
		}
	}
	for _, s := range servers {
		if served(s) == 0 {
			t.Errorf("%s was asked for nothing", s)
		}
	}
	if n := p.metric("signalbox_served_elsewhere_total"); n != 0 || p.picks() != requests {
		t.Errorf("%d picks for %d requests, %v served elsewhere", p.picks(), requests, n)
	}
	p.idle(t)
}

// TestEnvoyReachesAPickerByName: a name that has addresses of both families leads to a Signalbox that listens on one:
// to its picks, its access log and its xDS.
func TestEnvoyReachesAPickerByName(t *testing.T) {
	seenElsewhere(t)
	hosts := []string{byIPv4}
	if hasIPv6(t) {
		hosts = append(hosts, byIPv6)
	}
	for _, host := range hosts {
		for _, cluster := range []string{"override-host", "original-dst", "xds"} {
			t.Run(host+", "+cluster, func(t *testing.T) {
				servers := []string{simulatedOn(t, byIPv4), simulatedOn(t, byIPv4)}
				p, _ := serveXdsOn(t, host, servers, "--advertise", "localhost")
				e := startPrinted(t, p, "--cluster", cluster)
				eventually(t, 10*time.Second, "a picker is healthy",
					func() bool { return e.stat("cluster.epp.membership_healthy") > 0 })
				p.sampled(t, len(servers))
				if cluster == "xds" {
					e.knows(t, servers)
				}
				allPicked(t, p, e, servers)
				if n := p.metric("signalbox_access_log_entries_total", `whose="ours"`); n == 0 {
					t.Error("no entry of the access log arrives")
				}
			})
		}
	}
}

// TestEnvoyFailsOpenToNamedServers: without a picker Envoy does not know at which addresses of a name a server listens.
// It finds out.
func TestEnvoyFailsOpenToNamedServers(t *testing.T) {
	seenElsewhere(t)
	var entries []string
	for _, s := range simulated(t, 4, quick...) {
		entries = append(entries, named(t, s))
	}
	p := serve(t, entries)
	e := startPrinted(t, p)
	e.asksPicker(t)
	p.kill()
	c := newClient(e.url)
	t.Cleanup(c.close)
	eventually(t, 10*time.Second, "requests pass without a picker", func() bool {
		a := c.chat(model, "hello", 2)
		return a.whole() && a.header.Get("x-signalbox-request-id") == ""
	})
	for n := range 150 {
		if a := c.chat(model, fmt.Sprintf("question %d", n), 2); !a.whole() {
			t.Fatalf("request %d: %s", n, a.String())
		}
	}
}
