package xds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/messages"
)

// rig is a server on a socket, and the pool that announces.
type rig struct {
	*testing.T
	server  *Server
	address string
	logs    *observer.ObservedLogs
	acks    chan uint64
	number  uint64
	found   time.Time // of the next announcement
}

func (r *rig) Post(m messages.PoolMsg) bool {
	r.acks <- m.(messages.EndpointsAcknowledged).Number
	return true
}

func newRig(t *testing.T, cfg Config) *rig {
	core, logs := observer.New(zap.DebugLevel)
	r := &rig{T: t, logs: logs, acks: make(chan uint64, 100)}
	var err error
	if r.server, err = NewServer(cfg, NewMetrics(prometheus.NewRegistry()), zap.New(core)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.address = l.Addr().String()
	g := grpc.NewServer()
	r.server.Register(g)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		r.server.Close()
		g.Stop()
		// that if it was stopped before it began
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
		goleak.VerifyNone(t)
	})
	return r
}

// announce tells a set; an address with a minus is leaving.
func (r *rig) announce(addresses ...string) {
	r.number++
	var list []messages.AnnouncedEndpoint
	for _, a := range addresses {
		plain := strings.TrimPrefix(a, "-")
		list = append(list, messages.AnnouncedEndpoint{Address: messages.Address(plain), Leaving: plain != a})
	}
	r.server.Tell(messages.EndpointsAnnounced{
		Number: r.number, Endpoints: messages.TakeList(list), Found: r.found, Pool: r,
	})
}

// inForce waits until the newest announcement is.
func (r *rig) inForce() {
	r.soon(func() bool {
		r.server.clients.mu.Lock()
		defer r.server.clients.mu.Unlock()
		return r.server.clients.number == r.number
	})
}

func (r *rig) acknowledged() {
	r.Helper()
	select {
	case n := <-r.acks:
		if n != r.number {
			r.acknowledged() // of one before
		}
	case <-time.After(20 * time.Second):
		r.Fatalf("announcement %d was not acknowledged", r.number)
	}
}

func (r *rig) quiet() {
	r.Helper()
	select {
	case n := <-r.acks:
		r.Fatalf("announcement %d was acknowledged", n)
	case <-time.After(50 * time.Millisecond):
	}
}

// stat waits until a metric is what it should be.
func (r *rig) stat(what string, c prometheus.Collector, want float64) {
	r.Helper()
	r.soon(func() bool { return testutil.ToFloat64(c) == want })
	if got := testutil.ToFloat64(c); got != want {
		r.Fatalf("%s is %v, want %v", what, got, want)
	}
}

// soon waits until something holds, for 5 s at most.
func (r *rig) soon(holds func() bool) {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for late := time.Now().Add(20 * time.Second); !holds() && time.Now().Before(late); {
		<-look.C
	}
}

// proxy is the other side of a stream.
type proxy struct {
	*rig
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	end    func()
}

func (r *rig) connect() *proxy {
	r.Helper()
	conn, err := grpc.NewClient(r.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	p := &proxy{rig: r, end: sync.OnceFunc(func() { cancel(); _ = conn.Close() })}
	r.Cleanup(p.end)
	if p.stream, err = discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx); err != nil {
		r.Fatal(err)
	}
	return p
}

func node(lane string) *corev3.Node {
	n := &corev3.Node{Id: "test", Cluster: "llm-edge"}
	if lane != "" {
		n.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{laneKey: structpb.NewStringValue(lane)}}
	}
	return n
}

func (p *proxy) send(m *discoveryv3.DeltaDiscoveryRequest) {
	p.Helper()
	if err := p.stream.Send(m); err != nil {
		p.Fatal(err)
	}
}

func (p *proxy) subscribe(lane, typ string, names ...string) {
	p.Helper()
	p.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(lane), TypeUrl: typ, ResourceNamesSubscribe: names})
}

func (p *proxy) receive() *discoveryv3.DeltaDiscoveryResponse {
	p.Helper()
	m, err := p.stream.Recv()
	if err != nil {
		p.Fatal(err)
	}
	return m
}

func (p *proxy) ack(m *discoveryv3.DeltaDiscoveryResponse) {
	p.Helper()
	p.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()})
}

func (p *proxy) nack(m *discoveryv3.DeltaDiscoveryResponse) {
	p.Helper()
	p.send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce(),
		ErrorDetail: &statuspb.Status{Code: 3, Message: "no good"},
	})
}

// hosts reads the one set of endpoints of a response, those that drain with a minus.
func (p *proxy) hosts(m *discoveryv3.DeltaDiscoveryResponse) []string {
	p.Helper()
	a := &endpointv3.ClusterLoadAssignment{}
	if len(m.GetResources()) != 1 {
		p.Fatalf("%d resources, want 1", len(m.GetResources()))
	}
	if err := m.GetResources()[0].GetResource().UnmarshalTo(a); err != nil {
		p.Fatal(err)
	}
	var all []string
	for _, e := range a.GetEndpoints()[0].GetLbEndpoints() {
		socket := e.GetEndpoint().GetAddress().GetSocketAddress()
		text := net.JoinHostPort(socket.GetAddress(), fmt.Sprint(socket.GetPortValue()))
		if e.GetHealthStatus() == corev3.HealthStatus_DRAINING {
			text = "-" + text
		}
		all = append(all, text)
	}
	return all
}

func (p *proxy) gets(want ...string) *discoveryv3.DeltaDiscoveryResponse {
	p.Helper()
	m := p.receive()
	if got := p.hosts(m); !slices.Equal(got, want) {
		p.Fatalf("endpoints %v, want %v", got, want)
	}
	return m
}
