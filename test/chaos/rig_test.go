// Package chaos runs the stream server over the whole actor tree in this process, behind real gRPC connections, and has
// thousands of clients misbehave towards it while actors, plugins, connections and scrapes fail. What each client does and what
// goes wrong for it follows from the seed; what the scheduler makes of it does not. It never starts an Envoy or the binary.
//
//	go test ./test/chaos                             one fixed seed
//	go test ./test/chaos -seed 7 -requests 1000000   one seed; prints what happened
//
// README.md says what must come, what may be left, and what a million requests came to.
package chaos

import (
	"context"
	"errors"
	"net"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/flow"
	"github.com/signalbox-epp/signalbox/actors/outlier"
	"github.com/signalbox-epp/signalbox/actors/pool"
	"github.com/signalbox-epp/signalbox/actors/prefix"
	"github.com/signalbox-epp/signalbox/actors/recorder"
	"github.com/signalbox-epp/signalbox/actors/shard"
	"github.com/signalbox-epp/signalbox/adapters/accesslog"
	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	machine "github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	loops     = 2
	highWater = 24 // items: a burst of clients is refused
	instance  = 1
	bodyLimit = 1 << 20
	heldLimit = 3 << 20                // some bodies do not fit
	blocks    = 2000                   // of an endpoint in the prefix index
	impatient = 250 * time.Millisecond // for a body
)

// limits are short, so that every deadline passes now and then.
var limits = cycle.Limits{
	Queue: time.Second, Pick: 500 * time.Millisecond, FirstToken: 300 * time.Millisecond, ResponseIdle: 600 * time.Millisecond,
	Logged: 400 * time.Millisecond,
}

// rig is an EPP as the command wires it, with faults between its parts.
type rig struct {
	testing.TB
	faults   *faults
	ledger   *ledger
	sys      *runtime.System
	registry *prometheus.Registry
	pool     *endpoints.Pool
	index    *blockindex.Index
	plan     *schedule.Plan
	observer *telemetry.Observer
	prefix   runtime.Ref[messages.PrefixMsg]
	outlier  runtime.Ref[messages.OutlierMsg]
	pools    runtime.Ref[messages.PoolMsg]
	recorder runtime.Ref[messages.RecorderMsg]
	shards   []runtime.Ref[messages.ShardMsg]
	flows    []runtime.Ref[messages.FlowMsg]
	cycles   []runtime.Role[messages.CycleMsg]
	books    []*records.Book
	farm     *farm
	logs     *accesslog.Server

	streams *extproc.Server
	grpc    *grpc.Server
	at      string
	ended   chan struct{} // closed once the server serves no more
}

const settings = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: decode-filter
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: lora-affinity-scorer
- type: active-request-scorer
- type: running-requests-size-scorer
- type: load-aware-scorer
- type: max-score-picker`

// startRig brings an EPP up whose bodies may take so long. If that is far longer than the test, a timer that is left keeps its stream.
func startRig(t testing.TB, seed uint64, requests int, bodyWait time.Duration) *rig {
	r := &rig{TB: t, faults: newFaults(seed), ledger: newLedger(requests), registry: prometheus.NewRegistry(), pool: endpoints.NewPool()}
	r.index = blockindex.NewIndex(blocks)
	r.sys = runtime.New(runtime.Config{Loops: loops, Seed: seed, HighWater: highWater, OnPanic: r.onPanic})
	cfg, err := config.Load([]byte(settings), config.Settings{Destinations: 3, Stale: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r.observer = telemetry.NewPlugins(r.registry, zap.NewNop()).Observe(cfg.Plan.Profiles())
	r.plan = r.faults.plan(cfg.Plan)
	r.farm = &farm{faults: r.faults}
	r.spawnShared()
	families, shards, flows := cycle.NewFamilies(r.registry, r.pool, "pool"), shard.NewMetrics(r.registry), flow.NewMetrics(r.registry)
	for i := range loops {
		r.spawnShard(i, families, shards, flows)
	}
	r.recorder = spawn[messages.RecorderMsg](r, 0, "recorder", messages.RecorderStarted{},
		func() runtime.Actor[messages.RecorderMsg] { return recorder.New(r.shardSinks()) })
	r.logs = accesslog.NewServer(accesslog.Deps{
		ParseID: func(s string) (messages.RequestID, bool) { return extproc.ParseID(instance, s) },
		Ended: func(m messages.ExchangeLogged) {
			r.shards[uint64(m.Request)%loops].Port().Post(m)
		},
		Ongoing: func(m messages.ExchangeOngoing) { r.shards[uint64(m.Request)%loops].Port().Post(m) },
		Silent: func() {
			for _, s := range r.shards {
				s.Port().Post(messages.LogStreamEnded{})
			}
		},
		Metrics: accesslog.NewMetrics(r.registry),
	})
	r.serve(bodyWait)
	return r
}

func (r *rig) onPanic(p runtime.Panic) {
	if _, drawn := p.Value.(fault); !drawn {
		r.Errorf("%s panicked at %s: %v\n%s", p.Actor, p.Message, p.Value, p.Stack)
	}
}

// spawn brings up an actor that never ends by itself; faults hit it.
func spawn[M any](r *rig, loop int, name string, first M, fresh func() runtime.Actor[M]) runtime.Ref[M] {
	role := runtime.Role[M]{Name: name, Policy: runtime.RestartOnPanic, New: func() runtime.Actor[M] { return shaken(r.faults, name, fresh()) }}
	ref, ok := runtime.Start(r.sys.Root(loop), role, first)
	if !ok {
		r.Fatalf("%s was refused", name)
	}
	return ref
}

func (r *rig) spawnShared() {
	prefixes, err := prefix.NewMetrics(r.registry)
	if err != nil {
		r.Fatal(err)
	}
	r.prefix = spawn[messages.PrefixMsg](r, loops-1, "prefix", messages.PrefixStarted{},
		func() runtime.Actor[messages.PrefixMsg] { return prefix.New(r.index, prefixes) })
	patience := outlier.Config{MaxEjectionPercent: 50, Config: machine.Config{FirstEjection: 20 * time.Millisecond, LongestEjection: 100 * time.Millisecond}}
	healths := outlier.NewMetrics(r.registry)
	r.outlier = spawn[messages.OutlierMsg](r, 0, "outlier", messages.OutlierStarted{},
		func() runtime.Actor[messages.OutlierMsg] { return outlier.New(patience, r.pool, r.farm, healths) })
	deps := pool.Deps{
		Pool: r.pool, Prefix: r.prefix, Metrics: pool.NewMetrics(r.registry), Scrape: r.farm.scrapers(r),
		Shards: r.shardSinks,
	}
	r.pools = spawn[messages.PoolMsg](r, 0, "pool", messages.PoolStarted{},
		func() runtime.Actor[messages.PoolMsg] { return pool.New(deps) })
}

func (r *rig) shardSinks() []messages.Sink[messages.ShardMsg] {
	all := make([]messages.Sink[messages.ShardMsg], 0, loops)
	for _, s := range r.shards {
		all = append(all, s)
	}
	return all
}

func (r *rig) spawnShard(i int, cm *cycle.Families, sm *shard.Metrics, fm *flow.Metrics) {
	book, report := records.NewBook(256, 1<<20), func(*messages.Record) {}
	r.books = append(r.books, book)
	r.shards = append(r.shards, spawn[messages.ShardMsg](r, i, "shard", messages.ShardStarted{Shard: i},
		func() runtime.Actor[messages.ShardMsg] { return shard.New(book, sm, report) }))
	r.flows = append(r.flows, spawn[messages.FlowMsg](r, i, "flow", messages.FlowStarted{Shard: i},
		func() runtime.Actor[messages.FlowMsg] { return flow.New(fm) }))
	deps := &cycle.Deps{
		Flow: func(k messages.FlowKey) messages.Sink[messages.FlowMsg] {
			return r.flows[(xxhash.Sum64String(k.Fairness)+uint64(k.Priority))%loops]
		},
		Prefix: r.prefix, Outlier: r.outlier, Pool: r.pool, Plan: func() *schedule.Plan { return r.plan }, Book: book,
		Scheduler: schedule.NewScheduler(schedule.Tools{Clock: r.sys, Observer: r.observer, Matcher: r.index, Rand: r.sys.Rand(i)}),
		Estimates: records.NewEstimates(), Names: r.sys.KindName, Status: extproc.Status, Metrics: cm, Report: report, Limits: limits,
	}
	role := cycle.Role(deps)
	role.New = func() runtime.Actor[messages.CycleMsg] { return &frail{Actor: cycle.New(deps), faults: r.faults} }
	r.cycles = append(r.cycles, role)
}

// serve makes a server as the command does: windows, codec and all.
func (r *rig) serve(bodyWait time.Duration) {
	r.streams = extproc.NewServer(extproc.Config{
		Instance: instance, MaxBodyBytes: bodyLimit, MaxHeldBytes: heldLimit, BodyTimeout: bodyWait, AnswerWithin: limits.Queue + limits.Pick,
		ResponseIdle: limits.ResponseIdle, WholeRequest: time.Hour, Metrics: extproc.NewMetrics(r.registry),
	}, extproc.Deps{
		Start: r.start, Refused: func(m messages.RequestRefused) { r.shards[uint64(m.Record.Request)%loops].Port().Post(m) },
		Parser: poisoned{parsers.NewOpenAI(parsers.Config{Seed: 1}), r.faults}, Now: r.sys.Now,
		Scan: func(contentType string) extproc.Scanner { return parsers.NewResponseScanner(contentType) },
		Panicked: func(value any, stack []byte) {
			if _, drawn := value.(fault); !drawn {
				r.Errorf("a stream panicked: %v\n%s", value, stack)
			}
		},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.Fatal(err)
	}
	r.at = listener.Addr().String()
	r.ended = make(chan struct{})
	r.grpc = grpc.NewServer(append(wire.ServerOptions(), grpc.MaxRecvMsgSize(bodyLimit+1<<20), grpc.InitialWindowSize(1<<20),
		grpc.InitialConnWindowSize(16<<20), grpc.NumStreamWorkers(64))...)
	wire.Register(r.grpc, tracked{r.streams, r.ledger})
	accesslogv3.RegisterAccessLogServiceServer(r.grpc, r.logs)
	go func() {
		defer close(r.ended)
		_ = r.grpc.Serve(listener) // it ends with Stop
	}()
}

// start spawns a cycle, and follows what its stream is told.
func (r *rig) start(first messages.RequestArrived) (messages.Port[messages.CycleMsg], bool) {
	i := uint64(first.Request.ID) % loops
	if n, ok := numberOf(first.Request.ClientID); ok {
		first.Stream = overheard{first.Stream, r.ledger.line(n)}
	}
	ref, ok := runtime.Start(r.shards[i], r.cycles[i], messages.CycleMsg(first))
	if !ok {
		r.faults.met("inbox full")
	}
	return ref.Port(), ok
}

// close ends everything, in the order of the command.
func (r *rig) close() {
	r.logs.Close()
	r.grpc.Stop()
	<-r.ended
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := errors.Join(r.sys.Close(ctx), ctx.Err()); err != nil {
		r.Error(err)
	}
	r.farm.rest.Wait()
}

// liveHeap is what the last collection left.
func liveHeap() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
