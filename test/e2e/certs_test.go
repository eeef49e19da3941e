package e2e

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shown is the name in the certificate of the ext_proc port, for a proxy with that identity.
func (p *picker) shown(t *testing.T, identity string) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(identity, "tls.crt"), filepath.Join(identity, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.grpcPort), &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// replaceWith puts the files of another directory in the place of those of a directory.
func replaceWith(t *testing.T, folder, other string) {
	t.Helper()
	for _, name := range []string{"tls.crt", "tls.key"} {
		text, err := os.ReadFile(filepath.Join(other, name))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(folder, name), string(text))
	}
}

// TestEnvoyGoesOnWhileCertificatesAreReplaced: both sides verify each other, and no request fails while the picker's certificate is
// replaced, by a bad one too, which is said and changes nothing.
func TestEnvoyGoesOnWhileCertificatesAreReplaced(t *testing.T) {
	ca := newAuthority(t)
	own, envoys := ca.issue(t, "first"), ca.issue(t, "envoy")
	p := serve(t, simulated(t, 2, quick...), "--cert-path", own, "--client-ca-file", ca.file, "--envoy-ca", ca.file, "--envoy-cert-path", envoys)
	e := startPrinted(t, p)
	e.asksPicker(t)
	end, failed, sent := make(chan struct{}), make(chan string, 1), make(chan int, 1)
	c := newClient(e.url)
	t.Cleanup(c.close)
	go func() {
		n := 0
		defer func() { sent <- n }()
		for ; ; n++ {
			select {
			case <-end:
				return
			default:
			}
			if a := c.chat(model, "hello", 2); !a.whole() {
				failed <- a.String()
				return
			}
		}
	}()
	within := func(name string) {
		took := eventually(t, 5*time.Second, name+" is shown", func() bool { return p.shown(t, envoys) == name })
		t.Logf("%s is shown after %v", name, took.Round(time.Millisecond))
	}
	replaceWith(t, own, ca.issue(t, "second"))
	within("second")
	writeFile(t, filepath.Join(own, "tls.key"), "no key\n")
	eventually(t, 5*time.Second, "the bad pair is logged", func() bool { return p.logsBadPair() })
	within("second")
	replaceWith(t, own, ca.issue(t, "third"))
	within("third")
	close(end)
	n := <-sent
	select {
	case text := <-failed:
		t.Errorf("request %d failed: %s", n+1, text)
	default:
	}
	if picks := p.picks(); n == 0 || picks != n {
		t.Errorf("%d picks for %d requests", picks, n)
	}
	if e.stat("cluster.epp.ssl.handshake") == 0 || e.stat("cluster.epp.ssl.fail_verify_error") != 0 {
		t.Error("envoy did not verify the picker")
	}
}

func (p *picker) logsBadPair() bool {
	for line := range strings.Lines(p.log.text()) {
		if strings.Contains(line, "what was read before stays in force") && strings.Contains(line, "--cert-path") {
			return true
		}
	}
	return false
}
