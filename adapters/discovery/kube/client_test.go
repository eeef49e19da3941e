package kube

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// A token is read from its file for each call, and the last one serves while the file cannot be read.
func TestTokenFileIsReadForEachCall(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer second" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`))
	}))
	defer api.Close()
	token := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	pods := podsByTokenFile(t, api.URL, token)
	if err := pods(); reasonOf(err) != "unauthorized" {
		t.Fatalf("with the first token: %v, want that it is refused", err)
	}
	write("second\n")
	if err := pods(); err != nil {
		t.Errorf("the first call with the second token: %v", err)
	}
	write(" \n")
	if err := pods(); err != nil {
		t.Errorf("while the file is empty: %v", err)
	}
	never := podsByTokenFile(t, api.URL, token)
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	if err := pods(); err != nil {
		t.Errorf("without the file: %v", err)
	}
	if err := never(); err == nil || !strings.Contains(err.Error(), "the token: open "+token) {
		t.Errorf("before there was a token: %v, want that there is none", err)
	}
}

// podsByTokenFile returns a function that lists pods by the token of a file.
func podsByTokenFile(t *testing.T, server, token string) func() error {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\n"+
		"clusters: [{name: c, cluster: {server: "+server+", insecure-skip-tls-verify: true}}]\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"users: [{name: u, user: {tokenFile: "+token+"}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster, err := Cluster(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(cluster, namespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return func() error {
		_, err := r.Pods(t.Context(), Target{Selector: "app=vllm", Ports: []int{8000}})
		return err
	}
}

// answering is the transport of a client: no socket, so that the clock of a test is the only one. Each call gets its
// number, from 1 on.
type answering struct {
	calls atomic.Int32
	call  func(n int32, r *http.Request)
}

// RoundTrip answers a list of one pod once call has returned.
func (a *answering) RoundTrip(r *http.Request) (*http.Response, error) {
	a.call(a.calls.Add(1), r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	answer(w, http.StatusOK, text{"kind": "PodList", "apiVersion": "v1", "items": []text{podAt("1", "10.0.0.1")}})
	return w.Result(), nil
}

// A list whose answer is lost is asked for again, on another connection. The answer to one of them is enough, also if
// it is the first one's, which came late.
func TestListWhoseAnswerIsLost(t *testing.T) {
	const late = 3 // calls
	for name, lost := range map[string]func(n int32) bool{
		"the first ones": func(n int32) bool { return n <= late },
		"all but one":    func(n int32) bool { return n > 1 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &answering{call: func(n int32, r *http.Request) {
					if lost(n) {
						<-r.Context().Done()
					} else if n == 1 {
						<-time.After(late*listPatience + time.Second)
					}
				}}
				c, err := newClient(&rest.Config{Host: "http://api", Transport: a}, namespace)
				if err != nil {
					t.Fatal(err)
				}
				lates := 0
				all, err := c.source(pods, selection{}).list(t.Context(), metav1.ListOptions{}, func(err error) {
					if lates++; reasonOf(err) != "timeout" {
						t.Errorf("it is late by %v, want a timeout", err)
					}
				})
				if err != nil || len(all.(*objects).Items) != 1 {
					t.Errorf("%v, %v; want one pod", all, err)
				}
				if n := a.calls.Load(); lates != late || n != late+1 {
					t.Errorf("late %d times, in %d calls; want %d in %d", lates, n, late, late+1)
				}
			})
		})
	}
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
	from := c.source(pods, selection{})
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
	machine, began := lateness.Begin(), time.Now()
	for verb, call := range calls {
		done.Go(func() {
			if err := call(); reasonOf(err) != "timeout" {
				t.Errorf("%s: %v, want a timeout", verb, err)
			}
		})
	}
	done.Wait()
	machine.Within(t, "both have timed out", time.Since(began), dialer.Timeout+time.Second)
}
