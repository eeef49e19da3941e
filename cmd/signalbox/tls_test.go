package main

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
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
		"plaintext":   {[]string{"--secure-serving=false"}, []*tls.Config{nil}, []*tls.Config{unverified(&tls.Config{})}},
		"certificate": {[]string{"--cert-path", own.folder}, []*tls.Config{own.trusting()}, []*tls.Config{nil, stranger.trusting()}},
		"client CA": {[]string{"--cert-path", own.folder, "--client-ca-file", proxy.crt},
			[]*tls.Config{own.trusting(proxy.pair)}, []*tls.Config{own.trusting(), own.trusting(stranger.pair)}},
		"client CA, self-signed": {[]string{"--client-ca-file", proxy.crt},
			[]*tls.Config{unverified(&tls.Config{Certificates: []tls.Certificate{proxy.pair}})}, []*tls.Config{unverified(&tls.Config{})}},
		"1.3 at least": {[]string{"--tls-min-version", "VersionTLS13"},
			[]*tls.Config{unverified(&tls.Config{})}, []*tls.Config{unverified(&tls.Config{MaxVersion: tls.VersionTLS12})}},
		"one suite": {[]string{"--tls-cipher-suites", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"},
			[]*tls.Config{unverified(&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: oneSuite})},
			[]*tls.Config{unverified(&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}})}},
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
	s := running(t, "--secure-serving=false", "--xds-port", freePort(t), "--xds-cert-path", own.folder, "--xds-client-ca", proxy.crt)
	at := s.at("xds-port")
	if got, err := toldByXds(t, at, own.trusting(proxy.pair)); got != "model_servers" {
		t.Errorf("a proxy of the CA is told of %q, %v", got, err)
	}
	for name, client := range map[string]*tls.Config{
		"no certificate": own.trusting(), "another CA": own.trusting(stranger.pair), "no TLS": nil, "distrusts us": stranger.trusting(proxy.pair),
	} {
		if got, err := toldByXds(t, at, client); err == nil {
			t.Errorf("%s: the proxy is told of %q", name, got)
		}
	}
	if got, err := toldByXds(t, at, own.trusting(proxy.pair)); err != nil {
		t.Errorf("after those who are not served, a proxy of the CA is told of %q, %v", got, err)
	}
}

// toldByXds asks the xDS port for the endpoints of the pool, as a proxy does, and gives the name of the first resource that comes.
func toldByXds(t *testing.T, at string, c *tls.Config) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(dialed(t, at, c)).DeltaAggregatedResources(ctx)
	if err != nil {
		return "", err
	}
	_ = stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "proxy"}, TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"model_servers"}})
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
		"all at once": {[]string{"--tls-min-version", "VersionTLS11", "--tls-cipher-suites", "TLS_RSA_WITH_RC4_128_SHA", "--metrics-endpoint-auth",
			"--metrics-client-ca-file", own.crt, "--secure-serving=false", "--client-ca-file", own.crt},
			[]string{"--tls-min-version", "--tls-cipher-suites", "--metrics-endpoint-auth: want --metrics-token-file", "--metrics-client-ca-file: want --metrics-cert-dir",
				"--client-ca-file: want --secure-serving"}},
		"files, all at once": {[]string{"--cert-path", empty, "--metrics-cert-dir", own.folder, "--metrics-client-ca-file", empty, "--metrics-token-file", own.crt},
			[]string{"--cert-path", filepath.Join(empty, "tls.key"), "--metrics-client-ca-file", "not a regular file", "--metrics-token-file"}},
	} {
		t.Run(name, func(t *testing.T) {
			o, set := newOptions(), pflag.NewFlagSet("test", pflag.ContinueOnError)
			o.register(set)
			if err := set.Parse(append(c.flags, "--endpoints", file, "--grpc-port", "0", "--grpc-health-port", "0", "--metrics-port", "0")); err != nil {
				t.Fatal(err)
			}
			_, err := start(t.Context(), o)
			if err == nil {
				t.Fatal("it starts")
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v\ndoes not say %q", err, text)
				}
			}
		})
	}
}
