package xds

import (
	"context"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	xdslog "github.com/envoyproxy/go-control-plane/pkg/log"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	delta "github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signalbox-epp/signalbox/engine/runtime/supervise"
	"github.com/signalbox-epp/signalbox/messages"
)

// laneKey is the key of the metadata in which the node of a proxy says for which lane it shall be configured; without
// it that is the light lane.
const laneKey = "signalbox_lane"

// Config says what a Server serves.
type Config struct {
	// Serve makes it hand out listener, route and clusters too, in the lane of each proxy; nil = endpoints alone. Its
	// Lane, Cluster and Servers do not count.
	Serve *Setup
	// Met is told of each proxy that has said its name; what it returns, of the end of the proxy's stream. Neither
	// may block. nil = nothing is told.
	Met func(from, node, version string) (gone func())
}

// Server is the aggregated discovery service. It takes incremental streams only: with state-of-the-world streams the
// library answers a refusal by sending the same again, without end, and drops those that do not name everything that
// there is.
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	clients *clients
	metrics *Metrics
	log     *zap.Logger
	cache   cache.SnapshotCache
	streams delta.Server
	lanes   map[string]*served // nil without Config.Serve
	stop    context.CancelFunc
	ended   chan struct{}
	waiting waiting
}

// waiting is what Tell hands to the goroutine that publishes.
type waiting struct {
	wake chan struct{} // one place: something waits

	mu     sync.Mutex
	newest *messages.EndpointsAnnounced // nil = none waits
	closed bool
}

// NewServer returns a server that publishes what it is told, until Close.
func NewServer(cfg Config, metrics *Metrics, log *zap.Logger) (*Server, error) {
	lanes := map[string]*served{Light: nil, lightUntimed: nil, Full: nil}
	names := []string{servers}
	if cfg.Serve != nil {
		for lane := range lanes {
			setup := *cfg.Serve
			setup.Lane, setup.untimed = lane, false
			if lane == lightUntimed {
				setup.Lane, setup.untimed = Light, true
			}
			s, err := setup.serve()
			if err != nil {
				return nil, err
			}
			lanes[lane] = s
		}
		names = append(names, lanes[Light].endpoints) // that cluster is the same in all
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		clients: &clients{log: log, metrics: metrics, names: names, met: cfg.Met, streams: map[int64]*client{}},
		metrics: metrics, log: log, lanes: lanes, stop: stop, ended: make(chan struct{}),
		waiting: waiting{wake: make(chan struct{}, 1)},
	}
	s.cache = cache.NewSnapshotCache(true, byLane{}, xdslog.LoggerFuncs{
		WarnFunc:  func(format string, args ...any) { log.Sugar().Warnf("xDS: "+format, args...) },
		ErrorFunc: func(format string, args ...any) { log.Sugar().Errorf("xDS: "+format, args...) },
	})
	s.streams = delta.NewServer(ctx, s.cache, s.clients)
	go func() {
		defer close(s.ended)
		supervise.KeepRunning(ctx, "publishing endpoints", s.run, s.panicked)
	}()
	return s, nil
}

// Register adds the service to g.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
}

// Close ends all streams. Proxies keep what they were told.
func (s *Server) Close() {
	s.waiting.mu.Lock()
	s.waiting.closed = true
	s.waiting.mu.Unlock()
	s.stop()
	<-s.ended
}

// Tell takes an announcement. If several wait, the newest counts. It never blocks. It returns false if the server is
// closed.
func (s *Server) Tell(m messages.XdsMsg) bool {
	switch m := m.(type) {
	case messages.EndpointsAnnounced:
		return s.waiting.put(m)
	}
	return true
}

func (w *waiting) put(m messages.EndpointsAnnounced) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	if w.newest != nil {
		m.Found = earlier(w.newest.Found, m.Found)
	}
	w.newest = &m
	select {
	case w.wake <- struct{}{}:
	default: // it is awake
	}
	return true
}

// earlier returns the first of two times. A zero time does not count.
func earlier(a, b time.Time) time.Time {
	if b.IsZero() || !a.IsZero() && a.Before(b) {
		return a
	}
	return b
}

func (w *waiting) take() *messages.EndpointsAnnounced {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.newest
	w.newest = nil
	return a
}

func (s *Server) panicked(err error) {
	s.metrics.faults.Inc()
	s.log.Error("publishing endpoints by xDS panicked: proxies keep what they have until the next change",
		zap.Error(supervise.WithStack(err)))
}

func (s *Server) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.waiting.wake:
		}
		a := s.waiting.take()
		if a == nil {
			continue
		}
		changed, err := s.publish(ctx, *a)
		if err != nil {
			s.metrics.faults.Inc()
			s.log.Error("endpoints cannot be published by xDS: proxies keep what they have", zap.Error(err))
			continue
		}
		if changed && !a.Found.IsZero() {
			after := time.Since(a.Found)
			s.metrics.published.Observe(after.Seconds())
			s.log.Debug("endpoints are handed to all xDS streams",
				zap.Int("endpoints", a.Endpoints.Len()), zap.Duration("after", after))
		}
		s.clients.report()
	}
}

// publish puts one unit of resources in force in each lane, or none in any, and reports whether it is another than
// before.
func (s *Server) publish(ctx context.Context, m messages.EndpointsAnnounced) (changed bool, err error) {
	endpoints, version, err := assignments(m.Endpoints, s.clients.names)
	if err != nil {
		return false, err
	}
	units := make(map[string]*cache.Snapshot, len(s.lanes))
	var each map[string]string
	for lane, served := range s.lanes {
		if units[lane], err = served.unit(endpoints, version); err != nil {
			return false, err
		}
		each = units[lane].GetVersionMap(resource.EndpointType) // endpoints are the same in all lanes
	}
	changed = s.clients.expect(m, version, each)
	for lane, unit := range units {
		if err := s.cache.SetSnapshot(ctx, lane, unit); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// DeltaAggregatedResources serves a proxy until it leaves, or Close.
func (s *Server) DeltaAggregatedResources(
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer,
) error {
	return s.streams.DeltaStreamHandler(stream, resource.AnyType)
}

// StreamAggregatedResources refuses the stream.
func (s *Server) StreamAggregatedResources(
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer,
) error {
	s.log.Warn("a proxy asks for the state of the world by xDS, which is not served: " +
		"its ads_config wants api_type DELTA_GRPC")
	return status.Error(codes.Unimplemented,
		"this xDS server is incremental only: set api_type to DELTA_GRPC in ads_config")
}

// byLane returns all proxies of a lane the same, but for old ones of the light lane, which cannot read how bodies are
// timed: they would refuse the listener.
type byLane struct{}

// lightUntimed is the light lane of proxies before timesBodies.
const lightUntimed = "light-untimed"

func (byLane) ID(n *corev3.Node) string {
	if n.GetMetadata().GetFields()[laneKey].GetStringValue() == Full {
		return Full
	}
	build := n.GetUserAgentBuildVersion().GetVersion()
	if build == nil {
		return Light
	}
	if v := (Version{int(build.GetMajorNumber()), int(build.GetMinorNumber())}); v.before(timesBodies) {
		return lightUntimed
	}
	return Light
}
