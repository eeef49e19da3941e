package conformance

import (
	"net"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// running is a scripted EPP with its server.
type running struct {
	*epp
	server *grpc.Server
	health *health.Server
	conn   *grpc.ClientConn // usual windows
	narrow *grpc.ClientConn
}

func start(t *testing.T, e *epp) *running {
	t.Helper()
	e.book = newBook()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &running{epp: e, server: grpc.NewServer(grpc.MaxRecvMsgSize(64<<20), grpc.StaticStreamWindowSize(1<<20),
		grpc.StaticConnWindowSize(16<<20)), health: health.NewServer()}
	for _, name := range healthNames {
		if name != e.habits.unnamed {
			r.health.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
		}
	}
	extprocv3.RegisterExternalProcessorServer(r.server, e)
	healthpb.RegisterHealthServer(r.server, r.health)
	go func() { _ = r.server.Serve(listener) }() // it ends with Stop
	dial := func(options ...grpc.DialOption) *grpc.ClientConn {
		conn, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), append(options,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))...)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	r.conn, r.narrow = dial(), dial(grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<20))
	t.Cleanup(func() {
		_, _ = r.conn.Close(), r.narrow.Close()
		close(e.stopped)
		r.server.Stop()
	})
	return r
}

func (r *running) client() extprocv3.ExternalProcessorClient {
	return extprocv3.NewExternalProcessorClient(r.conn)
}

// instance is a scripted EPP that may be stopped.
func (r *running) instance() *Instance {
	ended := make(chan struct{})
	return &Instance{
		Client: r.client(), Health: healthpb.NewHealthClient(r.conn),
		Stop: func() {
			if !r.habits.mute {
				r.health.Shutdown()
			}
			if r.habits.cuts {
				r.server.Stop() // before the check goes on
				close(ended)
				return
			}
			go func() {
				defer close(ended)
				r.server.GracefulStop()
			}()
		},
		Wait: func() error { <-ended; return nil },
	}
}

// scripted is a scripted EPP, and those of its kind that some checks need.
func scripted(t *testing.T, f fault, h habits) Options {
	t.Helper()
	like := func(change func(*epp)) *running {
		e := &epp{fault: f, habits: h, wait: patient}
		change(e)
		return start(t, e)
	}
	r, queue := like(func(*epp) {}), like(func(e *epp) { e.queues = true })
	inside := r.ledger()
	inside.Empty = like(func(e *epp) { e.refuses = 503 }).client()
	inside.Saturated = like(func(e *epp) { e.refuses = 429 }).client()
	inside.Impatient = like(func(e *epp) { e.wait = hasty }).client()
	inside.Queue = &Queue{Client: queue.client(), Waiting: queue.inLine}
	inside.Fresh = func() (*Instance, error) { return like(func(*epp) {}).instance(), nil }
	return Options{
		Client: r.client(), Endpoints: pool, Model: "m", Health: healthpb.NewHealthClient(r.conn),
		Narrow:   extprocv3.NewExternalProcessorClient(r.narrow),
		Patience: 20 * time.Second, BodyWait: 20 * time.Second,
		BodyLimit: eppLimit, Destinations: 2, RoutesAll: true, Inside: inside,
	}
}
