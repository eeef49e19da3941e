package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/flow"
	"github.com/signalbox-epp/signalbox/actors/pool"
	"github.com/signalbox-epp/signalbox/actors/prefix"
	"github.com/signalbox-epp/signalbox/actors/recorder"
	"github.com/signalbox-epp/signalbox/actors/shard"
	"github.com/signalbox-epp/signalbox/adapters/accesslog"
	"github.com/signalbox-epp/signalbox/adapters/discovery"
	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/adapters/peers"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/adapters/xds"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// tree is every actor of a running Signalbox, and the adapters that tell them things.
type tree struct {
	opts     *options
	log      *telemetry.Log
	instance uint64 // in request ids, which clients see
	seed     uint64 // of hashes, which nobody sees
	registry *prometheus.Registry
	sys      *runtime.System
	endpoint *endpoints.Pool
	plan     *schedule.Plan
	observer *telemetry.Observer

	estimates *records.Estimates // of output tokens; all loops learn together

	prefix   runtime.Ref[messages.PrefixMsg]
	index    *blockindex.Index
	pool     runtime.Ref[messages.PoolMsg]
	recorder runtime.Ref[messages.RecorderMsg]
	outlier  runtime.Ref[messages.OutlierMsg]
	shards   []runtime.Ref[messages.ShardMsg]
	flows    []runtime.Ref[messages.FlowMsg]
	cycles   []runtime.Role[messages.CycleMsg] // one for each loop

	spawned  bool // prefix, pool and recorder have addresses
	fetcher  *modelserver.Fetcher
	checker  *modelserver.Checker
	file     *discovery.File
	follow   context.CancelFunc
	streams  *extproc.Server
	logs     *accesslog.Server
	totals   func() (arrived, failed prometheus.Collector)
	peers    *peers.Table
	outlived func() int  // requests whose response runs on past their stream
	xds      *xds.Server // nil without --xds-port
	admin    http.Handler
	draining atomic.Bool
}

const (
	recordEntries = 4096     // of ended requests, in all loops together
	recordBytes   = 16 << 20 // likewise

	// An endpoint that recovers is tried again after the longest suspension, within ten seconds.
	firstEjection   = 2 * time.Second
	longestEjection = 8 * time.Second
)

// buildTree brings the actors up in the order in which they need each other.
func buildTree(ctx context.Context, o *options, cfg *config.Config, log *telemetry.Log, picker netip.AddrPort) (*tree, error) {
	t := &tree{opts: o, log: log, instance: rand.Uint64(), seed: rand.Uint64(), registry: prometheus.NewRegistry(), endpoint: endpoints.NewPool(),
		estimates: records.NewEstimates()}
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	t.sys = runtime.New(runtime.Config{Loops: o.shards, Seed: rand.Uint64(), OnPanic: t.onPanic})
	t.registry.MustRegister(telemetry.NewCollector(t.sys, t.endpoint, o.poolName, o.staleness), telemetry.PoolInfo(o.poolName, o.namespace()))
	t.registry.MustRegister(append(telemetry.BuildInfo(built()), log.Sink.Metric())...)
	t.observer = telemetry.NewPlugins(t.registry, log.Logger).Observe(cfg.Profiles)
	t.plan = &schedule.Plan{Profiles: cfg.Profiles, Handler: cfg.Handler.Plugin, Stale: o.staleness}
	t.peers = peers.NewTable(peers.Deps{Doubted: t.noteDoubt, Log: log.Logger})
	if err := t.announceByXds(picker); err != nil {
		return nil, errors.Join(err, t.close(ctx))
	}
	if err := t.spawnAll(cfg); err != nil {
		return nil, errors.Join(err, t.close(ctx))
	}
	t.serveStreams(cfg)
	t.serveLogs()
	t.serveAdmin(cfg)
	if err := t.discover(ctx, cfg); err != nil {
		return nil, errors.Join(err, t.close(ctx))
	}
	return t, nil
}

func (t *tree) onPanic(p runtime.Panic) {
	t.log.Error("an actor panicked", zap.String("actor", p.Actor), zap.Uint64("id", p.ID), zap.String("message", p.Message),
		zap.Any("panic", p.Value), zap.ByteString("actor_stack", p.Stack),
		zap.Strings("loop_did_last", t.sys.Lines(p.Recent)))
}

func (t *tree) spawnAll(cfg *config.Config) error {
	prefixMetrics, err := prefix.NewMetrics(t.registry)
	if err != nil {
		return err
	}
	t.index = blockindex.NewIndex(0)
	var ok bool
	t.prefix, ok = runtime.Start(t.sys.Root(t.sys.Loops()-1), runtime.Role[messages.PrefixMsg]{
		Name: "prefix", Policy: runtime.RestartOnPanic,
		New: func() runtime.Actor[messages.PrefixMsg] { return prefix.New(t.index, prefixMetrics) },
	}, messages.PrefixMsg(messages.PrefixStarted{}))
	if !ok {
		return errors.New("the prefix actor was refused")
	}
	t.spawnOutlier()
	flowMetrics, shardMetrics, cycleMetrics := flow.NewMetrics(t.registry), shard.NewMetrics(t.registry), cycle.NewFamilies(t.registry, t.endpoint, t.opts.poolName)
	if err := t.spawnPool(cfg, cycleMetrics.Served); err != nil {
		return err
	}
	requests := telemetry.NewRequests(t.log, t.endpoint.Address, t.formatID)
	for i := range t.sys.Loops() {
		t.spawnShard(i, flowMetrics, shardMetrics, cycleMetrics, requests)
	}
	t.outlived, t.totals = cycleMetrics.Outlived, cycleMetrics.Totals
	t.recorder, _ = runtime.Start(t.sys.Root(0), runtime.Role[messages.RecorderMsg]{
		Name: "recorder", Policy: runtime.RestartOnPanic,
		New: func() runtime.Actor[messages.RecorderMsg] { return recorder.New(t.shardSinks()) },
	}, messages.RecorderMsg(messages.RecorderStarted{}))
	t.spawned = true
	return nil
}

func (t *tree) spawnPool(cfg *config.Config, served func(models ...string)) error {
	scrape, err := t.scrapers(cfg, served)
	if err != nil {
		return err
	}
	deps := pool.Deps{Pool: t.endpoint, Prefix: t.prefix, Scrape: scrape, Metrics: pool.NewMetrics(t.registry), Shards: t.shardSinks}
	if t.xds != nil {
		deps.Announcer, deps.Hangs = t.xds, t.hangs
	}
	t.pool, _ = runtime.Start(t.sys.Root(0), runtime.Role[messages.PoolMsg]{
		Name: "pool", Policy: runtime.RestartOnPanic,
		New: func() runtime.Actor[messages.PoolMsg] { return pool.New(deps) },
	}, messages.PoolMsg(messages.PoolStarted{}))
	return nil
}

// spawnShard brings up what one loop carries. All of it shares the loop's scratch and book.
func (t *tree) spawnShard(i int, fm *flow.Metrics, sm *shard.Metrics, cm *cycle.Families, requests *telemetry.Requests) {
	book := records.NewBook(recordEntries/t.sys.Loops(), recordBytes/t.sys.Loops())
	s, _ := runtime.Start(t.sys.Root(i), runtime.Role[messages.ShardMsg]{
		Name: "shard", Policy: runtime.RestartOnPanic,
		New: func() runtime.Actor[messages.ShardMsg] {
			return shard.New(book, sm, func(r *messages.Record) {
				cm.Refused(r)
				requests.Report(r)
			})
		},
	}, messages.ShardMsg(messages.ShardStarted{Shard: i}))
	f, _ := runtime.Start(t.sys.Root(i), runtime.Role[messages.FlowMsg]{
		Name: "flow", Policy: runtime.RestartOnPanic,
		New: func() runtime.Actor[messages.FlowMsg] { return flow.New(fm) },
	}, messages.FlowMsg(messages.FlowStarted{Shard: i}))
	t.shards, t.flows = append(t.shards, s), append(t.flows, f)
	deps := &cycle.Deps{
		Flow: t.flowOf, Prefix: t.prefix, Outlier: t.outlier, Pool: t.endpoint, Plan: func() *schedule.Plan { return t.plan }, Book: book,
		Scheduler: schedule.NewScheduler(schedule.Tools{Clock: t.sys, Observer: t.observer, Matcher: t.index, Rand: t.sys.Rand(i)}),
		Estimates: t.estimates,
		Names:     t.sys.KindName, Status: extproc.Status, Metrics: cm, Report: requests.Report,
		Limits: cycle.Limits{
			Queue: limit(t.opts.queueTimeout), Pick: limit(t.opts.pickTimeout), FirstToken: limit(t.opts.firstToken), ResponseIdle: limit(t.opts.idleTimeout),
			Logged: limit(t.opts.logTimeout),
		},
	}
	t.cycles = append(t.cycles, cycle.Role(deps))
}

// flowOf is the flow shard of a flow: by its key, so that a flow has one line.
func (t *tree) flowOf(k messages.FlowKey) messages.Sink[messages.FlowMsg] {
	d := xxhash.NewWithSeed(t.seed)
	_, _ = d.WriteString(k.Fairness) // never fails
	return t.flows[(d.Sum64()+uint64(k.Priority))%uint64(len(t.flows))]
}

// startCycle spawns a cycle on the loop that its request's id names.
func (t *tree) startCycle(first messages.RequestArrived) (messages.Port[messages.CycleMsg], bool) {
	i := uint64(first.Request.ID) % uint64(len(t.shards))
	ref, ok := runtime.Start(t.shards[i], t.cycles[i], messages.CycleMsg(first))
	return ref.Port(), ok
}

// noteRefused tells the shard of a request's loop what became of a request that never had a cycle.
func (t *tree) noteRefused(m messages.RequestRefused) {
	t.shards[uint64(m.Record.Request)%uint64(len(t.shards))].Port().Post(m)
}

func (t *tree) formatID(id messages.RequestID) string { return extproc.FormatID(t.instance, id) }

// discover follows the file of endpoints. A bad one at the start is an error; later it changes nothing.
func (t *tree) discover(ctx context.Context, cfg *config.Config) error {
	file, err := discovery.Open(discovery.Config{
		Path: cfg.Discovery.Path, Fixed: !cfg.Discovery.Watch, Problem: t.endpointsProblem, Told: t.endpointsTold,
		Doubles: func(p discovery.Problems) { t.log.Warn("endpoints: entries stand twice", zap.Stringers("entries", p)) },
	}, t.pool.Port())
	if err != nil {
		return fmt.Errorf("endpoints file %s:\n%w", cfg.Discovery.Path, err)
	}
	t.file = file
	follow, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.follow = cancel
	go file.Run(follow)
	return nil
}

// awaitEndpoints waits a second at most for the first set: whoever finds us serving shall find the endpoints too.
func (t *tree) awaitEndpoints(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for t.endpoint.Snapshot().Version == 0 {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// close ends what tells actors things, and then the actors: cycles with their shards, flows, prefix, scrapers with the pool,
// recorder.
func (t *tree) close(ctx context.Context) error {
	if t.file != nil {
		t.follow()
		t.file.Close()
	}
	var late error
	end := func(who runtime.Target) {
		select {
		case <-runtime.End(who):
		case <-ctx.Done():
			late = fmt.Errorf("actors: %w", ctx.Err())
		}
	}
	for _, s := range t.shards {
		end(s)
	}
	for _, f := range t.flows {
		end(f)
	}
	if t.spawned {
		end(t.prefix)
		end(t.pool)
		end(t.recorder)
		end(t.outlier)
	}
	t.peers.Close()
	if t.fetcher != nil {
		t.fetcher.Close()
	}
	if t.checker != nil {
		t.checker.Close()
	}
	if t.xds != nil {
		t.xds.Close()
	}
	if late != nil {
		return late
	}
	return t.sys.Close(ctx)
}
