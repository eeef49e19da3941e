package discovery

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// phonebook is a resolver whose answers a test writes. A host without an entry hangs until it has one.
type phonebook struct {
	mu    sync.Mutex
	lines map[string]any // string of addresses, or error
	asked chan string
}

func newPhonebook() *phonebook {
	return &phonebook{lines: map[string]any{}, asked: make(chan string, 10_000)}
}

func (p *phonebook) set(answer any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines["vllm"] = answer
}

func (p *phonebook) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	p.asked <- network + " " + host
	p.mu.Lock()
	answer := p.lines[host]
	p.mu.Unlock()
	switch answer := answer.(type) {
	case error:
		return nil, answer
	case string:
		var all []netip.Addr
		for _, a := range strings.Fields(answer) {
			all = append(all, netip.MustParseAddr(a))
		}
		return all, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestEachAddressOfANameIsAnEndpoint(t *testing.T) {
	s, book := newScene(t), newPhonebook()
	book.set("10.0.0.2 10.0.0.3 10.0.0.1 10.0.0.1 0.0.0.0")
	s.write(endpointsAt("vllm", "10.9.9.9"))
	s.run(Config{Resolver: book, ResolveEvery: 20 * time.Millisecond})
	m := s.tells("10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.9.9.9:8000")
	for i := range 3 {
		if got := m.Endpoints.At(i).Name; got != "e0" {
			t.Errorf("name %q, want e0", got)
		}
	}
	book.set("10.0.0.3 10.0.0.1 10.0.0.2") // another order is no change
	book.set("10.0.0.4")
	s.tells("10.0.0.4:8000", "10.9.9.9:8000")
	book.set("2001:db8::2 2001:db8::1")
	s.tells("[2001:db8::1]:8000", "[2001:db8::2]:8000", "10.9.9.9:8000")
	if got := <-book.asked; got != "ip vllm" {
		t.Errorf("asked %q", got)
	}
}

func TestNameThatFailsKeepsItsAddresses(t *testing.T) {
	s, book := newScene(t), newPhonebook()
	book.set("10.0.0.1")
	s.write(endpointsAt("vllm"))
	s.run(Config{Resolver: book, ResolveEvery: 20 * time.Millisecond})
	s.tells("10.0.0.1:8000")
	book.set(errors.New("server misbehaving"))
	s.reports("vllm: server misbehaving; its last 1 addresses stay")
	book.set(errors.New("misbehaving otherwise")) // reported once
	book.set("")
	book.set("10.0.0.2")
	s.reports("")
	s.tells("10.0.0.2:8000")
	book.set(errors.New("gone"))
	s.reports("gone")
	s.rename(endpointsAt("10.0.0.9")) // no entry has the name any more
	s.reports("")
	s.tells("10.0.0.9:8000")
}

func TestNameWithoutAddressIsLeftOut(t *testing.T) {
	s, book := newScene(t), newPhonebook()
	book.set(errors.New("no such host"))
	s.write(endpointsAt("vllm", "10.9.9.9"))
	s.run(Config{Resolver: book})
	s.reports("host vllm has no address, it is left out: no such host; endpoints in the set: 1")
	s.tells("10.9.9.9:8000")
}

func TestNameThatHangsHoldsNothingBackForLong(t *testing.T) {
	s, book := newScene(t), newPhonebook()
	s.write(endpointsAt("10.0.0.1", "hangs"))
	s.run(Config{Resolver: book})
	s.tells("10.0.0.1:8000")
	s.rename(endpointsAt("10.0.0.2", "hangs"))
	s.tells("10.0.0.2:8000")
	s.file.Close() // ends the lookup, too
}
