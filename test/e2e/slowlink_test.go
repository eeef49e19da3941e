package e2e

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// slowLink listens on a port that leads to another one. What comes back from there arrives late.
func slowLink(t *testing.T, to int, late time.Duration) int {
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
			running.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
			running.Go(func() { delay(near, far, late); _ = near.Close() })
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
