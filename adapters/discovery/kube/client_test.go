package kube

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// A token that the API server takes no more is read again from its file.
func TestTokenFileIsReadAgain(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	const good = "Bearer second"
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != good {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`))
	}))
	defer api.Close()
	folder := t.TempDir()
	token, kubeconfig := filepath.Join(folder, "token"), filepath.Join(folder, "kubeconfig")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(token, "first\n")
	write(kubeconfig, "apiVersion: v1\nkind: Config\ncurrent-context: c\n"+
		"clusters: [{name: c, cluster: {server: "+api.URL+", insecure-skip-tls-verify: true}}]\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"users: [{name: u, user: {tokenFile: "+token+"}}]\n")
	cluster, err := Cluster(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(cluster, namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	target := Target{Selector: "app=vllm", Ports: []int{8000}}
	if _, err := r.Pods(t.Context(), target); reasonOf(err) != "unauthorized" {
		t.Fatalf("with the first token: %v, want that it is refused", err)
	}
	write(token, "second\n")
	_, _ = r.Pods(t.Context(), target) // a token is read again once it was refused to a call that did not read it
	if _, err := r.Pods(t.Context(), target); err != nil {
		t.Errorf("with the second token: %v", err)
	}
}

// A list whose answer is lost is asked for again, on another connection. The answer to one of them is enough, also if
// it is the first one's, which came late.
func TestListWhoseAnswerIsLost(t *testing.T) {
	f := newFake(t)
	f.put(podsPath, "a", podAt("1", "10.0.0.1"))
	first := make(chan struct{}) // closed when the first call is answered
	answerFirst := sync.OnceFunc(func() { close(first) })
	var calls atomic.Int32
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) > 1 {
			<-r.Context().Done()
			return
		}
		<-first
		f.ServeHTTP(w, r)
	}))
	defer slow.Close()
	defer answerFirst()
	list := func(host string, late func(error)) {
		t.Helper()
		c, err := newClient(&rest.Config{Host: host}, namespace)
		if err != nil {
			t.Fatal(err)
		}
		defer c.http.CloseIdleConnections()
		c.patience = 50 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), withinTest)
		defer cancel()
		all, err := c.source(pods, selection{}).list(ctx, metav1.ListOptions{}, late)
		if err != nil || len(all.(*objects).Items) != 1 {
			t.Errorf("%v, %v; want one pod", all, err)
		}
	}
	f.swallow = 3
	lates := 0
	list(f.URL, func(err error) {
		if lates++; reasonOf(err) != "timeout" {
			t.Errorf("it is late by %v, want a timeout", err)
		}
	})
	if lates != 3 {
		t.Errorf("late %d times, want 3", lates)
	}
	lates = 0
	list(slow.URL, func(error) {
		if lates++; lates == 3 {
			answerFirst()
		}
	})
}

// The answer to a watch that does not begin is given up early, and later each time that one was.
func TestWatchWhoseAnswerIsLost(t *testing.T) {
	for late, want := range []time.Duration{3 * time.Second, 6 * time.Second, 12 * time.Second} {
		if got := (&source{late: late}).startWithin(); got != want {
			t.Errorf("after %d that were late: %v, want %v", late, got, want)
		}
	}
}

// While packets are lost no attempt to connect lasts for more than two seconds, so that the next one is soon.
func TestConnectionsWhilePacketsAreLost(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// With room for one connection that nothing takes, the kernel drops what opens further ones.
	if ctl := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }); ctl != nil || err != nil {
		t.Fatal(ctl, err)
	}
	full, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	c, err := newClient(&rest.Config{Host: "http://" + l.Addr().String()}, namespace)
	if err != nil {
		t.Fatal(err)
	}
	began, from := time.Now(), c.source(pods, selection{})
	calls := map[string]func() error{
		"list": func() error {
			_, err := from.list(t.Context(), metav1.ListOptions{}, func(error) {})
			return err
		},
		"watch": func() error {
			_, err := from.watch(t.Context(), metav1.ListOptions{}, func(error) {})
			return err
		},
	}
	var done sync.WaitGroup
	for verb, call := range calls {
		done.Go(func() {
			err := call()
			if took := time.Since(began); reasonOf(err) != "timeout" || took > 4*time.Second {
				t.Errorf("%s: %v after %v, want a timeout after 2 s", verb, err, took)
			}
		})
	}
	done.Wait()
}
