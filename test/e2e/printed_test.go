package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// printed is what envoy-config prints.
func printed(t *testing.T, flags ...string) string {
	t.Helper()
	out, err := exec.Command(binary, append([]string{"envoy-config"}, flags...)...).Output()
	if err != nil {
		t.Fatalf("envoy-config %v: %v", flags, err)
	}
	return string(out)
}

func TestBootstrapsAreWhatIsPrinted(t *testing.T) {
	seenElsewhere(t)
	for path, flags := range printedBy {
		if printed(t, flags...) != readFile(t, path) {
			t.Errorf("envoy-config %v does not print %s", flags, path)
		}
	}
}

func TestPrintedBootstrapsFollowTheFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	writeFile(t, file, endpointsFile(t, []string{"10.0.0.1:81", "10.0.0.2:82"}))
	text := printed(t, "--secure-serving=false", "--grpc-port", "9102", "--envoy-version", "1.37", "--endpoints", file,
		"--admin", "127.0.0.1:1", "--listen", "127.0.0.2:2")
	for part, want := range map[string]bool{
		"transport_socket": false, "selected_host_key": false, "port_value: 9102}": true, "port_value: 9002}": false,
		"address: 10.0.0.2, port_value: 82}": true,
		"port_value: 8001}":                  false, "address: 127.0.0.1, port_value: 1}": true,
		"address: 127.0.0.2, port_value: 2}": true,
	} {
		if strings.Contains(text, part) != want {
			t.Errorf("%q stands in it: %t, want %t", part, !want, want)
		}
	}
	for wrong, flags := range map[string][]string{
		"1.35": {"--envoy-version", "1.35"}, "--advertise": {"--bind", "0.0.0.0"},
		"--xds-listen": {"--xds-listen", ":1"}, "nonsense": {"--cluster", "nonsense"},
	} {
		out, err := exec.Command(binary, append([]string{"envoy-config"}, flags...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), wrong) {
			t.Errorf("envoy-config %v: %v, %s", flags, err, out)
		}
	}
}

// TestEnvoyTakesWhatIsPrinted puts flags that differ from the default on both sides.
func TestEnvoyTakesWhatIsPrinted(t *testing.T) {
	seenElsewhere(t)
	for name, flags := range map[string][]string{
		"without TLS": {"--secure-serving=false"}, "without health checks": {"--health-checking=false"},
		"small bodies": {"--max-body-bytes", "65536"},
	} {
		for _, cluster := range []string{"override-host", "original-dst", "xds"} {
			t.Run(name+" "+cluster, func(t *testing.T) { takesPrinted(t, cluster, flags) })
		}
	}
}

func takesPrinted(t *testing.T, cluster string, flags []string) {
	servers := simulated(t, 2, quick...)
	p, _ := serveXds(t, servers, flags...)
	e := startPrinted(t, p, "--cluster", cluster)
	e.asksPicker(t) // without a pick, original-dst has nowhere to go
	c := newClient(e.url)
	t.Cleanup(c.close)
	eventually(t, 10*time.Second, "envoy asks the picker", func() bool {
		if a := c.chat(model, "hello", 2); !a.whole() {
			t.Fatal(a.String())
		}
		return p.picks() > 0
	})
}

// startPrinted runs what envoy-config prints for the flags of a picker.
func startPrinted(t *testing.T, p *picker, flags ...string) *envoy {
	t.Helper()
	return startText(t, printedFor(t, p, flags...))
}

// printedFor is that bootstrap, on free ports.
func printedFor(t *testing.T, p *picker, flags ...string) string {
	t.Helper()
	all := append([]string{"--envoy-version", envoyVersion, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"},
		p.flags[1:]...)
	return printed(t, append(all, flags...)...)
}

// startText runs a bootstrap as it is.
func startText(t *testing.T, text string) *envoy {
	t.Helper()
	folder := t.TempDir()
	config := filepath.Join(folder, "envoy.yaml")
	writeFile(t, config, text)
	e := &envoy{}
	e.run(t, config, folder)
	return e
}

// TestEnvoyShowsItsCertificate: with certificates on all sides, Envoy is told everything,
// and asks a picker that it has checked.
func TestEnvoyShowsItsCertificate(t *testing.T) {
	servers := simulated(t, 2, quick...)
	ca := newAuthority(t)
	own, envoys := ca.issue(t, "signalbox"), ca.issue(t, "envoy")
	p, _ := serveXds(t, servers, "--cert-path", own, "--xds-cert-path", own, "--xds-client-ca", ca.file, "--envoy-ca",
		ca.file)
	e := startPrinted(t, p, "--cluster", "xds", "--envoy-cert-path", envoys)
	e.asksPicker(t)
	c := newClient(e.url)
	t.Cleanup(c.close)
	for range 4 {
		if a := c.chat(model, "hello", 2); !a.whole() {
			t.Error(a.String())
		}
	}
	if p.picks() != 4 {
		t.Errorf("%d picks for 4 requests", p.picks())
	}
	p.toldInTime(t)
}

// authority signs certificates for 127.0.0.1.
type authority struct {
	file   string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{file: filepath.Join(t.TempDir(), "ca.pem"), key: key, serial: 1, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

// issue gives a directory with tls.crt and tls.key.
func (a *authority) issue(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.serial++
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	writePEM(t, filepath.Join(folder, "tls.crt"), "CERTIFICATE", der)
	writePEM(t, filepath.Join(folder, "tls.key"), "PRIVATE KEY", private)
	return folder
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
