package kube

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// middle passes connections on to an API server, with faults.
type middle struct {
	listener net.Listener
	server   string // address

	mu      sync.Mutex
	refuses bool          // new connections are closed at once
	delay   time.Duration // of each piece
	all     map[net.Conn]*link
}

// link is one connection of a client.
type link struct {
	client, server net.Conn
	forgotten      bool // nothing passes any more, and nobody is told
}

// newMiddle returns a middle in front of a cluster, and a kubeconfig by which it is reached.
func newMiddle(t *testing.T, c *cluster) (*middle, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &middle{listener: l, server: strings.TrimPrefix(c.server, "https://"), all: map[net.Conn]*link{}}
	go m.accept()
	t.Cleanup(func() {
		l.Close()
		m.cut()
	})
	return m, m.through(t, c.kubeconfig())
}

// through returns a kubeconfig that is like another one, and goes through m.
func (m *middle) through(t *testing.T, kubeconfig string) string {
	t.Helper()
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text = bytes.ReplaceAll(text, []byte(m.server), []byte(m.listener.Addr().String()))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (m *middle) accept() {
	for {
		client, err := m.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", m.server)
		m.mu.Lock()
		if err != nil || m.refuses {
			client.Close()
			if err == nil {
				server.Close()
			}
			m.mu.Unlock()
			continue
		}
		k := &link{client: client, server: server}
		m.all[client] = k
		m.mu.Unlock()
		go m.pass(k, client, server)
		go m.pass(k, server, client)
	}
}

// pass passes what one side sends on to the other.
func (m *middle) pass(k *link, from, to net.Conn) {
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		m.mu.Lock()
		forgotten, delay := k.forgotten, m.delay
		m.mu.Unlock()
		if forgotten {
			_, _ = io.Copy(io.Discard, from) // until somebody gives up
			return
		}
		<-time.After(delay)
		if _, writeErr := to.Write(piece[:n]); err != nil || writeErr != nil {
			break
		}
	}
	k.client.Close()
	k.server.Close()
}

// cut closes all connections.
func (m *middle) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.all {
		k.client.Close()
		k.server.Close()
	}
	clear(m.all)
}

// forget lets nothing pass on the connections that there are, as a firewall does that has lost its memory of them.
func (m *middle) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.all {
		k.forgotten = true
	}
}

func (m *middle) set(refuses bool, delay time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuses, m.delay = refuses, delay
}

// Faults of the connection, drawn from a seed, while pods change: after each the picker has exactly the pods that there
// are, and no pick fails.
func TestFaultsOfTheConnection(t *testing.T) {
	s := newSpace(t, shared)
	m, kubeconfig := newMiddle(t, shared)
	s.pod("stays", "10.0.0.1", vllm, nil)
	s.pool(8000)
	p := startPicker(t, s.inPool("--kubeconfig", kubeconfig)...)
	p.knows("stays-rank-0 10.0.0.1:8000")
	p.ready(true)
	stop := p.pickAlways()
	random := rand.New(rand.NewPCG(14, 0))
	want := []string{"stays-rank-0 10.0.0.1:8000"}
	for i := range 15 {
		switch fault := random.IntN(4); fault {
		case 0:
			m.cut()
		case 1:
			m.set(true, 0)
			m.cut()
		case 2:
			m.set(false, 100*time.Millisecond)
		case 3:
			m.set(false, 20*time.Millisecond)
			m.cut()
		}
		name, ip := fmt.Sprintf("z%02d", i), fmt.Sprintf("10.0.0.%d", 10+i)
		s.pod(name, ip, vllm, nil)
		if i%3 == 2 {
			gone := fmt.Sprintf("z%02d", i-1)
			s.remove(s.pods() + "/" + gone)
			want = want[:len(want)-1]
		}
		want = append(want, fmt.Sprintf("%s-rank-0 %s:8000", name, ip))
		<-time.After(time.Duration(random.IntN(1000)) * time.Millisecond)
		m.set(false, 0)
		p.knows(want...)
		p.ready(true)
	}
	if n := stop(); n < 10 {
		t.Errorf("%d picks meanwhile, want 10 or more", n)
	}
}

// Connections that are forgotten without a word are noticed by the pings of HTTP/2, or when the next watch is due.
func TestForgottenConnections(t *testing.T) {
	s := newSpace(t, shared)
	m, kubeconfig := newMiddle(t, shared)
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pool(8000)
	p := startPicker(t, s.inPool("--kubeconfig", kubeconfig)...)
	p.knows("a-rank-0 10.0.0.1:8000")
	p.ready(true)
	m.forget()
	began := time.Now()
	s.pod("b", "10.0.0.2", vllm, nil)
	eventuallyWithin(t, 3*patience, "the pod that came", func() bool { return len(p.endpoints()) == 2 })
	t.Logf("noticed after %v", time.Since(began))
	p.ready(true)
}
