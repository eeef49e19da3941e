// Package sim runs the whole actor tree on the test's goroutine, from a seed: requests, faults and the order of all
// messages. It owns the probes that stand in for streams, model servers, discovery and the admin side. It never opens a
// connection, and looks at the wall clock only to name the seed of the day.
//
//	go test ./test/sim                       20 fixed seeds, the seed of the day
//	go test ./test/sim -seed 7 -requests 500 one seed; prints what happened and the hash of the rings
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
	loops      = 3
	highWater  = 48   // items: a burst of clients is refused
	fewBlocks  = 60   // of an endpoint in the prefix index: some are forgotten
	manyBlocks = 1500 // some are left when the endpoint leaves, and cleared in parts
	maxErrors  = 20   // of one run that are told
)

// start is what the clock says at first.
var start = time.Unix(1_800_000_000, 0)

// limits are short, so that every deadline passes now and then.
var limits = cycle.Limits{Queue: 2 * time.Second, Pick: time.Second, FirstToken: 3 * time.Second, ResponseIdle: 10 * time.Second, Logged: 5 * time.Second}

// world is one run: the tree, the probes around it, and what is written down about them.
type world struct {
	testing.TB
	dice    *rand.Rand // of scripts and faults; all of it runs on the test's goroutine
	sys     *runtime.System
	reg     *prometheus.Registry
	faults  *faults
	ledger  *ledger
	model   *model
	errors  int // that were found
	steps   int
	lapsed  int // at which step time passed last
	quiet   int // how often the model found nothing on its way
	blocks  int // capacity of the prefix index for an endpoint
	longest int // prompt, in blocks

	pool     *endpoints.Pool
	index    *blockindex.Index
	plan     *schedule.Plan
	observed observer
	prefix   runtime.Ref[messages.PrefixMsg]
	outlier  runtime.Ref[messages.OutlierMsg]
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

// settings have a plugin of each family and every signal; the picker is drawn.
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
- type: `

var pickers = []string{"max-score-picker", "random-picker", "weighted-random-picker"}

// newWorld brings the tree up as the command does, and the probes.
func newWorld(t testing.TB, seed uint64, requests int) *world {
	w := &world{TB: t, dice: rand.New(rand.NewPCG(seed, 99)), reg: prometheus.NewRegistry(), pool: endpoints.NewPool()}
	w.blocks, w.longest = fewBlocks, 20
	if w.dice.IntN(2) == 0 {
		w.blocks, w.longest = manyBlocks, 150
	}
	w.ledger, w.model = newLedger(), newModel(w.pool, w.blocks)
	w.faults = newFaults(w.dice, w.ledger)
	w.sys = runtime.New(runtime.Config{
		Mode: runtime.Stepped, Loops: loops, Seed: seed, HighWater: highWater, Shuffle: true, Start: start, OnPanic: w.onPanic,
	})
	cfg, err := config.Load([]byte(settings+pickers[w.dice.IntN(len(pickers))]), config.Settings{Destinations: 3})
	if err != nil {
		t.Fatal(err)
	}
	w.plan = w.faults.plan(&schedule.Plan{Profiles: cfg.Profiles, Handler: cfg.Handler.Plugin, Stale: 2 * time.Second})
	w.spawnProbes(requests)
	w.spawnPrefix()
	w.spawnOutlier()
	w.spawnPool()
	fm, sm, cm := flow.NewMetrics(w.reg), shard.NewMetrics(w.reg), cycle.NewFamilies(w.reg, w.pool, "pool")
	for i := range loops {
		w.spawnShard(i, fm, sm, cm)
	}
	w.spawnRecorder()
	return w
}

// spawn brings up an actor that never ends by itself; faults hit it if the role has a rate.
func spawn[M any](w *world, parent runtime.Parent, name string, first M, fresh func() runtime.Actor[M]) runtime.Ref[M] {
	begun := 0
	role := runtime.Role[M]{Name: name, Policy: runtime.RestartOnPanic, New: func() runtime.Actor[M] {
		if begun++; begun > 1 {
			w.faults.drew(restartOf(name))
		}
		return shaken(w.faults, name, fresh())
	}}
	ref, ok := runtime.Start(parent, role, first)
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
	w.index = blockindex.NewIndex(w.blocks)
	w.prefix = spawn[messages.PrefixMsg](w, w.sys.Root(loops-1), "prefix", messages.PrefixStarted{},
		func() runtime.Actor[messages.PrefixMsg] {
			return &heeded{skin(tagged.prefix, runtime.Actor[messages.PrefixMsg](prefix.New(w.index, metrics))), w.model.prefix}
		})
}

func (w *world) spawnPool() {
	metrics, err := scraper.NewMetrics(w.reg)
	if err != nil {
		w.Fatal(err)
	}
	settings := scraper.Config{Metrics: true, Models: true, ModelsEvery: 5 * time.Second, Timeout: time.Second}
	deps := pool.Deps{Pool: w.pool, Prefix: w.prefix, Metrics: pool.NewMetrics(w.reg), Announcer: proxies{w}, Shards: w.shardSinks}
	deps.Scrape = func(self messages.Sink[messages.PoolMsg], e *endpoints.Endpoint, first messages.EndpointAssigned) (messages.Sink[messages.ScraperMsg], bool) {
		w.ledger.met(e)
		begun := 0
		role := runtime.Role[messages.ScraperMsg]{
			Name: "scraper", Policy: runtime.RestartOnPanic,
			New: func() runtime.Actor[messages.ScraperMsg] {
				a := runtime.Actor[messages.ScraperMsg](scraper.New(settings, target{e, w.model.of(e), w.model}, w.farm, metrics))
				if begun++; begun > 1 {
					w.faults.drew(restartOf("scraper"))
				}
				return shaken(w.faults, "scraper", w.ledger.counts(e.ID, a))
			},
		}
		return runtime.Spawn(self.(runtime.Parent), role, messages.ScraperMsg(first))
	}
	w.pools = spawn[messages.PoolMsg](w, w.sys.Root(0), "pool", messages.PoolStarted{},
		func() runtime.Actor[messages.PoolMsg] { return pool.New(deps) })
}

func (w *world) spawnShard(i int, fm *flow.Metrics, sm *shard.Metrics, cm *cycle.Families) {
	book := records.NewBook(256, 1<<20)
	s := spawn[messages.ShardMsg](w, w.sys.Root(i), "shard", messages.ShardStarted{Shard: i},
		func() runtime.Actor[messages.ShardMsg] { return shard.New(book, sm, w.ledger.reported) })
	f := spawn[messages.FlowMsg](w, w.sys.Root(i), "flow", messages.FlowStarted{Shard: i},
		func() runtime.Actor[messages.FlowMsg] {
			return &whimsical{Actor: flow.New(fm), faults: w.faults, model: w.model, shard: i, lines: map[messages.RequestID]*whim{}}
		})
	w.shards, w.flows, w.books = append(w.shards, s), append(w.flows, f), append(w.books, book)
	deps := &cycle.Deps{
		Flow: w.flowOf, Prefix: w.prefix, Outlier: w.outlier, Pool: w.pool, Plan: func() *schedule.Plan { return w.plan }, Book: book,
		Scheduler: schedule.NewScheduler(schedule.Tools{Clock: w.sys, Observer: &w.observed, Matcher: w.index, Rand: w.sys.Rand(i)}),
		Estimates: records.NewEstimates(),
		Names:     w.sys.KindName, Status: func(messages.Reason) int { return 0 }, Metrics: cm, Report: w.ledger.reported, Limits: limits,
	}
	role := cycle.Role(deps)
	role.New = func() runtime.Actor[messages.CycleMsg] {
		one := skin(tagged.cycle, runtime.Actor[messages.CycleMsg](cycle.New(deps)))
		one = shaken(w.faults, "cycle", runtime.Actor[messages.CycleMsg](&followed{Actor: one, ledger: w.ledger, model: w.model}))
		return skin(tagged.outside, one)
	}
	w.cycles = append(w.cycles, role)
}

func (w *world) spawnRecorder() {
	sinks := make([]messages.Sink[messages.ShardMsg], loops)
	for i, s := range w.shards {
		sinks[i] = deaf{s, w.faults}
	}
	w.recorder = spawn[messages.RecorderMsg](w, w.sys.Root(0), "recorder", messages.RecorderStarted{},
		func() runtime.Actor[messages.RecorderMsg] { return recorder.New(sinks) })
}

// deaf is the address of a shard that loses a query now and then.
type deaf struct {
	messages.Sink[messages.ShardMsg]
	faults *faults
}

func (d deaf) Tell(m messages.ShardMsg) bool {
	if !d.faults.off && d.faults.dice.IntN(30) == 0 {
		d.faults.drew(queryLost)
		return true
	}
	return d.Sink.Tell(m)
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
	to := w.flows[(xxhash.Sum64String(k.Fairness)+uint64(k.Priority))%loops]
	return skin(tagged.flow, messages.Sink[messages.FlowMsg](counter{to, w.faults}))
}

// counter is the address of a flow shard, which counts what it refuses.
type counter struct {
	messages.Sink[messages.FlowMsg]
	faults *faults
}

func (c counter) Tell(m messages.FlowMsg) bool {
	ok := c.Sink.Tell(m)
	if !ok {
		c.faults.drew(inboxFlow)
	}
	return ok
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

// Errorf tells the first errors of a run: the others follow from them.
func (w *world) Errorf(format string, args ...any) {
	w.Helper()
	if w.errors++; w.errors <= maxErrors {
		w.TB.Errorf(format, args...)
	}
}

// Fatalf ends a run that cannot go on.
func (w *world) Fatalf(format string, args ...any) {
	w.Helper()
	w.errors++
	w.TB.Fatalf(format, args...)
}

// observer counts what schedule says of scores.
type observer struct{ clamped, nan int }

func (o *observer) PluginRan(int, time.Duration) {}
func (o *observer) ScoreClamped(int)             { o.clamped++ }
func (o *observer) ScoreNaN(int)                 { o.nan++ }
func (o *observer) AllStale()                    {}
