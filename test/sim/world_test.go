// Package sim runs the whole actor tree on the test's goroutine, from a seed: requests, faults and the order of all
// messages. It owns the probes that stand in for streams, model servers, discovery and the admin side. It never opens a
// connection, and looks at the wall clock only to name the seed of the day.
//
//	go test ./test/sim                       20 fixed seeds, the seed of the day
//	go test ./test/sim -seed 7 -requests 500 one seed; prints what happened and the hash of the rings
package sim_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox"
	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/outlier"
	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/displacements"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/evictions"
	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/orderings"
	machine "github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/queues"
	"github.com/signalbox-epp/signalbox/engine/reclaim"
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
var limits = cycle.Limits{Queue: 2 * time.Second, Pick: time.Second, FirstToken: 3 * time.Second,
	ResponseIdle: 10 * time.Second, Logged: 5 * time.Second}

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

	picker   *signalbox.Picker
	pool     *endpoints.Published
	index    *blockindex.Index
	observed observer

	configurations uint64 // so many were made; the newest is in force

	announced int // sets of endpoints

	farm  *farm
	crowd *crowd
	other *others
}

// settings have a plugin of each family and every signal; the picker is drawn.
const settings = `apiVersion: llm-d.ai/v1
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
- type: no-hit-lru-scorer
- type: session-affinity-scorer
  parameters: {strategy: session_id, sessionIdConfig: {evictionTtlSeconds: 1000000000}}
- type: `

var pickers = []string{"max-score-picker", "random-picker", "weighted-random-picker"}

// newWorld brings the picker up that the command serves with, and the probes around it.
func newWorld(t testing.TB, seed uint64, requests int) *world {
	w := &world{TB: t, dice: rand.New(rand.NewPCG(seed, 99)), reg: prometheus.NewRegistry()}
	w.blocks, w.longest = fewBlocks, 20
	if w.dice.IntN(2) == 0 {
		w.blocks, w.longest = manyBlocks, 150
	}
	w.ledger = newLedger()
	w.faults, w.farm = newFaults(w.dice, w.ledger), newFarm(w)
	picker, err := signalbox.New(w.settings(seed), signalbox.World{
		Metrics: w.reg, Fetcher: w.farm, Checker: coin{w}, Announcer: proxies{w},
		Report: w.ledger.reported, Status: func(messages.Reason) int { return 0 }, Panicked: w.onPanic,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.picker, w.sys, w.pool, w.index = picker, picker.System(), picker.Pool(), picker.Prefixes()
	w.model = newModel(w.pool, w.blocks)
	w.spawnProbes(requests)
	return w
}

// plan is that of the next configuration. Its profile has the configuration's number in its name, so that records show
// by which plan a request was scheduled.
func (w *world) plan() (*schedule.Plan, *flow.Settings) {
	cfg, err := config.Load([]byte(settings+pickers[w.dice.IntN(len(pickers))]),
		config.Settings{Destinations: 3, Stale: 2 * time.Second})
	if err != nil {
		w.Fatal(err)
	}
	w.configurations++
	plan := w.faults.plan(cfg.Plan)
	plan.Profiles()[0].Name = profileOf(w.configurations)
	var queueing *flow.Settings
	if w.dice.IntN(3) == 0 {
		g := &gate{w, 6 + w.dice.IntN(12), w.dice.IntN(2) == 0}
		if plan.HaveWait(g, schedule.Step{Name: "gate"}); g.learned {
			plan.HaveWait(priced{g}, schedule.Step{Name: "gate"})
		}
		queueing = w.queueing()
	}
	plan.Observe(&w.observed)
	return plan, queueing
}

// queueing is how requests wait for room: few, in turn, by tokens or programs, and not for long.
func (w *world) queueing() *flow.Settings {
	p := flow.Policies{
		Ordering: new(orderings.EDF), Queue: new(queues.MaxMinHeap), Fairness: new(fairness.RoundRobin),
		Displacement: new(displacements.LongestFlow),
	}
	if w.dice.IntN(3) == 0 {
		p.Displacement = new(displacements.NewestRequest)
	}
	switch w.dice.IntN(4) {
	case 0:
		p.Fairness = &fairness.Token{LocalityTokens: 2000}
	case 1:
		p.Fairness = fairness.Types["program-aware-fairness"]()
	}
	builtIn := p
	if round, ok := p.Fairness.(*fairness.RoundRobin); ok {
		p.Fairness = &fair{round, w}
	}
	p.Ordering = &ordering{p.Ordering, w}
	band := flow.BandSettings{Limits: flow.Limits{Requests: 40}, Policies: p, TTL: limits.Queue}
	return &flow.Settings{
		Limits: flow.Limits{Requests: 56}, Default: band, Negative: band, BuiltIn: builtIn, Without: limits.Queue / 2,
		UsageLimit: &ceilings{w},
		Evictions:  []reclaim.Policy{{Eviction: new(evictions.Sheddable)}, {Eviction: new(evictions.PriorityThenTime)}},
		Settles:    10 * time.Millisecond,
	}
}

// gate has room for so many requests at each endpoint, and for all once the faults have ended.
type gate struct {
	*world
	most    int
	learned bool // the window of each endpoint says how many
}

// priced is a gate that leaves full endpoints to the scorers: requests wait for the one that is picked.
type priced struct{ *gate }

func (priced) Exclude(*schedule.Input, []bool) {}

func (*gate) Saturation(*schedule.Input) float64 { return 0 }
func (g *gate) Bounds(ceiling float64) endpoints.Room {
	switch {
	case g.faults.off:
		return endpoints.Room{}
	case g.learned:
		return endpoints.Room{Learned: true, Share: ceiling}
	}
	return endpoints.Room{Requests: endpoints.Part(g.most, ceiling)}
}

func (g *gate) Room(in *schedule.Input, keep []bool) {
	for i := range keep {
		e := g.pool.Snapshot().ByID(in.Candidates().At(i).ID())
		most := endpoints.Part(g.most, in.Ceiling())
		if g.learned && e != nil {
			if window, _ := e.Window(); window.Requests > 0 {
				most = window.Part(in.Ceiling()).Requests
			}
		}
		keep[i] = e == nil || e.Inflight() < most || g.faults.off
	}
	if g.faults.slip("gate", in.Request()) != "" {
		panic(fault{"gate"})
	}
}

func profileOf(configuration uint64) string { return "of " + strconv.FormatUint(configuration, 10) }

// scraping is what a configuration asks of scrapers.
var scraping = messages.Scraping{Metrics: true, Models: "lists", ModelsEvery: 5 * time.Second}

func (w *world) settings(seed uint64) signalbox.Config {
	plan, queueing := w.plan()
	return signalbox.Config{
		Runtime: runtime.Config{
			Mode: runtime.Stepped, Loops: loops, Seed: seed, HighWater: highWater, Shuffle: true, Start: start,
			Intercept: intercept{w},
		},
		Plan: plan, Queueing: queueing,
		Limits: limits,
		Scraper: scraper.Config{
			Scraping: scraping,
			Timeout:  time.Second,
		},
		Outlier: outlier.Config{
			MaxEjectionPercent: 50, Config: machine.Config{FirstEjection: time.Second,
				LongestEjection: 4 * time.Second},
		},
		Records:  signalbox.Records{Entries: 256 * loops, Bytes: loops << 20},
		PoolName: "pool", PrefixBlocks: w.blocks,
	}
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

// mute is the address of capacity for cycles, which loses an answer to a turn now and then, and counts what it refuses.
type mute struct {
	messages.Sink[messages.CapacityMsg]
	faults *faults
}

func (d mute) Tell(m messages.CapacityMsg) bool {
	if _, ended := m.(messages.WaitEnded); ended && !d.faults.off && d.faults.dice.IntN(4) == 0 {
		d.faults.drew(turnLost)
		return true
	}
	ok := d.Sink.Tell(m)
	if _, asked := m.(messages.WaitRequested); asked && !ok {
		d.faults.drew(inboxLine)
	}
	return ok
}

// probe brings up an actor of the test, which never ends by itself.
func probe[M any](w *world, on int, name string, first M, one runtime.Actor[M]) runtime.Ref[M] {
	role := runtime.Role[M]{Name: name, Policy: runtime.RestartOnPanic, New: func() runtime.Actor[M] { return one }}
	ref, ok := runtime.Start(w.sys.Root(on), role, first)
	if !ok {
		w.Fatalf("%s was refused", name)
	}
	return ref
}

func (w *world) spawnProbes(requests int) {
	w.farm.ref = probe[farmMsg](w, 1, "farm", farmOpened{}, w.farm)
	w.crowd = &crowd{world: w, left: requests}
	probe[crowdMsg](w, 0, "crowd", clientsDue{}, w.crowd)
	w.other = newOthers(w)
	probe[othersMsg](w, 2, "others", othersCame{}, w.other)
}

// onPanic tells the panics that the test drew from all others.
func (w *world) onPanic(p runtime.Panic, _ []string) {
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
func (o *observer) PluginDecided(int, int)       {}
func (o *observer) ScoreClamped(int)             { o.clamped++ }
func (o *observer) ScoreNaN(int)                 { o.nan++ }
func (o *observer) AllStale()                    {}

func (o *observer) RunFailed(string, messages.Reason) {}
func (*observer) ShadowPicked(string, bool)           {}
