package kube

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// middle passes connections on to an API server, with faults.
type middle struct {
	listener net.Listener
	server   string // address

	mu      sync.Mutex
	flows   *sync.Cond    // by mu: stalls or loses has become false
	refuses bool          // new connections are closed at once
	loses   bool          // new connections are not even taken
	stalls  bool          // nothing passes for now, and nothing is lost
	delay   time.Duration // of each piece
	all     map[net.Conn]*link
	waiting []net.Conn // connections that fill the queue of those to be taken
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
		m.passPackets()
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
		if errors.Is(err, os.ErrDeadlineExceeded) {
			m.mu.Lock()
			for m.loses {
				m.flows.Wait()
			}
			m.mu.Unlock()
			continue
		}
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

// losePackets has all packets lost, also those that would open connections: with a queue that is full the kernel drops
// them.
func (m *middle) losePackets(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	m.loses = true
	m.mu.Unlock()
	m.forget()
	if err := m.queue(0, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	for {
		c, err := net.DialTimeout("tcp", m.listener.Addr().String(), time.Second)
		if err != nil {
			return
		}
		m.waiting = append(m.waiting, c)
	}
}

// passPackets ends losePackets.
func (m *middle) passPackets() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.loses {
		return
	}
	for _, c := range m.waiting {
		c.Close()
	}
	m.waiting, m.loses = nil, false
	_ = m.queue(128, time.Time{}) // unless it is closed
	m.flows.Broadcast()
}

// queue has so many connections wait to be taken, until a time; none = ever.
func (m *middle) queue(most int, until time.Time) error {
	l := m.listener.(*net.TCPListener)
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = syscall.Listen(int(fd), most) })
	return errors.Join(err, failed, l.SetDeadline(until))
}
