// Package conformance plays the table of ext_proc checks: against the stream server over a whole actor tree in this
// process, so that load, queue and records can be looked at, and against the real binary through its own command.
package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/flow"
	"github.com/signalbox-epp/signalbox/actors/pool"
	"github.com/signalbox-epp/signalbox/actors/prefix"
	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/actors/shard"
	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/adapters/lab/conformance"
	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	bodyLimit = 21 << 20
	loops     = 2
)

// rig is an EPP as the command wires it: stream server, cycles, flow, prefix and pool, without what watches the world.
type rig struct {
	sys      *runtime.System
	pool     *endpoints.Pool
	index    *blockindex.Index
	plan     *schedule.Plan
	observer *telemetry.Observer
	prefix   runtime.Ref[messages.PrefixMsg]
	pools    runtime.Ref[messages.PoolMsg]
	shards   []runtime.Ref[messages.ShardMsg]
	flows    []runtime.Ref[messages.FlowMsg]
	cycles   []runtime.Role[messages.CycleMsg]
	streams  *extproc.Server
	registry *prometheus.Registry
	bodyWait time.Duration

	grpc  *grpc.Server
	conns []*grpc.ClientConn
	at    string

	mu    sync.Mutex
	ended map[string][]messages.Record // by the client's name for the request, each time it was counted
}

// startRig brings an EPP up. fresh makes its flow shards; nil is the real one.
func startRig(t *testing.T, addresses []string, fresh func() runtime.Actor[messages.FlowMsg]) *rig {
	t.Helper()
	return startPatient(t, addresses, fresh, time.Minute)
}

// startPatient is startRig with a deadline for bodies.
func startPatient(t *testing.T, addresses []string, fresh func() runtime.Actor[messages.FlowMsg], bodyWait time.Duration) *rig {
	t.Helper()
	cfg, err := config.Default(config.Settings{Destinations: 3, Stale: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		bodyWait: bodyWait, pool: endpoints.NewPool(), index: blockindex.NewIndex(0), registry: prometheus.NewRegistry(), ended: map[string][]messages.Record{},
		plan: cfg.Plan,
	}
	r.observer = telemetry.NewPlugins(r.registry, zap.NewNop()).Observe(cfg.Plan.Profiles())
	r.sys = runtime.New(runtime.Config{Loops: loops, Seed: rand.Uint64(), OnPanic: func(p runtime.Panic) {
		t.Errorf("%s panicked at %s: %v\n%s", p.Actor, p.Message, p.Value, p.Stack)
	}})
	r.spawnShared(t)
	if fresh == nil {
		metrics := flow.NewMetrics(r.registry)
		fresh = func() runtime.Actor[messages.FlowMsg] { return flow.New(metrics) }
	}
	families, shards := cycle.NewFamilies(r.registry, r.pool, "pool"), shard.NewMetrics(r.registry)
	for i := range loops {
		r.spawnShard(t, i, families, shards, fresh)
	}
	r.serve(t)
	t.Cleanup(func() { r.close(t) })
	r.discover(t, addresses)
	return r
}

func spawn[M any](t *testing.T, parent runtime.Parent, name string, first M, fresh func() runtime.Actor[M]) runtime.Ref[M] {
	t.Helper()
	ref, ok := runtime.Start(parent, runtime.Role[M]{Name: name, Policy: runtime.RestartOnPanic, New: fresh}, first)
	if !ok {
		t.Fatalf("%s was refused", name)
	}
	return ref
}

func (r *rig) spawnShared(t *testing.T) {
	t.Helper()
	prefixes, err := prefix.NewMetrics(r.registry)
	scrapes, err2 := scraper.NewMetrics(r.registry)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	r.prefix = spawn(t, r.sys.Root(loops-1), "prefix", messages.PrefixMsg(messages.PrefixStarted{}),
		func() runtime.Actor[messages.PrefixMsg] { return prefix.New(r.index, prefixes) })
	deps := pool.Deps{Pool: r.pool, Prefix: r.prefix, Metrics: pool.NewMetrics(r.registry)}
	deps.Scrape = func(self messages.Sink[messages.PoolMsg], e *endpoints.Endpoint, first messages.EndpointAssigned) (messages.Sink[messages.ScraperMsg], bool) {
		role := runtime.Role[messages.ScraperMsg]{Name: "scraper", Policy: runtime.RestartOnPanic, New: func() runtime.Actor[messages.ScraperMsg] {
			return scraper.New(scraper.Config{}, target{e, e.Load()}, nobody{}, scrapes)
		}}
		return runtime.Spawn(self.(runtime.Parent), role, messages.ScraperMsg(first))
	}
	r.pools = spawn(t, r.sys.Root(0), "pool", messages.PoolMsg(messages.PoolStarted{}),
		func() runtime.Actor[messages.PoolMsg] { return pool.New(deps) })
}

// target is an endpoint as its scraper sees it.
type target struct {
	*endpoints.Endpoint
	*endpoints.Load
}

// ScrapeFailed notes nothing: no page is read.
func (target) ScrapeFailed(uint32) {}

// unmoved is in the place of the outlier actor: every endpoint stays healthy.
type unmoved struct{}

func (unmoved) Tell(messages.OutlierMsg) bool { return true }

// nobody fetches nothing: the endpoints are names.
type nobody struct{}

func (nobody) FetchMetrics(messages.EndpointSpec, uint32, messages.Port[messages.ScraperMsg]) bool {
	return false
}

func (nobody) FetchModels(messages.EndpointSpec, uint32, messages.Port[messages.ScraperMsg]) bool {
	return false
}

func (r *rig) spawnShard(t *testing.T, i int, metrics *cycle.Families, shards *shard.Metrics, fresh func() runtime.Actor[messages.FlowMsg]) {
	t.Helper()
	book := records.NewBook(256, 1<<20)
	r.shards = append(r.shards, spawn(t, r.sys.Root(i), "shard", messages.ShardMsg(messages.ShardStarted{Shard: i}),
		func() runtime.Actor[messages.ShardMsg] { return shard.New(book, shards, r.remember) }))
	r.flows = append(r.flows, spawn(t, r.sys.Root(i), "flow", messages.FlowMsg(messages.FlowStarted{Shard: i}), fresh))
	deps := &cycle.Deps{
		Prefix: r.prefix, Outlier: unmoved{}, Estimates: records.NewEstimates(), Pool: r.pool, Plan: func() *schedule.Plan { return r.plan }, Book: book,
		Flow: func(k messages.FlowKey) messages.Sink[messages.FlowMsg] {
			return r.flows[(xxhash.Sum64String(k.Fairness)+uint64(k.Priority))%loops]
		},
		Scheduler: schedule.NewScheduler(schedule.Tools{Clock: r.sys, Observer: r.observer, Matcher: r.index, Rand: r.sys.Rand(i)}),
		Names:     r.sys.KindName, Status: extproc.Status, Metrics: metrics, Report: r.remember,
		// No access log tells the end of what body mode NONE does not show.
		Limits: cycle.Limits{Queue: 10 * time.Second, Pick: 5 * time.Second, FirstToken: time.Minute, ResponseIdle: time.Minute, Logged: 100 * time.Millisecond},
	}
	r.cycles = append(r.cycles, cycle.Role(deps))
}

func (r *rig) remember(m *messages.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended[m.ClientID] = append(r.ended[m.ClientID], *m)
}

func (r *rig) serve(t *testing.T) {
	t.Helper()
	r.streams = extproc.NewServer(extproc.Config{
		Instance: 1, MaxBodyBytes: bodyLimit, MaxHeldBytes: 512 << 20, BodyTimeout: r.bodyWait, AnswerWithin: 15 * time.Second,
		ResponseIdle: time.Minute, WholeRequest: time.Hour, Metrics: extproc.NewMetrics(r.registry),
	}, extproc.Deps{
		Start: func(first messages.RequestArrived) (messages.Port[messages.CycleMsg], bool) {
			i := uint64(first.Request.ID) % loops
			ref, ok := runtime.Start(r.shards[i], r.cycles[i], messages.CycleMsg(first))
			return ref.Port(), ok
		},
		Refused: func(m messages.RequestRefused) { r.shards[uint64(m.Record.Request)%loops].Port().Post(m) },
		Parser:  parsers.NewOpenAI(parsers.Config{Seed: 1}), Now: r.sys.Now,
		Scan:     func(contentType string) extproc.Scanner { return parsers.NewResponseScanner(contentType) },
		Panicked: func(value any, stack []byte) { t.Errorf("a stream panicked: %v\n%s", value, stack) },
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.at = listener.Addr().String()
	options := append(wire.ServerOptions(), grpc.MaxRecvMsgSize(bodyLimit+8<<20), grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(16<<20))
	r.grpc = grpc.NewServer(options...)
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
	r.pools.Port().Post(messages.EndpointsDiscovered{Version: 1, Endpoints: messages.ListOf(specs...)})
	r.until(t, "the endpoints are known", func() bool { return len(r.pool.Snapshot().Endpoints) == len(addresses) })
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
	if err := r.sys.Close(ctx); err != nil {
		t.Error(err)
	}
}

func (r *rig) dial(t *testing.T, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	conn, err := grpc.NewClient("passthrough:///"+r.at, options...)
	if err != nil {
		t.Fatal(err)
	}
	r.conns = append(r.conns, conn)
	return conn
}

func (r *rig) client(t *testing.T) extprocv3.ExternalProcessorClient {
	t.Helper()
	return extprocv3.NewExternalProcessorClient(r.dial(t, grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(16<<20)))
}

func (r *rig) load(endpoint string) int {
	for _, e := range r.pool.Snapshot().Endpoints {
		if string(e.Spec.Address) == endpoint {
			return e.Load().Inflight()
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
	for _, x := range r.pool.Snapshot().Endpoints {
		if x.ID == m.Served {
			e.Served = string(x.Spec.Address)
		}
	}
	return e, true
}
