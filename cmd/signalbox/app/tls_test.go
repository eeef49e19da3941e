package app

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/signalbox-epp/signalbox/adapters/secrets/secretstest"
)

const serving = healthpb.HealthCheckResponse_SERVING

// What the flags say of TLS is what a proxy meets on the ext_proc port.
func TestPickerPortIsAsTheFlagsSay(t *testing.T) {
	own, proxy, stranger := newIdentity(t, "signalbox"), newIdentity(t, "proxy"), newIdentity(t, "stranger")
	unverified := func(c *tls.Config) *tls.Config {
		c.InsecureSkipVerify, c.MinVersion = true, tls.VersionTLS12
		return c
	}
	oneSuite := []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}
	for name, c := range map[string]struct {
		flags         []string
		met, unserved []*tls.Config // nil = a client without TLS
	}{
		"self-signed": {nil, []*tls.Config{unverified(&tls.Config{})}, []*tls.Config{nil, own.trusting()}},
		"plaintext": {[]string{"--secure-serving=false"}, []*tls.Config{nil},
			[]*tls.Config{unverified(&tls.Config{})}},
		"certificate": {[]string{"--cert-path", own.folder}, []*tls.Config{own.trusting()},
			[]*tls.Config{nil, stranger.trusting()}},
		"client CA": {[]string{"--cert-path", own.folder, "--client-ca-file", proxy.crt},
			[]*tls.Config{own.trusting(proxy.pair)}, []*tls.Config{own.trusting(), own.trusting(stranger.pair)}},
		"client CA, self-signed": {[]string{"--client-ca-file", proxy.crt},
			[]*tls.Config{unverified(&tls.Config{Certificates: []tls.Certificate{proxy.pair}})},
			[]*tls.Config{unverified(&tls.Config{})}},
		"1.3 at least": {[]string{"--tls-min-version", "VersionTLS13"},
			[]*tls.Config{unverified(&tls.Config{})},
			[]*tls.Config{unverified(&tls.Config{MaxVersion: tls.VersionTLS12})}},
		"one suite": {[]string{"--tls-cipher-suites", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"},
			[]*tls.Config{unverified(&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: oneSuite})},
			[]*tls.Config{unverified(&tls.Config{MaxVersion: tls.VersionTLS12,
				CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}})}},
	} {
		t.Run(name, func(t *testing.T) {
			s := running(t, c.flags...)
			for i, client := range c.met {
				if got, err := healthAt(t, s.at("grpc-port"), "", client); got != serving {
					t.Errorf("client %d meets %v, %v", i, got, err)
				}
			}
			for i, client := range c.unserved {
				if got, err := healthAt(t, s.at("grpc-port"), "", client); err == nil {
					t.Errorf("client %d is served: %v", i, got)
				}
			}
			if got, err := healthAt(t, s.at("grpc-health-port"), "", nil); got != serving {
				t.Errorf("the health port, which has no TLS, says %v, %v", got, err)
			}
		})
	}
}

// A proxy is told of endpoints only if its certificate is of the CA that the flags name.
func TestXdsPortServesProxiesOfItsCAAlone(t *testing.T) {
	own, proxy, stranger := newIdentity(t, "signalbox"), newIdentity(t, "proxy"), newIdentity(t, "stranger")
	s := running(t, "--secure-serving=false", "--xds-port", freePort(t), "--xds-cert-path", own.folder,
		"--xds-client-ca", proxy.crt)
	at := s.at("xds-port")
	if got, err := toldByXds(t, at, own.trusting(proxy.pair)); got != "model_servers" {
		t.Errorf("a proxy of the CA is told of %q, %v", got, err)
	}
	for name, client := range map[string]*tls.Config{
		"no certificate": own.trusting(), "another CA": own.trusting(stranger.pair), "no TLS": nil,
		"distrusts us": stranger.trusting(proxy.pair),
	} {
		if got, err := toldByXds(t, at, client); err == nil {
			t.Errorf("%s: the proxy is told of %q", name, got)
		}
	}
	if got, err := toldByXds(t, at, own.trusting(proxy.pair)); err != nil {
		t.Errorf("after the proxies that are not served, a proxy of the CA is told of %q, %v", got, err)
	}
}

// toldByXds asks the xDS port for the endpoints of the pool, as a proxy does,
// and gives the name of the first resource that comes.
func toldByXds(t *testing.T, at string, c *tls.Config) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(dialed(t, at, c)).DeltaAggregatedResources(ctx)
	if err != nil {
		return "", err
	}
	_ = stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "proxy"}, TypeUrl: resource.EndpointType,
		ResourceNamesSubscribe: []string{"model_servers"}})
	told, err := stream.Recv() // which has the error of what was not sent
	if err != nil {
		return "", err
	}
	if len(told.GetResources()) == 0 {
		return "", errors.New("nothing came")
	}
	return told.GetResources()[0].GetName(), nil
}

// A replaced certificate comes into force on connections made after it; a bad one does not.
func TestCertificatesAreReplacedWhileServing(t *testing.T) {
	own, next := newIdentity(t, "first"), newIdentity(t, "second")
	s := running(t, "--cert-path", own.folder)
	before := healthClient(t, s.at("grpc-port"), own.trusting())
	if _, err := before.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next.crt, own.crt); err != nil { // without its key
		t.Fatal(err)
	}
	if got, err := healthAt(t, s.at("grpc-port"), "", own.trusting()); got != serving {
		t.Errorf("with a bad pair a client meets %v, %v", got, err)
	}
	if err := os.Rename(filepath.Join(next.folder, "tls.key"), filepath.Join(own.folder, "tls.key")); err != nil {
		t.Fatal(err)
	}
	within10s(t, "the second certificate", func() bool {
		got, _ := healthAt(t, s.at("grpc-port"), "", next.trusting())
		return got == serving
	})
	if _, err := healthAt(t, s.at("grpc-port"), "", own.trusting()); err == nil {
		t.Error("the first certificate is still shown")
	}
	if _, err := before.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("a connection from before is not served: %v", err)
	}
	_, page := asked{url: "http://" + s.at("metrics-port")}.get(t, "/metrics")
	if !strings.Contains(page, `signalbox_certificate_expiry_timestamp_seconds{port="ext_proc"} 1.`) {
		t.Error("the end of the certificate is no metric")
	}
}

func within10s(t *testing.T, what string, is func() bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for late := time.After(10 * time.Second); !is(); {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

func TestFlagsOfTLSThatAreWrong(t *testing.T) {
	defer goleak.VerifyNone(t)
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	writeText(t, file, "endpoints: []\n")
	own, empty := newIdentity(t, "a"), t.TempDir()
	for name, c := range map[string]struct {
		flags []string
		says  []string
	}{
		"all at once": {[]string{"--tls-min-version", "VersionTLS11", "--tls-cipher-suites", "TLS_RSA_WITH_RC4_128_SHA",
			"--metrics-endpoint-auth",
			"--metrics-client-ca-file", own.crt, "--secure-serving=false", "--client-ca-file", own.crt},
			[]string{"--tls-min-version", "--tls-cipher-suites", "--metrics-endpoint-auth: want --metrics-token-file",
				"--metrics-client-ca-file: want --metrics-cert-dir",
				"--client-ca-file: want --secure-serving"}},
		"files, all at once": {[]string{"--cert-path", empty, "--metrics-cert-dir", own.folder,
			"--metrics-client-ca-file", empty, "--metrics-token-file", own.crt},
			[]string{"--cert-path", filepath.Join(empty, "tls.key"), "--metrics-client-ca-file", "not a regular file",
				"--metrics-token-file"}},
	} {
		t.Run(name, func(t *testing.T) {
			o, set := newOptions(nil), pflag.NewFlagSet("test", pflag.ContinueOnError)
			o.register(set)
			if err := set.Parse(append(c.flags, "--endpoints", file, "--grpc-port", "0", "--grpc-health-port", "0",
				"--metrics-port", "0")); err != nil {
				t.Fatal(err)
			}
			_, err := start(t.Context(), o)
			if err == nil {
				t.Fatal("start returned no error")
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("got %v\nwant %q in it", err, text)
				}
			}
		})
	}
}

// A problem begins with the one flag that is at fault, and an expired certificate of any port is a warning at the
// start.
func TestProblemsOfTLSNameTheFlagAtFault(t *testing.T) {
	empty, good, expired := t.TempDir(), newIdentity(t, "good"), t.TempDir()
	secretstest.NewPairFrom(t, "late", time.Now().Add(-24*time.Hour)).Write(t, expired)
	locked := func(flags ...string) (log string, err error) {
		var lines strings.Builder
		o := parsed(t, flags...)
		if err := o.check(); err != nil {
			t.Fatal(err)
		}
		l, err := o.log.New(&lines)
		if err != nil {
			t.Fatal(err)
		}
		opened, err := o.openSecrets(l)
		if err == nil {
			opened.close()
		}
		_ = l.Close()
		return lines.String(), err
	}
	_, err := locked("--cert-path", empty, "--client-ca-file", good.crt, "--metrics-cert-dir", good.folder,
		"--metrics-client-ca-file", empty+"/ca")
	want := []string{"--cert-path: stat " + empty + "/tls.crt", "--cert-path: stat " + empty + "/tls.key",
		"--metrics-client-ca-file: stat " + empty + "/ca"}
	if err == nil || !slices.EqualFunc(strings.Split(err.Error(), "\n"), want, strings.HasPrefix) {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
	for flag, others := range map[string][]string{"--cert-path": nil, "--metrics-cert-dir": nil,
		"--xds-cert-path": {"--xds-port", "1"}} {
		log, err := locked(append(others, flag, expired)...)
		if err != nil || !strings.Contains(log, `"level":"warn"`) ||
			!strings.Contains(log, flag+": "+expired+"/tls.crt: the certificate of") || strings.Count(log, "\n") != 1 {
			t.Errorf("%s: %v, log %q, want one warning that it has expired", flag, err, log)
		}
	}
	if log, err := locked("--cert-path", good.folder); err != nil || log != "" {
		t.Errorf("a valid certificate: %v, log %q", err, log)
	}
}

// What explain cannot reach for the sake of TLS names the flag that would help.
func TestExplainNamesTheFlagOfAFailedHandshake(t *testing.T) {
	own, client, stranger := newIdentity(t, "signalbox"), newIdentity(t, "client"), newIdentity(t, "stranger")
	guarded := running(t, "--metrics-cert-dir", own.folder, "--metrics-client-ca-file", client.crt).at("metrics-port")
	open := running(t, "--metrics-cert-dir", own.folder).at("metrics-port")
	_, port, err := net.SplitHostPort(open)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		flags []string
		want  string
	}{
		"no CA": {[]string{"--addr", "https://" + open}, "--ca-file: want the CA that signed"},
		"another CA": {[]string{"--addr", "https://" + open, "--ca-file", stranger.crt}, "--ca-file " +
			stranger.crt + ": "},
		"another name": {[]string{"--addr", "https://localhost:" + port, "--ca-file", own.crt}, "--addr: "},
		"no certificate": {[]string{"--addr", "https://" + guarded, "--ca-file", own.crt},
			"--cert-path: want a certificate"},
		"stranger": {[]string{"--addr", "https://" + guarded, "--ca-file", own.crt, "--cert-path",
			stranger.folder}, "--cert-path " + stranger.folder + ": "},
		"all that is asked": {[]string{"--addr", "https://" + guarded, "--ca-file", own.crt, "--cert-path",
			client.folder}, "no record of a request"},
		"no TLS where it is":   {[]string{"--addr", "http://" + open}, ""},
		"no CA in the file":    {[]string{"--ca-file", filepath.Join(own.folder, "tls.key")}, "--ca-file: "},
		"no directory of ours": {[]string{"--cert-path", t.TempDir()}, "--cert-path: "},
	} {
		root := newRoot()
		root.SetArgs(append([]string{"explain", "0-1"}, c.flags...))
		root.SetOut(io.Discard)
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// The tokens of clients that name endpoints are read at the start, and their file is named if it holds none.
func TestForcedEndpointTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	for text, want := range map[string]string{"one\ntwo\n": "", "": "--forced-endpoint-token-file: "} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := parsed(t, "--forced-endpoint-token-file", file, "--secure-serving=false")
		log, logErr := o.log.New(io.Discard)
		if logErr != nil {
			t.Fatal(logErr)
		}
		s, err := o.openSecrets(log)
		_ = log.Close()
		if want != "" {
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%q: got %v, want %s", text, err, want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		for token, accepted := range map[string]bool{"one": true, "two": true, "three": false, "one two": false} {
			if o.tls.forces(token) != accepted {
				t.Errorf("token %q: accepted %t, want %t", token, !accepted, accepted)
			}
		}
	}
	if o := parsed(t); (&portSecrets{}).forces() != nil || o.tls.forces != nil {
		t.Error("without the flag tokens are taken")
	}
}
