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
		InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"},
		MinVersion: tls.VersionTLS12,
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

// startRenewing is startPrinted, with an Envoy that makes a new connection to the picker after 50 streams on one.
func startRenewing(t *testing.T, p *picker) *envoy {
	t.Helper()
	const cluster, options = "  - name: epp\n", "        explicit_http_config:\n"
	before, after, ok := strings.Cut(printedFor(t, p), cluster)
	if !ok || !strings.Contains(after, options) {
		t.Fatal("the bootstrap has no cluster epp with such options")
	}
	return startText(t, before+cluster+strings.Replace(after, options,
		"        common_http_protocol_options: {max_requests_per_connection: 50}\n"+options, 1))
}

// TestEnvoyGoesOnWhileCertificatesAreReplaced: both sides verify each other, and no request of many clients fails while
// the picker's certificate is replaced, by a bad one too, which is said and changes nothing.
func TestEnvoyGoesOnWhileCertificatesAreReplaced(t *testing.T) {
	t.Parallel() // it mostly waits
	ca := newAuthority(t)
	own, envoys := ca.issue(t, "first"), ca.issue(t, "envoy")
	p := serve(t, simulated(t, 2, brisk...), "--cert-path", own, "--client-ca-file", ca.file, "--envoy-ca", ca.file,
		"--envoy-cert-path", envoys)
	p.pooled(t, 2)
	e := startRenewing(t, p)
	e.asksPicker(t)
	c := newClient(e.url)
	t.Cleanup(c.close)
	work := steady(c, 8)
	renewed := func() { // what is shown now was shown to Envoy too, and requests went on over it
		const connections = "cluster.epp.upstream_cx_total"
		before, sent := e.stat(connections), work.count()
		eventually(t, 20*time.Second, "envoy connects anew", func() bool {
			return e.stat(connections) >= before+4 &&
				work.count() > sent+200
		})
	}
	within := func(name string) {
		took := eventually(t, 5*time.Second, name+" is shown", func() bool { return p.shown(t, envoys) == name })
		t.Logf("%s is shown after %v", name, took.Round(time.Millisecond))
	}
	renewed()
	replaced := time.Now()
	replaceWith(t, own, ca.issue(t, "second"))
	within("second")
	renewed()
	writeFile(t, filepath.Join(own, "tls.key"), "no key\n")
	eventually(t, 5*time.Second, "the bad pair is logged", func() bool { return p.logsBadPair() })
	within("second")
	renewed()
	replaceWith(t, own, ca.issue(t, "third"))
	within("third")
	renewed()
	answers := work.stop()
	figures(t, "certificates replaced twice, and by a bad pair between", answers, replaced)
	for _, a := range answers {
		if !a.whole() {
			t.Error(a.String())
		}
	}
	if picks := p.picks(); picks != len(answers) {
		t.Errorf("%d picks for %d requests", picks, len(answers))
	}
	if e.stat("cluster.epp.ssl.handshake") == 0 || e.stat("cluster.epp.ssl.fail_verify_error") != 0 {
		t.Error("envoy did not verify the picker")
	}
	p.idle(t)
}

func (p *picker) logsBadPair() bool {
	for line := range strings.Lines(p.log.text()) {
		if strings.Contains(line, "what was read before stays in force") && strings.Contains(line, "--cert-path") {
			return true
		}
	}
	return false
}
