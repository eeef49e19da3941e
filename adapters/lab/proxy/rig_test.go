package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// rig is a proxy between a client and an upstream.
type rig struct {
	t      *testing.T
	proxy  *Proxy
	front  *httptest.Server
	client *http.Client

	mu    sync.Mutex
	found []exchange.Violation
}

func startRig(t *testing.T, config Config) *rig {
	t.Helper()
	r := &rig{t: t}
	config.Plaintext = true
	config.OnViolation = func(v exchange.Violation) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.found = append(r.found, v)
	}
	p, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	r.proxy = p
	r.front = httptest.NewServer(p)
	r.front.Config.ErrorLog = nil
	r.client = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		r.front.Close()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) violations() []exchange.Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]exchange.Violation(nil), r.found...)
}

func startUpstream(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// deadAddress is an address on which nothing listens.
func deadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (r *rig) post(body io.Reader, change func(*http.Request)) (*http.Response, string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.front.URL+"/v1/chat/completions?x=1", body)
	if err != nil {
		r.t.Fatal(err)
	}
	if change != nil {
		change(request)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return response, "broken: " + err.Error()
	}
	return response, string(text)
}

// until waits for a condition that another goroutine brings about.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}
