package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
)

// healthServices holds the names by which gRPC health says whether requests can be served: the whole server, the
// probe of Kubernetes, ext_proc, and the name that the reference's chart probes.
var healthServices = []string{"", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor", "inference-extension"}

// liveness is the name by which gRPC health says that the process works. It is SERVING as long as the port answers.
const liveness = "liveness"

// readiness serves gRPC health: NOT_SERVING until requests can be served, and again once the shutdown has begun.
// Clients that watch it get each change. gRPC and HTTP give the same answer at the same time.
type readiness struct {
	*health.Server
	ready  func() error
	cancel context.CancelFunc
	ended  <-chan struct{}

	mu      sync.Mutex
	serving bool // what gRPC health says
	over    bool // the shutdown has begun
}

// newReadiness returns a readiness that is SERVING as soon as ready returns no error. If it may be lost, it is
// NOT_SERVING whenever ready returns one.
func newReadiness(ready func() error, mayBeLost bool) *readiness {
	ctx, cancel := context.WithCancel(context.Background())
	r := &readiness{Server: health.NewServer(), ready: ready, cancel: cancel}
	r.SetServingStatus(liveness, healthpb.HealthCheckResponse_SERVING)
	r.set(false)
	serving := r.look() == nil // at once, so that the first check finds it serving
	r.ended = inBackground(func() { r.follow(ctx, serving, mayBeLost) })
	return r
}

// follow looks again and again, on behalf of clients that watch.
func (r *readiness) follow(ctx context.Context, serving, mayBeLost bool) {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for !serving || mayBeLost {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		serving = r.look() == nil
	}
}

// look returns why no request should come; nil = they may. Before it returns, gRPC health says the same.
func (r *readiness) look() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return errShuttingDown
	}
	err := r.ready()
	if serving := err == nil; serving != r.serving {
		r.set(serving)
	}
	return err
}

// Check answers as of now: a name that stands for readiness is looked at.
func (r *readiness) Check(ctx context.Context, q *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if slices.Contains(healthServices, q.GetService()) {
		_ = r.look() // the answer says whether, not why
	}
	return r.Server.Check(ctx, q)
}

// set has gRPC health say whether requests can be served. Its caller has mu, or is alone.
func (r *readiness) set(serving bool) {
	r.serving = serving
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		status = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range healthServices {
		r.SetServingStatus(name, status)
	}
}

// Shutdown changes to NOT_SERVING, for good. The process still works.
func (r *readiness) Shutdown() {
	r.cancel()
	<-r.ended
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.set(false)
}

var errShuttingDown = errors.New("shutting down")

// readyz returns why no request should come, as gRPC health says it.
func (t *tree) readyz() error {
	if t.health == nil { // nothing is served yet
		return t.ready()
	}
	return t.health.look()
}

// concerns returns what a ready process has to say; "" = nothing.
func (t *tree) concerns() string {
	all := []string{t.configuration.concern()}
	if t.concern != nil {
		all = append(all, t.concern())
	}
	all = append(all, failing(t.picker.Pool().Snapshot().Endpoints))
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), "; ")
}

// ready returns why no request should come: the endpoints or their load are not known, or the shutdown has begun.
func (t *tree) ready() error {
	if t.draining.Load() {
		return errShuttingDown
	}
	if t.known != nil {
		if err := t.known(); err != nil {
			return err
		}
	}
	if err := t.firstLook.over(t.picker.Pool().Snapshot(), t.configuration.current.Load().asks,
		time.Now()); err != nil {
		return err
	}
	if t.election != nil { // last, so that a standby is warm
		return t.election.Leads()
	}
	return nil
}

// firstLookWithin is how long a start waits for the first sample of every endpoint: as long as a fetch may take.
const firstLookWithin = modelserver.DefaultTimeout

// firstLook is the wait for the first set of endpoints, and then for a scrape of each. Without it the first picks would
// pass over the endpoints that are scraped last, because only those with a fresh sample are scored. Once it is over it
// stays so: readiness does not wait for endpoints that come later.
type firstLook struct {
	mu    sync.Mutex
	until time.Time // when it is over at the latest; zero = the endpoints are not known yet
	done  bool
}

// over returns what it still waits for. asks says whose metrics page is read. An empty pool is known, and an endpoint
// whose scrape failed was looked at.
func (f *firstLook) over(pool *endpoints.Snapshot, asks func(*endpoints.Endpoint) bool, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.done:
		return nil
	case pool.Version == 0:
		return errors.New("the endpoints are not known yet")
	case f.until.IsZero():
		f.until = now.Add(firstLookWithin)
	}
	missing := 0
	for _, e := range pool.Endpoints {
		if e.Sample() == nil && !e.Failing() && asks(e) {
			missing++
		}
	}
	if missing > 0 && now.Before(f.until) {
		return fmt.Errorf("%d of %d endpoints have not been scraped yet", missing, len(pool.Endpoints))
	}
	f.done = true
	return nil
}
