// Package sim runs the whole actor tree on the test's goroutine, from a seed: requests, faults and the order of all
// messages. It owns the probes that stand in for streams, model servers, discovery and the admin side. It never opens a
// connection and never looks at the wall clock.
package sim_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/flow"
	"github.com/signalbox-epp/signalbox/actors/pool"
	"github.com/signalbox-epp/signalbox/actors/prefix"
	"github.com/signalbox-epp/signalbox/actors/recorder"
	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/actors/shard"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	loops     = 3
	highWater = 48 // items: a burst of clients is refused
)

// start is what the clock says at first.
var start = time.Unix(1_800_000_000, 0)

// limits are short, so that every deadline passes now and then.
var limits = cycle.Limits{Queue: 2 * time.Second, Pick: time.Second, ResponseIdle: 10 * time.Second}

// world is one run: the tree, the probes around it, and what is written down about them.
type world struct {
	testing.TB
	dice   *rand.Rand // of scripts and faults; all of it runs on the test's goroutine
	sys    *runtime.System
	reg    *prometheus.Registry
	faults *faults
	ledger *ledger

	pool     *endpoints.Pool
	index    *blockindex.Index
	plan     *schedule.Plan
	observed observer
	prefix   runtime.Ref[messages.PrefixMsg]
	pools    runtime.Ref[messages.PoolMsg]
	recorder runtime.Ref[messages.RecorderMsg]
	shards   []runtime.Ref[messages.ShardMsg]
	flows    []runtime.Ref[messages.FlowMsg]
	cycles   []runtime.Role[messages.CycleMsg]
	books    []*records.Book

	farm  *farm
	crowd *crowd
	other *others
}

// newWorld brings the tree up as the command does, and the probes.
func newWorld(t testing.TB, seed uint64, requests int) *world {
	w := &world{TB: t, dice: rand.New(rand.NewPCG(seed, 99)), reg: prometheus.NewRegistry(), pool: endpoints.NewPool()}
	w.ledger = newLedger()
	w.faults = &faults{dice: w.dice, ledger: w.ledger}
	w.sys = runtime.New(runtime.Config{
		Mode: runtime.Stepped, Loops: loops, Seed: seed, HighWater: highWater, Start: start, OnPanic: w.onPanic,
	})
	cfg, err := config.Load(nil, config.Settings{Destinations: 3})
	if err != nil {
		t.Fatal(err)
	}
	w.plan = &schedule.Plan{Profiles: w.faults.profiles(cfg.Profiles), Handler: cfg.Handler.Plugin, Stale: 2 * time.Second}
	w.spawnProbes(requests)
	w.spawnPrefix()
	w.spawnPool()
	fm, cm := flow.NewMetrics(w.reg), cycle.NewFamilies(w.reg, w.pool, "pool")
	for i := range loops {
		w.spawnShard(i, fm, cm.ForLoop())
	}
	w.spawnRecorder()
	return w
}

// spawn brings up an actor that never ends by itself; faults hit it if the role has a rate.
func spawn[M any](w *world, parent runtime.Parent, name string, first M, fresh func() runtime.Actor[M]) runtime.Ref[M] {
	role := runtime.Role[M]{Name: name, Policy: runtime.RestartOnPanic, New: func() runtime.Actor[M] {
		return shaken(w.faults, name, fresh())
	}}
	ref, ok := runtime.SpawnInner(parent, role, first)
	if !ok {
		w.Fatalf("%s was refused", name)
	}
	return ref
}

func (w *world) spawnPrefix() {
	metrics, err := prefix.NewMetrics(w.reg)
	if err != nil {
		w.Fatal(err)
	}
	w.index = blockindex.NewIndex(500)
	w.prefix = spawn[messages.PrefixMsg](w, w.sys.Root(loops-1), "prefix", messages.PrefixStarted{},
		func() runtime.Actor[messages.PrefixMsg] { return prefix.New(w.index, metrics) })
}

func (w *world) spawnPool() {
	metrics, err := scraper.NewMetrics(w.reg)
	if err != nil {
		w.Fatal(err)
	}
	settings := scraper.Config{Metrics: true, Models: true, ModelsEvery: 5 * time.Second, Timeout: time.Second}
	deps := pool.Deps{Pool: w.pool, Prefix: w.prefix, Metrics: pool.NewMetrics(w.reg)}
	deps.Scrape = func(self messages.Sink[messages.PoolMsg], e *endpoints.Endpoint, first messages.EndpointAssigned) (messages.Sink[messages.ScraperMsg], bool) {
		w.ledger.met(e)
		role := runtime.Role[messages.ScraperMsg]{
			Name: "scraper", Policy: runtime.RestartOnPanic,
			New: func() runtime.Actor[messages.ScraperMsg] {
				a := runtime.Actor[messages.ScraperMsg](scraper.New(settings, target{e, e.Load()}, w.farm, metrics))
				return shaken(w.faults, "scraper", w.ledger.counts(e.ID, a))
			},
		}
		return runtime.Spawn(self.(runtime.Parent), role, messages.ScraperMsg(first))
	}
	w.pools = spawn[messages.PoolMsg](w, w.sys.Root(0), "pool", messages.PoolStarted{},
		func() runtime.Actor[messages.PoolMsg] { return pool.New(deps) })
}

// target is an endpoint as its scraper sees it.
type target struct {
	*endpoints.Endpoint
	load *endpoints.Load
}

func (t target) BeginScrape() uint32         { return t.load.BeginScrape() }
func (t target) SampleInForce(number uint32) { t.load.SampleInForce(number) }
func (t target) ScrapeFailed(number uint32)  { t.load.ScrapeFailed(number) }
func (t target) Inflight() int               { return t.load.Inflight() }

func (w *world) spawnShard(i int, fm *flow.Metrics, cm *cycle.Metrics) {
	book := records.NewBook(256, 1<<20)
	s := spawn[messages.ShardMsg](w, w.sys.Root(i), "shard", messages.ShardStarted{Shard: i},
		func() runtime.Actor[messages.ShardMsg] { return shard.New(book, w.ledger.reported) })
	f := spawn[messages.FlowMsg](w, w.sys.Root(i), "flow", messages.FlowStarted{Shard: i},
		func() runtime.Actor[messages.FlowMsg] { return flow.New(fm) })
	w.shards, w.flows, w.books = append(w.shards, s), append(w.flows, f), append(w.books, book)
	deps := &cycle.Deps{
		Flow: w.flowOf, Prefix: w.prefix, Pool: w.pool, Plan: func() *schedule.Plan { return w.plan }, Book: book,
		Scratch: &schedule.Scratch{Clock: w.sys, Observer: &w.observed, Matcher: w.index, Rand: w.sys.Rand(i)},
		Names:   w.sys.KindName, Status: func(messages.Reason) int { return 0 }, Metrics: cm, Report: w.ledger.reported, Limits: limits,
	}
	w.cycles = append(w.cycles, runtime.Role[messages.CycleMsg]{
		Name: "cycle", Policy: runtime.StopOnPanic, New: func() runtime.Actor[messages.CycleMsg] {
			return shaken(w.faults, "cycle", runtime.Actor[messages.CycleMsg](&followed{Actor: cycle.New(deps), ledger: w.ledger}))
		},
	})
}

func (w *world) spawnRecorder() {
	sinks := make([]messages.Sink[messages.ShardMsg], loops)
	for i, s := range w.shards {
		sinks[i] = s
	}
	w.recorder = spawn[messages.RecorderMsg](w, w.sys.Root(0), "recorder", messages.RecorderStarted{},
		func() runtime.Actor[messages.RecorderMsg] { return recorder.New(sinks) })
}

func (w *world) spawnProbes(requests int) {
	w.farm = newFarm(w)
	w.farm.ref = spawn[farmMsg](w, w.sys.Root(1), "farm", farmOpened{}, func() runtime.Actor[farmMsg] { return w.farm })
	w.crowd = &crowd{world: w, left: requests}
	spawn[crowdMsg](w, w.sys.Root(0), "crowd", clientsDue{}, func() runtime.Actor[crowdMsg] { return w.crowd })
	w.other = newOthers(w)
	spawn[othersMsg](w, w.sys.Root(2), "others", othersCame{}, func() runtime.Actor[othersMsg] { return w.other })
}

func (w *world) flowOf(k messages.FlowKey) messages.Sink[messages.FlowMsg] {
	return w.flows[(xxhash.Sum64String(k.Fairness)+uint64(k.Priority))%loops]
}

func (w *world) loopOf(id messages.RequestID) int { return int(id % loops) }

// onPanic tells the panics that the test drew from those that nobody did.
func (w *world) onPanic(p runtime.Panic) {
	if _, drawn := p.Value.(fault); !drawn {
		w.Errorf("%s panicked at %s: %v\n%s", p.Actor, p.Message, p.Value, p.Stack)
	}
	w.ledger.panics[p.Actor]++
}

// upTo is a random time below d.
func (w *world) upTo(d time.Duration) time.Duration {
	return time.Duration(w.dice.Int64N(int64(d))) + 1
}

func (w *world) chance(p float64) bool { return w.dice.Float64() < p }

// observer counts what schedule says of plugins.
type observer struct{ ran, clamped, nan, stale int }

func (o *observer) PluginRan(int, time.Duration) { o.ran++ }
func (o *observer) ScoreClamped(int)             { o.clamped++ }
func (o *observer) ScoreNaN(int)                 { o.nan++ }
func (o *observer) AllStale()                    { o.stale++ }
