// Package accesslog takes Envoy's gRPC access log, and tells of each request that ended, or runs on, whose response's body ext_proc
// was not shown. It knows requests by the id that the pick put into the dynamic metadata. It never waits for anybody, keeps nothing of
// an entry, and never decides what an end means.
package accesslog

import (
	"errors"
	"io"
	"sync"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/signalbox-epp/signalbox/messages"
)

// Where the pick put the request's id.
const (
	namespace = "envoy.lb"
	idKey     = "x-signalbox-request-id"
)

// bodyBegan is the custom tag by which Envoy, from 1.37 on, tells when the first byte of a response's body came from upstream: its
// entries have no field for that.
const bodyBegan = "signalbox-body-began-us"

// Deps are what a Server works with.
type Deps struct {
	// ParseID reads a request id; false if it is another instance's.
	ParseID func(string) (messages.RequestID, bool)
	// Ended is told of each of our requests that ended. It must not block.
	Ended func(messages.ExchangeLogged)
	// Ongoing is told, now and then, of each of ours whose response has begun. It must not block.
	Ongoing func(messages.ExchangeOngoing)
	// Silent is told that a proxy's log ended, unless Close ended it. It must not block.
	Silent  func()
	Metrics *Metrics
}

// Server is the access log service.
type Server struct {
	accesslogv3.UnimplementedAccessLogServiceServer
	deps    Deps
	closing chan struct{}
	close   sync.Once
}

// NewServer is a server that takes entries.
func NewServer(deps Deps) *Server { return &Server{deps: deps, closing: make(chan struct{})} }

// Close ends all streams: a proxy keeps its stream for as long as it lives, so that nobody could wait for their end.
func (s *Server) Close() { s.close.Do(func() { close(s.closing) }) }

// StreamAccessLogs takes entries until the proxy ends the stream, or Close does.
func (s *Server) StreamAccessLogs(stream grpc.ClientStreamingServer[accesslogv3.StreamAccessLogsMessage, accesslogv3.StreamAccessLogsResponse]) error {
	s.deps.Metrics.streams.Inc()
	defer s.deps.Metrics.streams.Dec()
	ended := make(chan error, 1)
	go func() { ended <- s.take(stream) }() // it ends with the stream, which ends when this returns
	select {
	case err := <-ended:
		s.deps.Silent()
		return err
	case <-s.closing:
		return nil
	}
}

func (s *Server) take(stream grpc.ClientStreamingServer[accesslogv3.StreamAccessLogsMessage, accesslogv3.StreamAccessLogsResponse]) error {
	var m emptypb.Empty // it takes any message, and keeps its bytes: nothing is built of what nobody asks for
	for {
		if err := stream.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if !eachEntry(m.ProtoReflect().GetUnknown(), s.onEntry) {
			return status.Error(codes.InvalidArgument, "an access log entry that cannot be read")
		}
	}
}

func (s *Server) onEntry(e *entry) {
	if e.intermediate {
		s.onOngoing(e)
		return
	}
	if len(e.id) == 0 {
		s.deps.Metrics.unnamed.Inc()
		return
	}
	request, ours := s.deps.ParseID(string(e.id))
	if !ours {
		s.deps.Metrics.foreign.Inc()
		return
	}
	s.deps.Metrics.ours.Inc()
	s.deps.Ended(messages.ExchangeLogged{Request: request, End: e.end()})
}

// onOngoing takes an entry of a request that has not ended.
func (s *Server) onOngoing(e *entry) {
	if request, ours := s.deps.ParseID(string(e.id)); ours && e.status != 0 {
		s.deps.Ongoing(messages.ExchangeOngoing{Request: request, Response: messages.ResponseOngoing{ResponseBytes: e.bodyBytes()}})
	}
}

// Metrics are those of all access log streams.
type Metrics struct {
	streams                prometheus.Gauge
	ours, foreign, unnamed prometheus.Counter
}

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	entries := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_access_log_entries_total",
		Help: "Access log entries: ours = of requests of this process, foreign = of another instance, unnamed = without a request id.",
	}, []string{"whose"})
	m := &Metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "signalbox_access_log_streams", Help: "Open access log streams."}),
		ours:    entries.WithLabelValues("ours"), foreign: entries.WithLabelValues("foreign"), unnamed: entries.WithLabelValues("unnamed"),
	}
	r.MustRegister(m.streams, entries)
	return m
}
