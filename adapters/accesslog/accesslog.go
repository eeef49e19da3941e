// Package accesslog takes Envoy's gRPC access log, and tells of each request that ended, or runs on, whose response's
// body ext_proc was not shown. It knows requests by the id that the pick put into the dynamic metadata. It never waits
// for anybody, keeps nothing of an entry, and never decides what an end means.
package accesslog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/signalbox-epp/signalbox/engine/protofield"
	"github.com/signalbox-epp/signalbox/messages"
)

// Where the pick put the request's id, and the connection that the request came on.
const (
	namespace     = "envoy.lb"
	idKey         = "x-signalbox-request-id"
	connectionKey = "x-signalbox-connection"
)

// bodyBegan is the custom tag by which Envoy, from 1.37 on, tells when the first byte of a response's body came from
// upstream: its entries have no field for that.
const bodyBegan = "signalbox-body-began-us"

// Proxy is told what a log says of the proxy that sends it, by the goroutine that reads the log.
type Proxy interface {
	// Identified is told, at most once, what the proxy calls itself; "" = it does not say.
	Identified(node, version string)
	// Spoke is told of each entry, with the connection that its request came on; 0 = another process's, or unknown.
	Spoke(messages.ConnectionID)
	// Gone is told once, last.
	Gone()
}

// Deps are what a Server works with.
type Deps struct {
	// ParseID reads a request id; false if it is another instance's.
	ParseID func(string) (messages.RequestID, bool)
	// Ended is told of each of our requests that ended. It must not block.
	Ended func(messages.ExchangeLogged)
	// Ongoing is told, now and then, of each of ours whose response has begun. It must not block.
	Ongoing func(messages.ExchangeOngoing)
	// Silent is told that a proxy's log ended, unless Close ended it. It must not block.
	Silent func()
	// Opened returns what is to be told of the proxy behind a stream's context; nil, also as its answer = nothing is.
	Opened  func(context.Context) Proxy
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
func (s *Server) StreamAccessLogs(stream grpc.ClientStreamingServer[accesslogv3.StreamAccessLogsMessage,
	accesslogv3.StreamAccessLogsResponse]) error {
	s.deps.Metrics.streams.Inc()
	defer s.deps.Metrics.streams.Dec()
	r := reader{s, unwatched{}}
	if s.deps.Opened != nil {
		if p := s.deps.Opened(stream.Context()); p != nil {
			r.proxy = p
		}
	}
	ended := make(chan error, 1)
	go func() { // it ends with the stream, which ends when this returns
		err := r.take(stream)
		r.proxy.Gone()
		ended <- err
	}()
	select {
	case err := <-ended:
		s.deps.Silent()
		return err
	case <-s.closing:
		return nil
	}
}

// unwatched is the Proxy of a stream of which nothing is to be told.
type unwatched struct{}

func (unwatched) Identified(string, string)   {}
func (unwatched) Spoke(messages.ConnectionID) {}
func (unwatched) Gone()                       {}

// reader reads one stream.
type reader struct {
	*Server
	proxy Proxy
}

func (r *reader) take(stream grpc.ClientStreamingServer[accesslogv3.StreamAccessLogsMessage,
	accesslogv3.StreamAccessLogsResponse]) error {
	var m emptypb.Empty // it takes any message, and keeps its bytes: nothing is built of what nobody asks for
	for first := true; ; first = false {
		if err := stream.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		message := m.ProtoReflect().GetUnknown()
		if first {
			r.proxy.Identified(identity(message))
		}
		if !eachEntry(message, r.onEntry) {
			return status.Error(codes.InvalidArgument, "an access log entry that cannot be read")
		}
	}
}

// identity is what a stream's first message says of its proxy.
func identity(message []byte) (node, version string) {
	var e entry
	e.walk(message, func(c protofield.Cursor) {
		var i accesslogv3.StreamAccessLogsMessage_Identifier
		if c.Is(1) && proto.Unmarshal(c.Bytes, &i) == nil {
			node, version = i.GetNode().GetId(), ""
			if v := i.GetNode().GetUserAgentBuildVersion().GetVersion(); v != nil {
				version = fmt.Sprintf("%d.%d.%d", v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch())
			}
		}
	})
	return node, version
}

func (r *reader) onEntry(e *entry) {
	request, ours := messages.RequestID(0), false
	if len(e.id) > 0 {
		request, ours = r.deps.ParseID(string(e.id))
	}
	r.proxy.Spoke(e.cameOn(ours))
	switch {
	case e.intermediate && ours && e.status != 0:
		r.deps.Ongoing(messages.ExchangeOngoing{Request: request,
			Response: messages.ResponseOngoing{ResponseBytes: e.bodyBytes()}})
	case e.intermediate:
	case len(e.id) == 0:
		r.deps.Metrics.unnamed.Inc()
	case !ours:
		r.deps.Metrics.foreign.Inc()
	default:
		r.deps.Metrics.ours.Inc()
		r.deps.Ended(messages.ExchangeLogged{Request: request, End: e.end()})
	}
}

// cameOn is the connection of an entry's request. What another process wrote names none of ours.
func (e *entry) cameOn(ours bool) messages.ConnectionID {
	if !ours {
		return 0
	}
	n, err := strconv.ParseUint(string(e.connection), 10, 64)
	if err != nil {
		return 0
	}
	return messages.ConnectionID(n)
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
		Help: "Access log entries: ours = of requests of this process, foreign = of another instance, unnamed = " +
			"without a request id.",
	}, []string{"whose"})
	m := &Metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "signalbox_access_log_streams",
			Help: "Open access log streams."}),
		ours: entries.WithLabelValues("ours"), foreign: entries.WithLabelValues("foreign"),
		unnamed: entries.WithLabelValues("unnamed"),
	}
	r.MustRegister(m.streams, entries)
	return m
}
