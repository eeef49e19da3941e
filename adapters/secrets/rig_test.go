package secrets

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// pair is a certificate for 127.0.0.1 that is its own authority, and its key, as PEM.
type pair struct{ crt, key []byte }

func newPair(t *testing.T, name string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

// write puts the pair into a folder, each file in one step.
func (p pair) write(t *testing.T, folder string) {
	t.Helper()
	put(t, filepath.Join(folder, "tls.crt"), p.crt)
	put(t, filepath.Join(folder, "tls.key"), p.key)
}

// put replaces a file by a rename.
func put(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func (p pair) certificate(t *testing.T) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.crt, p.key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

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
