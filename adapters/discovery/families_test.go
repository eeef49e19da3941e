package discovery

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// doors are the addresses at which a connection is taken.
type doors struct {
	mu   sync.Mutex
	open string
}

func (d *doors) set(open string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = " " + open + " "
}

func (d *doors) answers(_ context.Context, at netip.AddrPort) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Contains(d.open, " "+at.String()+" ")
}

// TestNameCountsByTheFamilyThatAnswers: the two addresses of a server are one endpoint, and stay the same one while
// both answer, or neither.
func TestNameCountsByTheFamilyThatAnswers(t *testing.T) {
	const both = "10.0.0.1 2001:db8::1"
	s, book, d := newScene(t), newPhonebook(), &doors{}
	book.set(both)
	s.write(endpointsAt("vllm"))
	s.run(Config{Resolver: book, ResolveEvery: 10 * time.Millisecond, Answers: d.answers})
	s.tells("10.0.0.1:8000") // nothing answers yet
	d.set("[2001:db8::1]:8000")
	s.tells("[2001:db8::1]:8000")
	d.set("[2001:db8::1]:8000 10.0.0.1:8000")
	s.stays()
	d.set("")
	s.stays()
	d.set("10.0.0.1:8000")
	s.tells("10.0.0.1:8000")
	book.set(errors.New("no answer"))
	s.reports("no answer")
	d.set("[2001:db8::1]:8000")
	s.stays()
}

// stays looks at the set ten times as long as names take to be looked up again.
func (s *scene) stays() {
	s.t.Helper()
	select {
	case m := <-s.sets:
		s.t.Fatalf("told %v, want no change", m.Endpoints)
	case <-time.After(100 * time.Millisecond):
	}
}

// TestEachPortOfANameHasItsFamily: servers of one host may listen differently, and one may come later.
func TestEachPortOfANameHasItsFamily(t *testing.T) {
	s, book, d := newScene(t), newPhonebook(), &doors{}
	book.set("10.0.0.1 10.0.0.2 2001:db8::1 2001:db8::2")
	d.set("10.0.0.2:1 [2001:db8::2]:2 [2001:db8::1]:3")
	entries := []string{
		"endpoints:",
		"- {name: a, address: vllm, port: 1}",
		"- {name: b, address: vllm, port: 2}",
		"- {name: c, address: vllm, port: 3}", "",
	}
	s.write(strings.Join(entries[:3], "\n"))
	s.run(Config{Resolver: book, Answers: d.answers})
	told := []string{"10.0.0.1:1", "10.0.0.2:1", "[2001:db8::1]:2", "[2001:db8::2]:2"}
	s.tells(told...)
	s.rename(strings.Join(entries, "\n"))
	s.tells(append(told, "[2001:db8::1]:3", "[2001:db8::2]:3")...)
}

// TestLocalhostIsBothLoopbacks: Envoy knows both, also where a file of the machine, or its resolver, has one or
// neither.
func TestLocalhostIsBothLoopbacks(t *testing.T) {
	for _, host := range []string{"localhost", "LOCALHOST.", "vllm.localhost"} {
		for _, known := range []any{"127.0.0.1", errors.New("no such host")} {
			s, book, d := newScene(t), newPhonebook(), &doors{}
			book.lines["localhost"], book.lines["vllm.localhost"] = known, known
			s.write(endpointsAt(host))
			d.set("[::1]:8000")
			s.run(Config{Resolver: book, ResolveEvery: 10 * time.Millisecond, Answers: d.answers})
			s.tells("[::1]:8000")
			d.set("127.0.0.1:8000")
			s.tells("127.0.0.1:8000")
			s.file.Close()
		}
	}
}

// TestLocalhostIsWhereAServerListens: with connections as they are.
func TestLocalhostIsWhereAServerListens(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Logf("%s is left out: %v", host, err)
			continue
		}
		t.Cleanup(func() { _ = l.Close() })
		s := newScene(t)
		s.write("endpoints:\n- {name: a, address: localhost, port: " + strconv.Itoa(l.Addr().(*net.TCPAddr).Port) +
			"}\n")
		s.run(Config{})
		s.tells(l.Addr().String())
	}
}
