package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/signalbox-epp/signalbox/adapters/secrets/secretstest"
)

// running is a Signalbox on real sockets of 127.0.0.1, over an endpoints file without endpoints. It ends with the test.
func running(t *testing.T, flags ...string) *server {
	t.Helper()
	s := started(t, flags...)
	t.Cleanup(func() {
		if err := s.stop(0); err != nil {
			t.Error(err)
		}
	})
	return s
}

func started(t *testing.T, flags ...string) *server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	writeText(t, file, "endpoints: []\n")
	o, set := newOptions(nil), pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.register(set)
	all := append([]string{"--endpoints", file, "--grpc-port", "0", "--grpc-health-port", "0", "--metrics-port", "0",
		"--shards", "1", "-v0"}, flags...)
	if err := set.Parse(all); err != nil {
		t.Fatal(err)
	}
	s, err := start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *server) at(flag string) string { return s.addrs[flag][0].String() }

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// identity is a certificate for 127.0.0.1 that is its own authority, in a directory with tls.crt and tls.key.
type identity struct {
	folder, crt string
	pair        tls.Certificate
	roots       *x509.CertPool
}

func newIdentity(t *testing.T, name string) identity {
	t.Helper()
	pair, folder := secretstest.NewPair(t, name), t.TempDir()
	pair.Write(t, folder)
	return identity{folder: folder, crt: filepath.Join(folder, "tls.crt"), pair: pair.Certificate(t),
		roots: pair.Roots()}
}

// trusting is a client that takes this identity only, and shows another one if one is given: also where the server
// names other CAs, to which Go by itself shows none.
func (i identity) trusting(shown ...tls.Certificate) *tls.Config {
	c := &tls.Config{RootCAs: i.roots, MinVersion: tls.VersionTLS12}
	if len(shown) > 0 {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown[0], nil }
	}
	return c
}

// healthAt asks a gRPC port for its health; nil = without TLS.
func healthAt(t *testing.T, at, service string, c *tls.Config) (healthpb.HealthCheckResponse_ServingStatus, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := healthClient(t, at, c).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	return r.GetStatus(), err
}

func healthClient(t *testing.T, at string, c *tls.Config) healthpb.HealthClient {
	t.Helper()
	return healthpb.NewHealthClient(dialed(t, at, c))
}

// dialed is a connection that ends with the test; nil = without TLS.
func dialed(t *testing.T, at string, c *tls.Config) *grpc.ClientConn {
	t.Helper()
	creds := insecure.NewCredentials()
	if c != nil {
		creds = credentials.NewTLS(c)
	}
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// asked is an HTTP client of the metrics port, on a connection of its own.
type asked struct {
	url, token string
	host       string // of the Host header; "" = the URL's
	tls        *tls.Config
}

// get gives the status, or 0 if there is no answer, and the body.
func (a asked) get(t *testing.T, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = cmp.Or(a.host, r.Host)
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: a.tls}}
	resp, err := c.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// randomPicking is a configuration that reads nothing of any endpoint.
const randomPicking = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: random-picker}]
schedulingProfiles: [{name: random, plugins: [{pluginRef: random-picker}]}]
`
