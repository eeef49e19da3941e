package app

import (
	"errors"
	"net"
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
			t.Errorf("%q hears %v, %v, want %v", w.name, got.GetStatus(), err, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("%q hears nothing for 10 s, want %v", w.name, want)
	}
}

// Every name says so on both ports, to clients that ask and to clients that watch, before the end and after its begin.
func TestHealthUntilTheEndBegins(t *testing.T) {
	s := started(t, "--secure-serving=false", "--drain-timeout", "10s")
	var all []watcher
	for _, flag := range []string{"grpc-port", "grpc-health-port"} {
		for _, name := range healthServices {
			all = append(all, watch(t, s.at(flag), name))
			if got, err := healthAt(t, s.at(flag), name, nil); got != serving {
				t.Errorf("%q at %s: %v, %v", name, flag, got, err)
			}
		}
		if _, err := healthAt(t, s.at(flag), "no.such.Service", nil); status.Code(err) != codes.NotFound {
			t.Errorf("a name that is none, at %s: %v", flag, err)
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
		for _, name := range healthServices {
			if got, err := healthAt(t, s.at(flag), name, nil); got != notServing {
				t.Errorf("%q at %s in the drain: %v, %v", name, flag, got, err)
			}
		}
	}
	if got, body := (asked{url: "http://" + s.at("metrics-port")}).get(t, "/readyz"); got != 503 ||
		!strings.Contains(body, "shutting down") {
		t.Errorf("/readyz in the drain: %d %q", got, body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// While the pool is not known no name is SERVING; a client that watches hears when it is.
func TestHealthBeforeThePoolIsKnown(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	var known atomic.Bool
	r := newReadiness(func() error {
		if !known.Load() {
			return errors.New("not yet")
		}
		return nil
	})
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
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
	for _, w := range all {
		w.hears(t, notServing)
	}
	known.Store(true)
	for _, w := range all {
		w.hears(t, serving)
	}
}

func TestReadinessThatNeverComesEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	r := newReadiness(func() error { return known(endpoints.NewPublished()) })
	r.Shutdown()
}
