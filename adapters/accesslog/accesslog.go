// Package accesslog serves Envoy's gRPC access log. It reports each request that has ended, or still runs, and whose
// response body ext_proc was not shown. It recognises requests by the id that the pick put into the dynamic metadata.
// It never blocks on what it reports to, keeps nothing of an entry, and never decides what an end means.
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
	"github.com/signalbox-epp/signalbox/engine/runtime/supervise"
	"github.com/signalbox-epp/signalbox/messages"
)

// Where the pick put the id of the request, and the number of the connection that the request came on.
const (
	namespace     = "envoy.lb"
	idKey         = "x-signalbox-request-id"
	connectionKey = "x-signalbox-connection"
)

// bodyBegan is the custom tag in which Envoy, from 1.37 on, reports when the first byte of a response's body came from
// upstream. Access log entries have no field for that.
const bodyBegan = "signalbox-body-began-us"

// Proxy is told what a log says about the proxy that sends it. The goroutine that reads the log calls it.
type Proxy interface {
	// Identified is told, at most once, the name and the version of the proxy; "" = it does not say.
	Identified(node, version string)
	// Spoke is told of each entry, with the connection that its request came on; 0 = it is unknown, or one of another
	// process.
	Spoke(messages.ConnectionID)
	// Gone is told once, last.
	Gone()
}

// Deps holds what a Server works with.
type Deps struct {
	// ParseID reads a request id. It returns false if the id is another instance's.
	ParseID func(string) (messages.RequestID, bool)
	// Ended is told of each request of this process that ended. It must not block.
	Ended func(messages.ExchangeLogged)
	// Ongoing is told, now and then, of each request of this process whose response has begun. It must not block.
	Ongoing func(messages.ExchangeOngoing)
	// Silent is told that the log of a proxy ended, except when Close ended it. It must not block.
	Silent func()
	// Opened returns the Proxy to tell of the log on a stream's context. It may be nil, or return nil: then nothing is
	// told.
	Opened func(context.Context) Proxy
	// Panicked, if not nil, is told of a panic that ended a stream, with its stack.
	Panicked func(error)
	Metrics  *Metrics
}

// Server is the access log service.
type Server struct {
	accesslogv3.UnimplementedAccessLogServiceServer
	deps    Deps
	closing chan struct{}
	close   sync.Once
}

// NewServer returns a server that takes entries.
func NewServer(deps Deps) *Server { return &Server{deps: deps, closing: make(chan struct{})} }

// Close ends all streams. A proxy keeps its stream as long as it lives, so waiting for the end of one would not end.
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
		err := supervise.Recover("an access log", func() error {
			defer r.proxy.Gone()
			return r.take(stream)
		})
		if s.deps.Panicked != nil && supervise.IsPanic(err) {
			s.deps.Panicked(supervise.WithStack(err))
		}
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

// unwatched is the Proxy of a stream that nothing is told of.
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
	var m emptypb.Empty // an empty message keeps the bytes of any other as unknown fields, so that no objects are built
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

// identity returns the name and the version that the first message of a stream says of its proxy.
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

// cameOn returns the connection that an entry's request came on. An entry of another process names none of ours.
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

// Metrics holds the metrics of all access log streams.
type Metrics struct {
	streams                prometheus.Gauge
	ours, foreign, unnamed prometheus.Counter
}

// NewMetrics returns the metrics, registered with r.
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
