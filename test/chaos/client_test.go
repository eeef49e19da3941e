package chaos

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accesslogdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// wireline is one proxy's connection, and its access log stream.
type wireline struct {
	conn   *grpc.ClientConn
	broken atomic.Int64 // when it was broken last, unix nanoseconds

	raw  atomic.Pointer[net.Conn] // under the newest connection
	torn sync.Map                 // local addresses of those that were torn
	mu   sync.Mutex               // of logs
	logs accesslogv3.AccessLogService_StreamAccessLogsClient
	drop context.CancelFunc // of logs: gRPC keeps a stream that failed, and its connection, until its context ends
	late sync.WaitGroup     // entries that come late
}

func dial(r *rig) *wireline {
	l := &wireline{}
	conn, err := grpc.NewClient("passthrough:///"+r.at, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) {
			var d net.Dialer
			raw, err := d.DialContext(ctx, "tcp", at)
			if err == nil {
				l.raw.Store(&raw)
			}
			return raw, err
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1,
			MaxDelay: 5 * time.Millisecond}, MinConnectTimeout: time.Second}),
		grpc.WithStatsHandler(l), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		r.Fatal(err)
	}
	l.conn = conn
	return l
}

// tear closes the connection under all that use it.
func (l *wireline) tear() {
	l.broken.Store(time.Now().UnixNano())
	if raw := l.raw.Load(); raw != nil {
		l.torn.Store((*raw).LocalAddr().String(), true)
		_ = (*raw).Close()
	}
}

// way notes the connections that a stream took: gRPC begins one anew whose first bytes had not left.
type way struct {
	mu    sync.Mutex
	local []string // addresses
}

type wayKey struct{}

// HandleRPC writes down the way of a stream whose context has one. The other three are what gRPC asks for besides.
func (*wireline) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*wireline) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*wireline) HandleConn(context.Context, stats.ConnStats)                       {}

func (*wireline) HandleRPC(ctx context.Context, s stats.RPCStats) {
	out, began := s.(*stats.OutHeader)
	w, ours := ctx.Value(wayKey{}).(*way)
	if !began || !ours {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.local = append(w.local, out.LocalAddr.String())
}

// tore reports whether a connection was torn that a stream took.
func (l *wireline) tore(w *way) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.local, func(at string) bool {
		_, torn := l.torn.Load(at)
		return torn
	})
}

func (l *wireline) close() error {
	l.late.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logs != nil {
		_, _ = l.logs.CloseAndRecv()
		l.drop()
	}
	return l.conn.Close()
}

// log sends an access log entry; an entry on a stream that broke is lost.
func (l *wireline) log(e *accesslogdatav3.HTTPAccessLogEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logs == nil {
		ctx, drop := context.WithCancel(context.Background())
		stream, err := accesslogv3.NewAccessLogServiceClient(l.conn).StreamAccessLogs(ctx)
		if err != nil {
			drop()
			return
		}
		l.logs, l.drop = stream, drop
	}
	err := l.logs.Send(&accesslogv3.StreamAccessLogsMessage{LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{
		HttpLogs: &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{
			LogEntry: []*accesslogdatav3.HTTPAccessLogEntry{e},
		},
	}})
	if err != nil {
		l.drop()
		l.logs = nil
	}
}

// logged sends the entries of a request, as its script says.
func (c *call) logged(r *rig) {
	s, l, id := c.script, c.line, c.id()
	if id == "" { // it was refused, or left before it was picked for
		return
	}
	r.faults.met(s.entry)
	switch s.entry {
	case entryNever:
	case entryLate:
		l.late.Add(1)
		time.AfterFunc(limits.Logged+100*time.Millisecond, func() {
			defer l.late.Done()
			l.log(s.logEntry(id))
		})
	case entryTwice:
		l.log(s.logEntry(id))
		l.log(s.logEntry(id))
	default:
		l.log(s.logEntry(id))
	}
}

func (s *script) logEntry(id string) *accesslogdatav3.HTTPAccessLogEntry {
	host := &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "10.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8000},
	}}}
	e := &accesslogdatav3.HTTPAccessLogEntry{
		CommonProperties: &accesslogdatav3.AccessLogCommon{
			StartTime: timestamppb.Now(), UpstreamRemoteAddress: host,
			Metadata: &corev3.Metadata{
				FilterMetadata: map[string]*structpb.Struct{
					lbNamespace: {Fields: map[string]*structpb.Value{idKey: structpb.NewStringValue(id)}},
				},
			},
		},
		Response: &accesslogdatav3.HTTPResponseProperties{ResponseCode: wrapperspb.UInt32(200),
			ResponseBodyBytes: 1000},
	}
	if s.number%5 == 0 {
		e.CommonProperties.ResponseFlags = &accesslogdatav3.ResponseFlags{UpstreamRemoteReset: true}
	}
	return e
}

// play plays a script to its end, and gives what was wrong with the answers.
func play(r *rig, l *wireline, s *script) []string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	began := time.Now()
	c, err := open(ctx, l, s)
	if err != nil {
		if l.brokenSince(began) {
			return nil
		}
		return []string{"no stream: " + err.Error()}
	}
	defer c.Close()
	whole := c.walk(r)
	if s.light() && s.entry != entryEarly {
		c.logged(r)
	}
	c.collateral = l.tore(&c.way)
	return c.judge(whole)
}

// brokenSince reports whether the connection was broken since then,
// or so little before that the stream may have begun on it.
func (l *wireline) brokenSince(t time.Time) bool {
	return l.broken.Load() > t.Add(-time.Second).UnixNano()
}

// walk takes the steps, or leaves. True: the request was whole, and its client waited for the answer.
func (c *call) walk(r *rig) bool {
	s := c.script
	for i, step := range s.steps() {
		if s.leaves() && i == s.cut {
			c.leave(r, step.at)
			return false
		}
		if !step.do(c) && s.fate != deaf {
			break
		}
	}
	if s.fate == deaf {
		r.faults.met("client " + deaf)
		<-time.After(50 * time.Millisecond)
		return false
	}
	if s.light() && s.entry == entryEarly {
		c.logged(r)
	}
	if s.lastWords {
		_ = c.HalfClose()
	} else {
		c.Close()
	}
	if !c.over(patience) {
		c.wrong("the stream did not end within %v", patience)
	}
	return true
}

// leave is how a client goes before its time.
func (c *call) leave(r *rig, at string) {
	if kind := left(c.script.fate, at); c.script.config.Observe {
		r.faults.met(kind + ", observed")
	} else {
		r.faults.met(kind)
	}
	switch c.script.fate {
	case cancels:
		c.Close()
	case halfCloses:
		_ = c.HalfClose()
	case breaks:
		c.line.tear()
		c.over(time.Second)
		c.Close() // gRPC begins a stream anew whose first bytes had not left
	case stalls:
		c.over(2 * time.Second) // the server ends it at its deadline, if it has one in this state
		c.Close()
	}
	if !c.over(patience) {
		c.wrong("%v after the client %s its stream had not ended", patience, c.script.fate)
	}
}
