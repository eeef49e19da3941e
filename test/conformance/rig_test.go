// Package conformance plays the table of ext_proc checks: against the picker that the command serves with, behind its
// stream server in this process, so that load, queue and records can be looked at, and against the real binary through
// its own command.
package conformance

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/signalbox-epp/signalbox"
	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/outlier"
	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/adapters/lab/conformance"
	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/flow"
	machine "github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	bodyLimit = 21 << 20
	loops     = 2
)

// rig is the picker that the command serves with, and its stream server. Nothing is scraped: the endpoints are names.
type rig struct {
	picker   *signalbox.Picker
	checker  *modelserver.Checker
	streams  *extproc.Server
	registry *prometheus.Registry

	grpc  *grpc.Server
	conns []*grpc.ClientConn
	at    string

	mu    sync.Mutex
	ended map[string][]messages.Record // by the client's name for the request, each time it was counted
}

// profile is a configuration without a gate: the checker's streams that nobody reads are held for as long as a check
// takes, and no page tells that they are no work for a server, so that other streams would wait for room.
const profile = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: active-request-scorer
`

// startRig brings an EPP up. With waiting no endpoint has room for any request, and these wait as it says.
func startRig(t *testing.T, addresses []string, waiting *flow.Settings) *rig {
	t.Helper()
	return startPatient(t, addresses, waiting, time.Minute)
}

// startPatient is startRig with a deadline for bodies.
func startPatient(t *testing.T, addresses []string, waiting *flow.Settings, bodyWait time.Duration) *rig {
	t.Helper()
	r := &rig{
		checker: modelserver.NewChecker(), registry: prometheus.NewRegistry(), ended: map[string][]messages.Record{},
	}
	cfg, err := config.Load([]byte(profile), config.Settings{Destinations: 3, Stale: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if waiting != nil {
		cfg.Queueing = waiting
		cfg.Plan.HaveWait(noRoom{}, schedule.Step{Name: "no-room"})
	}
	telemetry.NewPlugins(r.registry, zap.NewNop(), nil).Observe(cfg.Plan)
	r.picker, err = signalbox.New(values(cfg), signalbox.World{
		Metrics: r.registry, Checker: r.checker,
		Report: r.remember, Status: extproc.Status, Release: r.checker.Close,
		Panicked: func(p runtime.Panic, _ []string) {
			t.Errorf("%s panicked at %s: %v\n%s", p.Actor, p.Message, p.Value, p.Stack)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.serve(t, bodyWait)
	t.Cleanup(func() { r.close(t) })
	r.discover(t, addresses)
	return r
}

func values(cfg *config.Config) signalbox.Config {
	return signalbox.Config{
		Runtime: runtime.Config{Loops: loops, Seed: rand.Uint64()},
		Plan:    cfg.Plan, Queueing: cfg.Queueing,
		// No access log tells the end of what body mode NONE does not show.
		Limits: cycle.Limits{
			Queue: 10 * time.Second, Pick: 5 * time.Second, FirstToken: time.Minute, ResponseIdle: time.Minute,
			Logged: 100 * time.Millisecond,
		},
		Outlier: outlier.Config{MaxEjectionPercent: 50, Config: machine.Config{
			FirstEjection: 2 * time.Second, LongestEjection: 8 * time.Second,
		}},
		Records:  signalbox.Records{Entries: 256 * loops, Bytes: loops << 20},
		PoolName: "pool",
	}
}

func (r *rig) remember(m *messages.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended[m.ClientID] = append(r.ended[m.ClientID], *m)
}

func (r *rig) serve(t *testing.T, bodyWait time.Duration) {
	t.Helper()
	inForce := &extproc.Configuration{
		Number: 1, Start: r.picker.InForce().Start, Parser: parsers.New(parsers.Config{Seed: 1}),
		Scan: func(api messages.API, contentType string) extproc.Scanner {
			return parsers.NewResponseScanner(api, contentType)
		},
	}
	r.streams = extproc.NewServer(extproc.Config{
		Instance: 1, MaxBodyBytes: bodyLimit, MaxHeldBytes: 512 << 20, BodyTimeout: bodyWait,
		WaitOtherModes: time.Minute,
		AnswerWithin:   15 * time.Second, ResponseIdle: time.Minute, WholeRequest: time.Hour,
		Metrics: extproc.NewMetrics(r.registry),
	}, extproc.Deps{
		InForce: func() *extproc.Configuration { return inForce },
		Refused: r.picker.Refused, Now: r.picker.System().Now,
		Panicked: func(value any, stack []byte) { t.Errorf("a stream panicked: %v\n%s", value, stack) },
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.at = listener.Addr().String()
	r.grpc = grpc.NewServer(append(wire.ServerOptions(), grpc.MaxRecvMsgSize(bodyLimit+8<<20),
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(16<<20))...)
	wire.Register(r.grpc, r.streams)
	go func() { _ = r.grpc.Serve(listener) }() // it ends with Stop
}

// discover tells the pool its endpoints and waits until they are known.
func (r *rig) discover(t *testing.T, addresses []string) {
	t.Helper()
	var specs []messages.EndpointSpec
	for _, a := range addresses {
		specs = append(specs, messages.EndpointSpec{Name: a, Namespace: "default", Address: messages.Address(a)})
	}
	r.picker.Discovery().Post(messages.EndpointsDiscovered{Version: 1, Endpoints: messages.ListOf(specs...)})
	r.until(t, "the endpoints are known",
		func() bool { return len(r.picker.Pool().Snapshot().Endpoints) == len(addresses) })
}

func (r *rig) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(10 * time.Second); !holds(); <-look.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func (r *rig) close(t *testing.T) {
	t.Helper()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.grpc.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.picker.Close(ctx); err != nil {
		t.Error(err)
	}
}

func (r *rig) dial(t *testing.T, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	conn, err := grpc.NewClient("passthrough:///"+r.at, options...)
	if err != nil {
		t.Fatal(err)
	}
	r.conns = append(r.conns, conn)
	return conn
}

func (r *rig) client(t *testing.T) extprocv3.ExternalProcessorClient {
	t.Helper()
	return extprocv3.NewExternalProcessorClient(r.dial(t, grpc.WithInitialWindowSize(1<<20),
		grpc.WithInitialConnWindowSize(16<<20)))
}

func (r *rig) load(endpoint string) int {
	for _, e := range r.picker.Pool().Snapshot().Endpoints {
		if string(e.Spec.Address) == endpoint {
			return e.Inflight()
		}
	}
	return 0
}

func (r *rig) ending(id string) (conformance.Ending, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.ended[id]
	if len(all) == 0 {
		return conformance.Ending{}, false
	}
	m := all[0]
	e := conformance.Ending{Status: m.Status, Times: len(all)}
	if m.Reason != messages.NoReason {
		e.Reason = m.Reason.String()
	}
	for _, x := range r.picker.Pool().Snapshot().Endpoints {
		if x.ID == m.Served {
			e.Served = string(x.Spec.Address)
		}
	}
	return e, true
}
