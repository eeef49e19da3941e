package accesslog

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accesslogdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/signalbox-epp/signalbox/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	entryPB = accesslogdatav3.HTTPAccessLogEntry
	common  = accesslogdatav3.AccessLogCommon
	flags   = accesslogdatav3.ResponseFlags
)

var began = time.Unix(1_800_000_000, 0).UTC()

// named is an entry of request "7".
func named(id string, change ...func(*entryPB)) *entryPB {
	lb, err := structpb.NewStruct(map[string]any{idKey: id, "x-gateway-destination-endpoint": "10.0.0.1:8000"})
	if err != nil {
		panic(err)
	}
	e := &entryPB{
		CommonProperties: &common{
			StartTime: timestamppb.New(began), Duration: durationpb.New(2 * time.Second),
			TimeToFirstUpstreamRxByte:  durationpb.New(30 * time.Millisecond),
			TimeToLastDownstreamTxByte: durationpb.New(1900 * time.Millisecond),
			UpstreamRemoteAddress:      socket("10.0.0.2", 8000),
			Metadata:                   &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{namespace: lb}},
		},
		Response: &accesslogdatav3.HTTPResponseProperties{ResponseCode: wrapperspb.UInt32(200),
			ResponseBodyBytes: 4321},
	}
	for _, f := range change {
		f(e)
	}
	return e
}

func socket(ip string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// rig is a Server behind a real gRPC server. Ids are "7" ours and "x" another's.
type rig struct {
	srv      *Server
	client   accesslogv3.AccessLogServiceClient
	registry *prometheus.Registry
	mu       sync.Mutex
	ended    []messages.ExchangeLogged
	ongoing  []messages.ExchangeOngoing
	silent   chan struct{}
	panicked chan error
	more     chan struct{}
	proxies  []string // what was told of each stream's proxy, in order
}

// heard is one stream's proxy.
type heard struct{ *rig }

func (h heard) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.proxies = append(h.proxies, fmt.Sprintf(format, args...))
}

func (h heard) Identified(node, version string) { h.note("is %s %s", node, version) }
func (h heard) Spoke(of messages.ConnectionID)  { h.note("of %d", of) }
func (h heard) Gone()                           { h.note("gone") }

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{registry: prometheus.NewRegistry(), more: make(chan struct{}, 100), silent: make(chan struct{}, 100),
		panicked: make(chan error, 1)}
	r.srv = NewServer(Deps{
		ParseID: func(s string) (messages.RequestID, bool) {
			if s == "bomb" {
				panic("the test")
			}
			return 7, s == "7"
		},
		Ended: func(m messages.ExchangeLogged) {
			r.mu.Lock()
			r.ended = append(r.ended, m)
			r.mu.Unlock()
			r.more <- struct{}{}
		},
		Ongoing: func(m messages.ExchangeOngoing) {
			r.mu.Lock()
			r.ongoing = append(r.ongoing, m)
			r.mu.Unlock()
		},
		Silent:   func() { r.silent <- struct{}{} },
		Opened:   func(context.Context) Proxy { return heard{r} },
		Panicked: func(err error) { r.panicked <- err },
		Metrics:  NewMetrics(r.registry),
	})
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	accesslogv3.RegisterAccessLogServiceServer(s, r.srv)
	var done sync.WaitGroup
	done.Go(func() { _ = s.Serve(lis) })
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	r.client = accesslogv3.NewAccessLogServiceClient(conn)
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		done.Wait()
	})
	return r
}

// send sends entries on a stream of their own, which it leaves open.
func (r *rig) send(t *testing.T, list ...*entryPB) accesslogv3.AccessLogService_StreamAccessLogsClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	stream, err := r.client.StreamAccessLogs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		m := &accesslogv3.StreamAccessLogsMessage{LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{
			HttpLogs: &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{LogEntry: []*entryPB{e}},
		}}
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	return stream
}

// told waits until as many ends were told.
func (r *rig) told(t *testing.T, n int) []messages.ExchangeLogged {
	t.Helper()
	for range n {
		select {
		case <-r.more:
		case <-time.After(20 * time.Second):
			t.Fatal("an end was not told")
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

func TestEntries(t *testing.T) {
	plain := messages.ResponseEnded{
		At: began.Add(2 * time.Second), ResponseBytes: 4321,
		Logged: messages.Logged{Status: 200, Served: "10.0.0.2:8000", Headers: 30 * time.Millisecond},
	}
	with := func(change func(*messages.ResponseEnded)) messages.ResponseEnded {
		m := plain
		change(&m)
		return m
	}
	flagged := func(f *flags) func(*entryPB) { return func(e *entryPB) { e.CommonProperties.ResponseFlags = f } }
	broken := with(func(m *messages.ResponseEnded) { m.Logged.Broken = true })
	left := with(func(m *messages.ResponseEnded) { m.Logged.ClientLeft = true })
	tests := map[string]struct {
		entry *entryPB
		want  messages.ResponseEnded
	}{
		"served":              {named("7"), plain},
		"the client left":     {named("7", flagged(&flags{DownstreamConnectionTermination: true})), left},
		"the client reset":    {named("7", flagged(&flags{DownstreamRemoteReset: true})), left},
		"the server reset":    {named("7", flagged(&flags{UpstreamRemoteReset: true})), broken},
		"the server was gone": {named("7", flagged(&flags{UpstreamConnectionFailure: true})), broken},
		"it broke":            {named("7", flagged(&flags{UpstreamConnectionTermination: true})), broken},
		"IPv6": {
			named("7", func(e *entryPB) { e.CommonProperties.UpstreamRemoteAddress = socket("2001:db8::1", 1) }),
			with(func(m *messages.ResponseEnded) { m.Logged.Served = "[2001:db8::1]:1" }),
		},
		"IPv4 as IPv6": {
			named("7", func(e *entryPB) { e.CommonProperties.UpstreamRemoteAddress = socket("::ffff:10.0.0.9", 1) }),
			with(func(m *messages.ResponseEnded) { m.Logged.Served = "10.0.0.9:1" }),
		},
		"a pipe": {
			named("7", func(e *entryPB) { e.CommonProperties.UpstreamRemoteAddress = &corev3.Address{} }),
			with(func(m *messages.ResponseEnded) { m.Logged.Served = "" }),
		},
		"an absurd port": {
			named("7", func(e *entryPB) { e.CommonProperties.UpstreamRemoteAddress = socket("10.0.0.1", 70_000) }),
			with(func(m *messages.ResponseEnded) { m.Logged.Served = "" }),
		},
		"no duration": {
			named("7", func(e *entryPB) { e.CommonProperties.Duration = nil }),
			with(func(m *messages.ResponseEnded) { m.At = began.Add(1900 * time.Millisecond) }),
		},
		"no response": {
			named("7", func(e *entryPB) {
				e.Response, e.CommonProperties.TimeToFirstUpstreamRxByte = nil, nil
				e.CommonProperties.UpstreamRemoteAddress = nil
			}),
			messages.ResponseEnded{At: plain.At},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.send(t, tc.entry)
			if diff := cmp.Diff([]messages.ExchangeLogged{{Request: 7, End: tc.want}}, r.told(t, 1)); diff != "" {
				t.Errorf("told, want -, got +:\n%s", diff)
			}
		})
	}
}

func TestEntriesThatAreNotOurs(t *testing.T) {
	r := newRig(t)
	r.send(t, &entryPB{}, named(""), named("x"), named("7"))
	if got := r.told(t, 1); len(got) != 1 {
		t.Errorf("told %d ends, want 1", len(got))
	}
	for whose, want := range map[prometheus.Counter]float64{r.srv.deps.Metrics.ours: 1, r.srv.deps.Metrics.foreign: 1,
		r.srv.deps.Metrics.unnamed: 2} {
		if got := testutil.ToFloat64(whose); got != want {
			t.Errorf("%v counted, want %v", got, want)
		}
	}
}

// What a log says of its proxy is told before the ends in it are: its name,
// and of each entry on which connection its request came.
func TestLogTellsOfItsProxy(t *testing.T) {
	on := func(connection any) func(*entryPB) {
		return func(e *entryPB) {
			v, err := structpb.NewValue(connection)
			if err != nil {
				t.Fatal(err)
			}
			e.CommonProperties.Metadata.FilterMetadata[namespace].Fields[connectionKey] = v
		}
	}
	goesOn := func(e *entryPB) { e.CommonProperties.IntermediateLogEntry = true } //nolint:staticcheck // proxies set it
	node := &corev3.Node{Id: "edge", UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{
		UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40}},
	}}
	for name, c := range map[string]struct {
		first *accesslogv3.StreamAccessLogsMessage_Identifier
		want  string
	}{
		"named":      {&accesslogv3.StreamAccessLogsMessage_Identifier{Node: node}, "is edge 1.40.0"},
		"no version": {&accesslogv3.StreamAccessLogsMessage_Identifier{Node: &corev3.Node{Id: "edge"}}, "is edge "},
		"nothing":    {nil, "is  "},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			stream := r.send(t)
			for i, e := range []*entryPB{named("7", on("3"), goesOn), named("x", on("3")), {}, named("7", on("none")),
				named("7", on(3.0)), named("7", on("3"))} {
				m := &accesslogv3.StreamAccessLogsMessage{LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{
					HttpLogs: &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{LogEntry: []*entryPB{e}},
				}}
				if i == 0 {
					m.Identifier = c.first
				}
				if err := stream.Send(m); err != nil {
					t.Fatal(err)
				}
			}
			r.told(t, 3)
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			<-r.silent
			want := []string{c.want, "of 3", "of 0", "of 0", "of 0", "of 0", "of 3", "gone"}
			if diff := cmp.Diff(want, r.proxies); diff != "" {
				t.Errorf("told of the proxy, want -, got +:\n%s", diff)
			}
		})
	}
}

// An intermediate entry says how far a response is; before there is one, it says nothing.
func TestEntriesOfWhatGoesOn(t *testing.T) {
	r := newRig(t)
	goesOn := func(e *entryPB) { e.CommonProperties.IntermediateLogEntry = true } //nolint:staticcheck // proxies set it
	waits := func(e *entryPB) { e.Response.ResponseCode = nil }
	nameless := &entryPB{CommonProperties: &common{}}
	goesOn(nameless)
	r.send(t, named("7", goesOn, waits), named("x", goesOn), nameless, named("7", goesOn), named("7"))
	if got := r.told(t, 1); len(got) != 1 {
		t.Errorf("told %d ends, want 1", len(got))
	}
	want := []messages.ExchangeOngoing{{Request: 7, Response: messages.ResponseOngoing{ResponseBytes: 4321}}}
	if diff := cmp.Diff(want, r.ongoing); diff != "" {
		t.Errorf("told, want -, got +:\n%s", diff)
	}
}

// The end of a proxy's log is told, however it comes, but not the one that Close brings.
func TestEndOfALogIsTold(t *testing.T) {
	r := newRig(t)
	if err := r.send(t, named("7")).CloseSend(); err != nil {
		t.Fatal(err)
	}
	<-r.silent
	ctx, breakOff := context.WithCancel(t.Context())
	stream, err := r.client.StreamAccessLogs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&accesslogv3.StreamAccessLogsMessage{}); err != nil {
		t.Fatal(err)
	}
	breakOff()
	<-r.silent
	r.send(t, named("7"))
	r.told(t, 2)
	r.srv.Close()
	if len(r.silent) != 0 {
		t.Error("the end that Close brought was told")
	}
}

// A panic ends the stream that it is of, and others go on.
func TestPanicEndsOneLog(t *testing.T) {
	r := newRig(t)
	r.send(t, named("bomb"))
	<-r.silent
	if err := <-r.panicked; !strings.Contains(err.Error(), "an access log has panicked: the test") {
		t.Errorf("told %v, want the panic", err)
	}
	r.send(t, named("7"))
	r.told(t, 1)
}

// A proxy keeps its stream for ever: Close ends it, with no error for the proxy.
func TestCloseEndsTheStreams(t *testing.T) {
	r := newRig(t)
	open := r.send(t, named("7"))
	r.told(t, 1)
	r.srv.Close()
	r.srv.Close()
	if err := open.RecvMsg(new(accesslogv3.StreamAccessLogsResponse)); err == nil {
		t.Error("an answer, want the end of the stream")
	}
	late, err := r.client.StreamAccessLogs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := late.RecvMsg(new(accesslogv3.StreamAccessLogsResponse)); err == nil {
		t.Error("a stream after Close is taken")
	}
	if n := testutil.ToFloat64(r.srv.deps.Metrics.streams); n > 1 {
		t.Errorf("%v streams are open", n)
	}
}
