package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"
)

// front is the HTTP side of an API server as one picker sees it: it passes calls on, or refuses them.
type front struct {
	*httptest.Server
	c *cluster

	mu      sync.Mutex
	refusal int           // status of every answer; 0 = calls are passed on, lost = none is answered
	refused int           // calls and watches that heard of it
	changed chan struct{} // closed when refusal changes
}

// newFront returns a front of a cluster, a middle before it, and a kubeconfig by which both are passed.
func newFront(t *testing.T, c *cluster) (*front, *middle, string) {
	t.Helper()
	f := &front{c: c, changed: make(chan struct{})}
	f.Server = httptest.NewUnstartedServer(f)
	f.EnableHTTP2, f.Config.ErrorLog = true, log.New(io.Discard, "", 0) // handshakes are broken off by design
	f.StartTLS()
	m := middleTo(t, f.Listener.Addr().String())
	t.Cleanup(func() {
		f.refuse(http.StatusServiceUnavailable) // ends the watches
		f.CloseClientConnections()
		f.Close()
	})
	folder := t.TempDir()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(folder, "ca.crt"), authority, 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "front",
		"clusters": []object{{"name": "front", "cluster": object{
			"server": "https://" + m.listener.Addr().String(), "certificate-authority": filepath.Join(folder, "ca.crt"),
		}}},
		"users":    []object{{"name": "front", "user": object{"token": c.token}}},
		"contexts": []object{{"name": "front", "context": object{"cluster": "front", "user": "front"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(folder, "kubeconfig")
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return f, m, kubeconfig
}

// refuse has every call answered with a status, and ends the watches that there are: 410 as an event of each, others
// by breaking them off; 0 = calls are passed on, and watches end as they do when their time is over.
func (f *front) refuse(status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusal, f.refused = status, 0
	close(f.changed)
	f.changed = make(chan struct{})
}

// lost is the refusal of a front whose answers are lost, also those to calls that came while it was in force.
const lost = -1

// heard reports whether a call or a watch has heard of the refusal that is in force.
func (f *front) heard() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused > 0
}

func (f *front) count() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused++
}

func (f *front) now() (refusal int, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refusal, f.changed
}

// ServeHTTP passes a call on, or refuses it.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refusal, changed := f.now()
	if refusal == lost {
		<-r.Context().Done()
		return
	}
	if refusal != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(refusal)
		_, _ = w.Write(statusObject(refusal))
		f.count()
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
	}()
	out := r.Clone(ctx)
	out.RequestURI, out.URL.Scheme, out.URL.Host = "", "https", strings.TrimPrefix(f.c.server, "https://")
	answer, err := f.c.http.Transport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer answer.Body.Close()
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	if err := f.pass(w, answer.Body); err != nil && r.Context().Err() == nil {
		watches := r.URL.Query().Get("watch") != ""
		refusal, now := f.now()
		switch {
		case watches && now != changed && refusal == 0:
		case watches && now != changed && refusal == http.StatusGone:
			_, _ = w.Write([]byte(`{"type":"ERROR","object":` + string(statusObject(refusal)) + "}\n"))
			f.count()
		default:
			panic(http.ErrAbortHandler)
		}
	}
}

// pass passes lines on, each of which is an event of a watch, or text of a list.
func (f *front) pass(w http.ResponseWriter, body io.Reader) error {
	lines := bufio.NewReader(body)
	for {
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err // half a line is no event
		}
		if _, writeErr := w.Write(line); writeErr != nil || err != nil {
			return writeErr
		}
	}
}

// statusObject returns what an API server says beside a status.
func statusObject(code int) []byte {
	reasons := map[int]string{
		http.StatusForbidden: "Forbidden", http.StatusGone: "Expired", http.StatusTooManyRequests: "TooManyRequests",
		http.StatusServiceUnavailable: "ServiceUnavailable",
	}
	text, err := json.Marshal(object{
		"kind": "Status", "apiVersion": "v1", "metadata": object{}, "status": "Failure", "code": code,
		"reason": reasons[code], "message": "the test refuses this: " + strings.ToLower(http.StatusText(code)),
	})
	if err != nil {
		panic(err)
	}
	return text
}
