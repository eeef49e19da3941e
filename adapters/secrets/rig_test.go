package secrets

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// heard is what a watch tells.
type heard chan error

func (h heard) watch() Watch {
	return Watch{Every: 5 * time.Millisecond, Tell: func(err error) { h <- err }}
}

// next waits for the next word.
func (h heard) next(t *testing.T) error {
	t.Helper()
	select {
	case err := <-h:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was told within 10 s")
		return nil
	}
}

// serve lets a port answer handshakes on a real socket, with one byte, and gives its address.
func serve(t *testing.T, c Config, w Watch) string {
	t.Helper()
	p, err := NewPort(c, w)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", p.Server())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = conn.Write([]byte{1}) // a client that was refused is seen on its side
				conn.Close()
			}
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		p.Close()
		goleak.VerifyNone(t)
	})
	return l.Addr().String()
}

// meets is what a client finds at an address: what was agreed on, or why not.
func meets(address string, c *tls.Config) (tls.ConnectionState, error) {
	conn, err := tls.Dial("tcp", address, c)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil { // in TLS 1.3 a refusal comes after the handshake
		return tls.ConnectionState{}, err
	}
	return conn.ConnectionState(), nil
}

// shows is the name of the certificate that a client gets.
func shows(t *testing.T, address string) string {
	t.Helper()
	s, err := meets(address, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	return s.PeerCertificates[0].Subject.CommonName
}
