// Package secretstest makes certificates for tests, each with its key. It owns how they look and how their files come
// to be. It never signs one certificate by another: whoever trusts a pair is given that pair's certificate.
package secretstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Pair is a certificate for 127.0.0.1 that is its own authority, and its key, as PEM. It is good for an hour.
type Pair struct{ Crt, Key []byte }

// NewPair returns a certificate for servers and clients with this common name.
func NewPair(t *testing.T, name string) Pair {
	t.Helper()
	return NewPairFrom(t, name, time.Now().Add(-time.Hour))
}

// NewPairFrom returns a certificate that is valid for two hours, from a time on.
func NewPairFrom(t *testing.T, name string, from time.Time) Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: from,
		NotAfter: from.Add(2 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

// Write puts the pair into a folder as tls.crt and tls.key, each as Put does.
func (p Pair) Write(t *testing.T, folder string) {
	t.Helper()
	Put(t, filepath.Join(folder, "tls.crt"), p.Crt)
	Put(t, filepath.Join(folder, "tls.key"), p.Key)
}

// Certificate returns the pair as TLS shows it.
func (p Pair) Certificate(t *testing.T) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Crt, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Roots returns a pool that trusts the pair alone.
func (p Pair) Roots() *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.Crt)
	return roots
}

// Put makes or replaces a file by a rename, so that no reader sees half of it.
func Put(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
