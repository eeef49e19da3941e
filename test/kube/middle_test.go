package kube

import (
	"bytes"
	"io"
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
	flows   *sync.Cond    // by mu: stalls has become false
	refuses bool          // new connections are closed at once
	stalls  bool          // nothing passes for now, and nothing is lost
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
	m := middleTo(t, strings.TrimPrefix(c.server, "https://"))
	return m, m.through(t, c.kubeconfig())
}

// middleTo returns a middle in front of an address.
func middleTo(t *testing.T, server string) *middle {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &middle{listener: l, server: server, all: map[net.Conn]*link{}}
	m.flows = sync.NewCond(&m.mu)
	go m.accept()
	t.Cleanup(func() {
		l.Close()
		m.stall(false)
		m.cut()
	})
	return m
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
		for m.stalls {
			m.flows.Wait()
		}
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

// stall lets nothing pass until it is ended, and loses nothing.
func (m *middle) stall(begins bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stalls = begins
	m.flows.Broadcast()
}
