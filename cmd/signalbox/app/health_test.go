package app

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

const notServing = healthpb.HealthCheckResponse_NOT_SERVING

// watcher is a client that watches one name at one port, and what it hears.
type watcher struct {
	name   string
	stream healthpb.Health_WatchClient
}

func watch(t *testing.T, at, name string) watcher {
	t.Helper()
	stream, err := healthClient(t, at, nil).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: name})
	if err != nil {
		t.Fatal(err)
	}
	return watcher{name, stream}
}

// hears waits for the next word, which must be this one.
func (w watcher) hears(t *testing.T, want healthpb.HealthCheckResponse_ServingStatus) {
	t.Helper()
	heard := make(chan error, 1)
	var got *healthpb.HealthCheckResponse
	go func() {
		var err error
		got, err = w.stream.Recv()
		heard <- err
	}()
	select {
	case err := <-heard:
		if err != nil || got.GetStatus() != want {
			t.Errorf("watching %q: got %v, %v; want %v", w.name, got.GetStatus(), err, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("watching %q: got nothing for 10 s, want %v", w.name, want)
	}
}

// Every name says so on both ports, to clients that ask and to clients that watch, before the end and after its begin.
func TestHealthIsServingUntilTheShutdownBegins(t *testing.T) {
	s := started(t, "--secure-serving=false", "--drain-timeout", "10s")
	var all []watcher
	for _, flag := range []string{"grpc-port", "grpc-health-port"} {
		for _, name := range healthServices {
			all = append(all, watch(t, s.at(flag), name))
			if got, err := healthAt(t, s.at(flag), name, nil); got != serving {
				t.Errorf("%q at %s: got %v, %v; want SERVING", name, flag, got, err)
			}
		}
		if _, err := healthAt(t, s.at(flag), "no.such.Service", nil); status.Code(err) != codes.NotFound {
			t.Errorf("an unknown name, at %s: got %v, want NotFound", flag, err)
		}
	}
	for _, w := range all {
		w.hears(t, serving)
	}
	stopped := make(chan error)
	go func() { stopped <- s.stop(time.Second) }()
	for _, w := range all {
		w.hears(t, notServing)
	}
	for _, flag := range []string{"grpc-port", "grpc-health-port"} {
		if got, err := healthAt(t, s.at(flag), liveness, nil); got != serving {
			t.Errorf("liveness at %s in the drain: got %v, %v; want SERVING", flag, got, err)
		}
		for _, name := range healthServices {
			if got, err := healthAt(t, s.at(flag), name, nil); got != notServing {
				t.Errorf("%q at %s in the drain: got %v, %v; want NOT_SERVING", name, flag, got, err)
			}
		}
	}
	if got, body := (asked{url: "http://" + s.at("metrics-port")}).get(t, "/readyz"); got != 503 ||
		!strings.Contains(body, "shutting down") {
		t.Errorf("/readyz in the drain: got %d %q, want 503 and that it is shutting down", got, body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// Readiness by HTTP and by gRPC is the same at each moment: when it comes, when it is lost and once the shutdown has
// begun, whoever is asked first.
func TestReadinessIsTheSameForAll(t *testing.T) {
	var why atomic.Pointer[error]
	is := func(err error) { why.Store(&err) }
	is(errors.New("no pool"))
	r := newReadiness(func() error { return *why.Load() }, true)
	tr := &tree{}
	tr.health = r
	check := func(name string) bool {
		got, err := r.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil {
			t.Fatal(err)
		}
		return got.GetStatus() == serving
	}
	agree := func(want bool) {
		t.Helper()
		for _, name := range healthServices {
			if got, byHTTP := check(name), tr.readyz() == nil; got != want || byHTTP != want {
				t.Fatalf("%q by gRPC is %v, by HTTP %v, want both %v", name, got, byHTTP, want)
			}
		}
	}
	for range 200 {
		is(nil)
		if tr.readyz() != nil || !check("readiness") {
			t.Fatal("it is ready, and one does not say so")
		}
		is(errors.New("no pool"))
		agree(false)
		is(nil)
		agree(true)
		is(errors.New("no pool"))
		if tr.readyz() == nil || check("") {
			t.Fatal("readiness is lost, and one does not say so")
		}
	}
	is(nil)
	r.Shutdown()
	agree(false)
	if err := tr.readyz(); err == nil || err.Error() != "shutting down" || !check(liveness) {
		t.Errorf("in the shutdown: %v, live %v", err, check(liveness))
	}
}

// A picker that is ready may still have something to say, of its configuration and of its pods.
func TestConcernsOfAReadyPicker(t *testing.T) {
	tr := &tree{configuration: &inForce{}, picker: running(t).tree.picker}
	if got := tr.concerns(); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
	said := ""
	tr.concern = func() string { return said }
	if got := tr.concerns(); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
	said = "list pods: forbidden"
	if got := tr.concerns(); got != said {
		t.Errorf("got %q, want %q", got, said)
	}
}

// While the pool is not known only liveness is SERVING; a client that watches hears when it is, and when it is lost.
func TestHealthBeforeThePoolIsKnown(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	var known atomic.Bool
	r := newReadiness(func() error {
		if !known.Load() {
			return errors.New("not yet")
		}
		return nil
	}, true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	healthpb.RegisterHealthServer(g, r)
	done := inBackground(func() { _ = g.Serve(l) })
	t.Cleanup(func() {
		r.Shutdown()
		g.Stop()
		<-done
	})
	var all []watcher
	for _, name := range healthServices {
		all = append(all, watch(t, l.Addr().String(), name))
		if got, err := healthAt(t, l.Addr().String(), name, nil); got != notServing {
			t.Errorf("%q: got %v, %v; want NOT_SERVING", name, got, err)
		}
	}
	for _, w := range all {
		w.hears(t, notServing)
	}
	known.Store(true)
	for _, w := range all {
		w.hears(t, serving)
	}
	known.Store(false)
	for _, w := range all {
		w.hears(t, notServing)
	}
	if got, err := healthAt(t, l.Addr().String(), liveness, nil); got != serving {
		t.Errorf("liveness: got %v, %v; want SERVING", got, err)
	}
}

func TestShutdownEndsTheWaitForReadiness(t *testing.T) {
	defer goleak.VerifyNone(t)
	r := newReadiness(func() error { return errors.New("never") }, false)
	r.Shutdown()
}

// A start waits for a scrape of every endpoint that it finds, well or not, and never longer than a fetch may take. It
// waits once.
func TestFirstLook(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	pool := func(version uint64, sampled ...bool) *endpoints.Snapshot {
		var all []*endpoints.Endpoint
		for i, has := range sampled {
			e := endpoints.New(messages.EndpointID{Slot: uint32(i)}, messages.EndpointSpec{})
			if has {
				endpoints.SampleWriter{Endpoint: e}.Publish(&endpoints.Sample{At: begin})
			}
			all = append(all, e)
		}
		return endpoints.NewSnapshot(version, all)
	}
	failing := pool(1, true, false)
	endpoints.SampleWriter{Endpoint: failing.Endpoints[1]}.ScrapeFailed()
	for name, c := range map[string]struct {
		pool      *endpoints.Snapshot
		unscraped bool // no page is read
		want      string
	}{
		"no discovery yet":           {pool(0), false, "the endpoints are not known yet"},
		"an empty pool":              {pool(1), false, ""},
		"none has a sample":          {pool(1, false, false), false, "2 of 2 endpoints have not been scraped yet"},
		"one has no sample":          {pool(1, true, false), false, "1 of 2 endpoints have not been scraped yet"},
		"all have one":               {pool(1, true, true), false, ""},
		"one failed":                 {failing, false, ""},
		"nothing is to be read ever": {pool(1, false), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var look firstLook
			got := ""
			if err := look.over(c.pool, asking(!c.unscraped), begin); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("it waits for %q, want %q", got, c.want)
			}
		})
	}
	var look firstLook
	if look.over(pool(0), asking(true), begin) == nil ||
		look.over(pool(1, false), asking(true), begin.Add(time.Hour)) == nil {
		t.Error("the wait is over before it began: it counts from the first set of endpoints")
	}
	last := begin.Add(time.Hour + firstLookWithin)
	if look.over(pool(1, false), asking(true), last.Add(-1)) == nil ||
		look.over(pool(1, false), asking(true), last) != nil {
		t.Error("the wait does not end when a fetch must have ended")
	}
	if err := look.over(pool(2, false, false), asking(true), last); err != nil {
		t.Errorf("endpoints that came later are waited for: %v", err)
	}
}

// Until its page has come, an endpoint keeps the process from being ready.
func TestReadyOnceScraped(t *testing.T) {
	page := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-page:
			_, _ = io.WriteString(w, "vllm:num_requests_waiting 0\n")
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	writeText(t, file, "endpoints: [{name: a, address: 127.0.0.1, port: "+port+"}]\n")
	s := started(t, "--secure-serving=false", "--endpoints", file)
	t.Cleanup(func() { _ = s.stop(0) })
	look := &s.tree.firstLook
	look.mu.Lock()
	look.done, look.until = false, time.Now().Add(time.Hour) // a second would be short for a busy machine
	look.mu.Unlock()
	ready := asked{url: "http://" + s.at("metrics-port")}
	status, body := ready.get(t, "/readyz")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "1 of 1 endpoints have not been scraped") {
		t.Fatalf("/readyz before the first page: %d %q", status, body)
	}
	close(page)
	for deadline := time.Now().Add(20 * time.Second); status != http.StatusOK; status, body = ready.get(t, "/readyz") {
		if time.Now().After(deadline) {
			t.Fatalf("/readyz after the first page: %d %q", status, body)
		}
	}
}

// asking asks all endpoints, or none.
func asking(all bool) func(*endpoints.Endpoint) bool {
	return func(*endpoints.Endpoint) bool { return all }
}
