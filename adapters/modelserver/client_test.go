package modelserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// identity is a certificate that vouches for itself, for servers and clients at 127.0.0.1.
type identity struct {
	certificate, key []byte // PEM
	pair             tls.Certificate
}

func newIdentity(t *testing.T) identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	id := identity{certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})}
	if id.pair, err = tls.X509KeyPair(id.certificate, id.key); err != nil {
		t.Fatal(err)
	}
	return id
}

// put writes a file, whose time says that it is another one than before.
func put(t *testing.T, name string, text []byte, at time.Time) string {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, at, at); err != nil {
		t.Fatal(err)
	}
	return name
}

// newTLSScene returns a scene whose server shows one certificate and wants another one.
func newTLSScene(t *testing.T, page Page, server, client identity) *scene {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	wants := x509.NewCertPool()
	wants.AppendCertsFromPEM(client.certificate)
	s := &scene{t: t, server: httptest.NewUnstartedServer(say("vllm:num_requests_waiting 3\n")), ear: make(ear, 1000)}
	s.server.TLS = &tls.Config{Certificates: []tls.Certificate{server.pair}, ClientCAs: wants,
		ClientAuth: tls.RequireAndVerifyClientCert}
	s.server.StartTLS()
	page.Scheme = "https"
	f, err := NewFetcher(Config{Pages: Pages{Attributes: everything, Metrics: page}})
	if err != nil {
		t.Fatal(err)
	}
	s.fetcher = f
	t.Cleanup(s.end)
	return s
}

// A page is read over TLS from a server that one file vouches for, with the certificate of another one.
func TestPageIsReadWithCertificates(t *testing.T) {
	server, client, stranger := newIdentity(t), newIdentity(t), newIdentity(t)
	folder, then := t.TempDir(), time.Now().Add(-time.Minute)
	file := func(name string, text []byte) string { return put(t, filepath.Join(folder, name), text, then) }
	ca, crt, key := file("ca", server.certificate), file("crt", client.certificate), file("key", client.key)
	for name, c := range map[string]struct {
		page  Page
		fails string // "" = the page is read
	}{
		"all": {Page{CAFile: ca, CertificateFile: crt, KeyFile: key}, ""},
		"any certificate of the server": {Page{AnyCertificate: true, CAFile: "/none", CertificateFile: crt,
			KeyFile: key}, ""},
		"the system's roots": {Page{CertificateFile: crt, KeyFile: key}, "certificate"},
		"other authorities":  {Page{CAFile: crt, CertificateFile: crt, KeyFile: key}, "certificate"},
		"no certificate":     {Page{CAFile: ca}, "certificate required"},
		"a stranger": {Page{CAFile: ca, CertificateFile: file("crt2", stranger.certificate),
			KeyFile: file("key2", stranger.key)}, "certificate"},
		"the key of another": {Page{CAFile: ca, CertificateFile: crt, KeyFile: file("key3", stranger.key)},
			"private key"},
		"no file":              {Page{CAFile: filepath.Join(folder, "none")}, "no such file"},
		"no certificate in it": {Page{CAFile: key}, "no certificate in it"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTLSScene(t, c.page, server, client)
			if c.fails != "" {
				s.failsWith(1, c.fails)
			} else if m := s.scrape(1); m.Failure != "" || m.PageBytes == 0 {
				t.Errorf("failure %q, %d bytes; want the page", m.Failure, m.PageBytes)
			}
		})
	}
}

// A renewed certificate is shown once files are looked at again; one that cannot be read displaces none.
func TestCertificatesAreReadAnew(t *testing.T) {
	one, two := newIdentity(t), newIdentity(t)
	folder, then := t.TempDir(), time.Now().Add(-time.Minute)
	by := trust{anyCertificate: true, certificate: filepath.Join(folder, "crt"), key: filepath.Join(folder, "key")}
	write := func(id identity, at time.Time) {
		put(t, by.certificate, id.certificate, at)
		put(t, by.key, id.key, at)
	}
	var c clients
	cfg := Config{}.withDefaults()
	if _, err := c.of(t.Context(), by, cfg, then); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Fatalf("without files: got %v", err)
	}
	write(one, then)
	at := func(now time.Time) any {
		t.Helper()
		got, err := c.of(t.Context(), by, cfg, now)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	now := time.Now()
	first := at(now)
	write(two, then.Add(time.Second))
	if at(now.Add(filesAge-time.Second)) != first {
		t.Error("files were looked at before their time")
	}
	second := at(now.Add(filesAge))
	if second == first {
		t.Error("renewed files were not read")
	}
	put(t, by.key, []byte("none"), then.Add(2*time.Second))
	if at(now.Add(2*filesAge)) != second {
		t.Error("a key that cannot be read displaced a good one")
	}
	if err := os.Remove(by.key); err != nil {
		t.Fatal(err)
	}
	if at(now.Add(3*filesAge)) != second {
		t.Error("a file that is gone displaced a good one")
	}
	c.close()
}

// Files that hang hold up the pages that name them until their time is over, and no others. Without https none is read.
func TestFilesThatHangHoldUpNoOthers(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	folder, now := t.TempDir(), time.Now()
	pipe, id := filepath.Join(folder, "pipe"), newIdentity(t)
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	hangs := trust{authorities: pipe}
	good := trust{authorities: put(t, filepath.Join(folder, "ca"), id.certificate, now)}
	f, err := NewFetcher(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	for range 2 { // the second one finds the first one waiting
		if _, err := f.others.of(ctx, hangs, f.cfg, now); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the time is over", err)
		}
	}
	if _, err := f.others.of(t.Context(), good, f.cfg, now); err != nil {
		t.Errorf("files that can be read: %v", err)
	}
	s := httptest.NewServer(say("page"))
	defer s.Close()
	var body []byte
	if err := f.getFrom(t.Context(), s.URL, trust{authorities: "/none"}, 10, &body); string(body) != "page" {
		t.Errorf("without https: got %q, %v", body, err)
	}
	end, err := os.OpenFile(pipe, os.O_WRONLY, 0) // which the reader has waited for
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(pipe); err != nil { // or it would be waited for again
		t.Fatal(err)
	}
	end.Close()
	if _, err := f.others.of(t.Context(), hangs, f.cfg, now); err == nil {
		t.Error("an empty pipe has certificates")
	}
	f.Read(Pages{Models: Page{CAFile: good.authorities}})
	if _, kept := f.others.open[good]; !kept || len(f.others.open) != 1 {
		t.Errorf("%d sets of files after other pages are read, want that which one names", len(f.others.open))
	}
}
