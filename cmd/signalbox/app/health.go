package app

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
)

// healthServices holds the names that gRPC health answers for: the whole server, Kubernetes' two probes, and ext_proc.
var healthServices = []string{"", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"}

// readiness serves gRPC health: NOT_SERVING until requests can be served, and again once the shutdown has begun.
// Clients that watch it get each change.
type readiness struct {
	*health.Server
	cancel context.CancelFunc
	ended  <-chan struct{}
}

// newReadiness returns a readiness that is SERVING as soon as ready returns no error.
func newReadiness(ready func() error) *readiness {
	ctx, cancel := context.WithCancel(context.Background())
	r := &readiness{Server: health.NewServer(), cancel: cancel}
	for _, name := range healthServices {
		r.SetServingStatus(name, healthpb.HealthCheckResponse_NOT_SERVING)
	}
	if ready() == nil { // at once, so that the first check finds it serving
		r.serving()
	}
	r.ended = inBackground(func() { r.await(ctx, ready) })
	return r
}

func (r *readiness) await(ctx context.Context, ready func() error) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for ready() != nil {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
	r.serving()
}

func (r *readiness) serving() {
	for _, name := range healthServices {
		r.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
}

// Shutdown changes to NOT_SERVING, for good.
func (r *readiness) Shutdown() {
	r.Server.Shutdown()
	r.cancel()
	<-r.ended
}

// ready returns why no request can be served: the pool is not known, or the shutdown has begun. An empty pool is known.
func (t *tree) ready() error {
	if t.draining.Load() {
		return errors.New("shutting down")
	}
	return known(t.picker.Pool())
}

// known returns an error while discovery has told no endpoints yet.
func known(pool *endpoints.Published) error {
	if pool.Snapshot().Version == 0 {
		return errors.New("the endpoints are not known yet")
	}
	return nil
}
