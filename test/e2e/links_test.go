package e2e

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// slowLink listens on a port that leads to another one. What comes back from there arrives late.
func slowLink(t *testing.T, to int, late time.Duration) int {
	t.Helper()
	return relay(t, to,
		func(far, near net.Conn) { _, _ = io.Copy(far, near); _ = far.Close() },
		func(near, far net.Conn) { delay(near, far, late); _ = near.Close() })
}

// deadLink listens on a port that leads to another one until it is cut: from then on nothing arrives on either side,
// and no client is told of anything.
func deadLink(t *testing.T, to int) (port int, cut func()) {
	t.Helper()
	var dead atomic.Bool
	forward := func(to, from net.Conn) {
		b := make([]byte, 32<<10)
		for {
			n, err := from.Read(b)
			if dead.Load() && err == nil {
				continue
			}
			if err == nil {
				_, err = to.Write(b[:n])
			}
			if err != nil {
				break
			}
		}
		if !dead.Load() {
			_ = to.Close()
		}
	}
	return relay(t, to, forward, forward), func() { dead.Store(true) }
}

// relay listens on a port and has both functions carry what comes to another port and back;
// they close what they write to.
func relay(t *testing.T, to int, there, back func(to, from net.Conn)) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	keep := func(c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		open = append(open, c)
	}
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", to))
			if err != nil {
				_ = near.Close()
				continue
			}
			keep(near)
			keep(far)
			running.Go(func() { there(far, near) })
			running.Go(func() { back(near, far) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return l.Addr().(*net.TCPAddr).Port
}

// delay copies each piece that it reads once it is old enough, in order.
func delay(to io.Writer, from io.Reader, late time.Duration) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	pieces := make(chan piece, 4096)
	go func() {
		defer close(pieces)
		for {
			b := make([]byte, 32<<10)
			n, err := from.Read(b)
			if err != nil {
				return
			}
			pieces <- piece{b[:n], time.Now().Add(late)}
		}
	}()
	for p := range pieces {
		<-time.After(time.Until(p.due))
		if _, err := to.Write(p.bytes); err != nil {
			for range pieces { // until the reader has seen it too
			}
			return
		}
	}
}
