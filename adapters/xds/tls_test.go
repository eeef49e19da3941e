package xds

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

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// selfSigned writes a certificate for 127.0.0.1 that is its own authority, and gives it.
func selfSigned(t *testing.T, folder string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
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
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// asks gives what a proxy meets that trusts one certificate and shows others.
func (r *rig) asks(trusts tls.Certificate, shows ...tls.Certificate) codes.Code {
	r.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(trusts.Leaf)
	p, err := r.connectWith(credentials.NewTLS(&tls.Config{RootCAs: roots, Certificates: shows, MinVersion: tls.VersionTLS12}))
	if err != nil {
		return status.Code(err)
	}
	defer p.end()
	_ = p.stream.Send(&discoveryv3.DeltaDiscoveryRequest{ // how it fails is seen below
		Node: node(Light), TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{servers},
	})
	_, err = p.stream.Recv()
	return status.Code(err)
}

func TestOnlyProxiesOfTheAuthorityAreServed(t *testing.T) {
	own, theirs, stranger := t.TempDir(), t.TempDir(), t.TempDir()
	ours, envoy, other := selfSigned(t, own), selfSigned(t, theirs), selfSigned(t, stranger)
	creds, err := TLSFiles{Directory: own, ClientCA: filepath.Join(theirs, "tls.crt")}.Credentials()
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Config{}, grpc.Creds(creds))
	r.announce("10.0.0.1:80")
	r.acknowledged()
	for name, c := range map[string]struct {
		shows []tls.Certificate
		want  codes.Code
	}{"its own": {[]tls.Certificate{envoy}, codes.OK}, "none": {nil, codes.Unavailable}, "another": {[]tls.Certificate{other}, codes.Unavailable}} {
		if got := r.asks(ours, c.shows...); got != c.want {
			t.Errorf("a proxy that shows %s certificate meets %v, want %v", name, got, c.want)
		}
	}
	anew, envoyAnew := selfSigned(t, own), selfSigned(t, theirs) // both are replaced while the server runs
	if got := r.asks(ours, envoy); got != codes.Unavailable {
		t.Errorf("the certificates before are still good: %v", got)
	}
	if got := r.asks(anew, envoyAnew); got != codes.OK {
		t.Errorf("the certificates that took their place meet %v", got)
	}
}

func TestFilesThatCannotBeReadAreSaid(t *testing.T) {
	folder := t.TempDir()
	if _, err := (TLSFiles{Directory: folder}).Credentials(); err == nil {
		t.Error("a directory without a certificate is taken")
	}
	selfSigned(t, folder)
	if _, err := (TLSFiles{Directory: folder, ClientCA: filepath.Join(folder, "tls.key")}).Credentials(); err == nil {
		t.Error("an authority without a certificate is taken")
	}
}
