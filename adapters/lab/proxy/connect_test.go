package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

func TestTLSToTheEPPAndHTTP2Clients(t *testing.T) {
	upstream := startUpstream(t, echoUpstream)
	certificates := httptest.NewUnstartedServer(nil)
	certificates.StartTLS()
	t.Cleanup(certificates.Close)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: certificates.TLS.Certificates})))
	extprocv3.RegisterExternalProcessorServer(server, &fakeEPP{t: t, destination: upstream})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() { server.Stop(); <-done })

	p, err := New(Config{EPP: listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	front := httptest.NewUnstartedServer(p)
	front.EnableHTTP2 = true
	front.StartTLS()
	defer front.Close()
	response, err := front.Client().Post(front.URL, "text/plain", io.MultiReader(strings.NewReader("hello")))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "hello" || response.ProtoMajor != 2 {
		t.Errorf("got %q over HTTP/%d, %v", body, response.ProtoMajor, err)
	}
}

func TestEarlyAnswerWhileTheRequestGoesOn(t *testing.T) {
	upstream := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.(http.Flusher).Flush()
		_, _ = io.Copy(w, r.Body)
	})
	r := startRig(t, Config{EPP: startEPP(t, upstream).address})
	source, sink := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _ = sink.Write([]byte("one")) }()
	request, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.front.URL, source)
	response, err := r.client.Do(request) // returns with the response headers, long before the request ends
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	go func() {
		_, _ = sink.Write([]byte("two"))
		_ = sink.Close()
	}()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "onetwo" {
		t.Errorf("got %q, %v", body, err)
	}
	if v := r.violations(); len(v) != 0 {
		t.Errorf("violations: %v", v)
	}
}

func TestSilentEPPTimesOutOutsideFullDuplex(t *testing.T) {
	epp := startEPP(t, "127.0.0.1:1")
	epp.fault = plant("qH")
	r := startRig(t, Config{EPP: epp.address, Response: exchange.FullDuplex(), MessageTimeout: 10 * time.Millisecond})
	if response, body := r.post(strings.NewReader("x"), nil); response == nil ||
		response.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("got %v %q, want 504", response, body)
	}
}

func TestConfigIsChecked(t *testing.T) {
	tests := map[string]Config{
		"no EPP":                    {},
		"request headers skipped":   {EPP: "a:1", Request: exchange.Mode{SkipHeaders: true}},
		"response without trailers": {EPP: "a:1", Response: exchange.Mode{Body: exchange.FullDuplex().Body}},
		"negative chunk":            {EPP: "a:1", ChunkBytes: -1},
	}
	for name, config := range tests {
		if p, err := New(config); err == nil {
			t.Errorf("%s: accepted", name)
			_ = p.Close()
		}
	}
}

func TestResponseModeNoneEndsStreamEarly(t *testing.T) {
	release := make(chan struct{})
	upstream := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.(http.Flusher).Flush()
		<-release
		_, _ = w.Write([]byte("late"))
	})
	epp := startEPP(t, upstream)
	r := startRig(t, Config{EPP: epp.address, Request: exchange.FullDuplex(), Response: exchange.Mode{}})
	response, err := r.client.Post(r.front.URL, "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	until(t, "EPP stream ended before the body",
		func() bool { epp.mu.Lock(); defer epp.mu.Unlock(); return epp.ended == 1 })
	close(release)
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != "late" || response.Header.Get("X-Seen") != "yes" {
		t.Errorf("got %q, %v, %v", body, err, response.Header)
	}
	if s := r.proxy.Stats(); s.Failures != 0 {
		t.Errorf("stats: %+v", s)
	}
}

func TestRequestModeNonePicksFromHeaders(t *testing.T) {
	upstream := startUpstream(t, echoUpstream)
	epp := startEPP(t, upstream)
	epp.fault = func(step string, s *eppStream) (bool, error) { return step == "qH", s.pick() }
	r := startRig(t, Config{EPP: epp.address, Response: exchange.FullDuplex()})
	response, got := r.post(strings.NewReader("hello"), nil)
	if response == nil || got != "hello" || response.Header.Get("X-Got-Length") != "5" {
		t.Fatalf("response %v: %s", response, got)
	}
	for _, m := range epp.asks {
		if _, body := m.Request.(*extprocv3.ProcessingRequest_RequestBody); body {
			t.Error("the body reached the EPP in mode NONE")
		}
	}
}

func BenchmarkProxy(b *testing.B) {
	upstream := httptest.NewServer(http.HandlerFunc(echoUpstream))
	defer upstream.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer()
	extprocv3.RegisterExternalProcessorServer(server,
		discardEPP{&fakeEPP{destination: strings.TrimPrefix(upstream.URL, "http://")}})
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	p, err := New(Config{EPP: listener.Addr().String(), Plaintext: true})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	front := httptest.NewServer(p)
	defer front.Close()
	body := strings.Repeat("x", 2000)
	b.ReportAllocs()
	for b.Loop() {
		response, err := front.Client().Post(front.URL, "text/plain", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		if n, _ := io.Copy(io.Discard, response.Body); n != 2000 {
			b.Fatalf("%d bytes", n)
		}
		response.Body.Close()
	}
}

// discardEPP answers like its fake and keeps no messages.
type discardEPP struct{ *fakeEPP }

func (d discardEPP) Process(raw extprocv3.ExternalProcessor_ProcessServer) error {
	s := &eppStream{ExternalProcessor_ProcessServer: raw, epp: d.fakeEPP}
	for {
		m, err := raw.Recv()
		if err != nil {
			return err
		}
		if err := s.answer(m); err != nil {
			return err
		}
	}
}
