// Package accesslog takes Envoy's gRPC access log, and tells of each request that ended whose response's body ext_proc was not
// shown. It knows requests by the id that the pick put into the dynamic metadata. It never waits for anybody, keeps nothing of
// an entry, and never decides what an end means.
package accesslog

import (
	"errors"
	"io"
	"math"
	"net/netip"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accesslogdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/signalbox-epp/signalbox/messages"
)

// Where the pick put the request's id.
const (
	namespace = "envoy.lb"
	idKey     = "x-signalbox-request-id"
)

// Deps are what a Server works with.
type Deps struct {
	// ParseID reads a request id; false if it is another instance's.
	ParseID func(string) (messages.RequestID, bool)
	// Ended is told of each of our requests that ended. It must not block.
	Ended   func(messages.ExchangeLogged)
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
		return err
	case <-s.closing:
		return nil
	}
}

func (s *Server) take(stream grpc.ClientStreamingServer[accesslogv3.StreamAccessLogsMessage, accesslogv3.StreamAccessLogsResponse]) error {
	var m accesslogv3.StreamAccessLogsMessage
	for {
		if err := stream.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		for _, e := range m.GetHttpLogs().GetLogEntry() {
			s.onEntry(e)
		}
	}
}

func (s *Server) onEntry(e *accesslogdatav3.HTTPAccessLogEntry) {
	common := e.GetCommonProperties()
	switch common.GetAccessLogType() {
	case accesslogdatav3.AccessLogType_NotSet, accesslogdatav3.AccessLogType_DownstreamEnd:
	default: // of something else than the end of a request
		return
	}
	id := common.GetMetadata().GetFilterMetadata()[namespace].GetFields()[idKey].GetStringValue()
	if id == "" {
		s.deps.Metrics.unnamed.Inc()
		return
	}
	request, ours := s.deps.ParseID(id)
	if !ours {
		s.deps.Metrics.foreign.Inc()
		return
	}
	s.deps.Metrics.ours.Inc()
	s.deps.Ended(messages.ExchangeLogged{Request: request, End: end(e)})
}

// end is what an entry says.
func end(e *accesslogdatav3.HTTPAccessLogEntry) messages.ResponseEnded {
	common, response := e.GetCommonProperties(), e.GetResponse()
	flags := common.GetResponseFlags()
	return messages.ResponseEnded{
		At:            common.GetStartTime().AsTime().Add(length(common)),
		ResponseBytes: int64(min(response.GetResponseBodyBytes(), 1<<62)),
		Logged: messages.Logged{
			Status: int(response.GetResponseCode().GetValue()), Served: address(common.GetUpstreamRemoteAddress()),
			FirstToken: common.GetTimeToFirstUpstreamRxByte().AsDuration(),
			ClientLeft: flags.GetDownstreamConnectionTermination() || flags.GetDownstreamRemoteReset(),
			Broken: flags.GetUpstreamRemoteReset() || flags.GetUpstreamConnectionTermination() || flags.GetUpstreamConnectionFailure() ||
				flags.GetUpstreamProtocolError() || flags.GetNoHealthyUpstream() || flags.GetUpstreamRetryLimitExceeded(),
		},
	}
}

// length is how long the request took, by what the proxy measured last.
func length(c *accesslogdatav3.AccessLogCommon) time.Duration {
	return max(c.GetDuration().AsDuration(), c.GetTimeToLastDownstreamTxByte().AsDuration(), c.GetTimeToLastUpstreamRxByte().AsDuration())
}

// address is an ip:port as the pool writes it; "" = it is none.
func address(a *corev3.Address) messages.Address {
	socket := a.GetSocketAddress()
	ip, err := netip.ParseAddr(socket.GetAddress())
	port := socket.GetPortValue()
	if err != nil || port > math.MaxUint16 {
		return ""
	}
	return messages.Address(netip.AddrPortFrom(ip.Unmap(), uint16(port)).String())
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
