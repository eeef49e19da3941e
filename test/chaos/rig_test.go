// Package chaos runs the picker that the command serves with, behind its stream server and real gRPC connections in
// this process, and has thousands of clients misbehave towards it while actors, plugins, connections and scrapes fail.
// What each client does and what goes wrong for it follows from the seed; what the scheduler makes of it does not. It
// never starts an Envoy or the binary.
//
//	go test ./test/chaos                             one fixed seed
//	go test ./test/chaos -seed 7 -requests 1000000   one seed; prints what happened
//
// README.md says what must come, what may be left, and what a million requests came to.
package chaos

import (
	"context"
	"math/rand/v2"
	"net"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/signalbox-epp/signalbox"
	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/outlier"
	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/adapters/accesslog"
	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	machine "github.com/signalbox-epp/signalbox/engine/outlier"
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
	Queue: time.Second, Pick: 500 * time.Millisecond, FirstToken: 300 * time.Millisecond,
	ResponseIdle: 600 * time.Millisecond, Logged: 400 * time.Millisecond,
}

// rig is the picker that the command serves with, its stream server, and faults between their parts.
type rig struct {
	testing.TB
	faults   *faults
	ledger   *ledger
	registry *prometheus.Registry
	farm     *farm
	picker   *signalbox.Picker
	plugins  *telemetry.Plugins
	inForce  atomic.Pointer[extproc.Configuration]
	logs     *accesslog.Server

	streams *extproc.Server
	grpc    *grpc.Server
	at      string
	ended   chan struct{} // closed once the server serves no more
}

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
- type: max-score-picker`

// splitting is a configuration in which prompts may be read by servers of their own.
const splitting = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: prefill-filter
- type: decode-filter
- type: queue-scorer
- type: prefix-cache-scorer
- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 200}}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}}
schedulingProfiles:
- {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: prefix-cache-scorer}, {pluginRef: queue-scorer}]}
- {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: prefix-cache-scorer}, {pluginRef: queue-scorer}]}
`

// waiting is a configuration under which requests wait for room.
const waiting = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- type: decode-filter
- type: queue-scorer
- type: prefix-cache-scorer
- type: concurrency-detector
- type: token-fairness-policy
- type: edf-ordering-policy
flowControl:
  maxRequests: 64
  defaultRequestTTL: 400ms
  saturationDetector: {pluginRef: concurrency-detector}
  defaultPriorityBand: {fairnessPolicyRef: token-fairness-policy, orderingPolicyRef: edf-ordering-policy}
`

// startRig brings an EPP up whose bodies may take so long. If that is far longer than the test, a timer that is left
// keeps its stream.
func startRig(t testing.TB, seed uint64, requests int, bodyWait time.Duration) *rig {
	r := &rig{TB: t, faults: newFaults(seed), ledger: newLedger(requests), registry: prometheus.NewRegistry()}
	r.farm = &farm{faults: r.faults}
	r.plugins = telemetry.NewPlugins(r.registry, zap.NewNop(), nil)
	plan, _, err := r.plan(settings, 1)
	if err != nil {
		t.Fatal(err)
	}
	r.picker, err = signalbox.New(r.values(plan, seed), signalbox.World{
		Metrics: r.registry, Fetcher: r.farm, Checker: r.farm,
		Report: r.reported, Status: extproc.Status, Panicked: r.onPanic, Release: r.farm.rest.Wait,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.logs = accesslog.NewServer(accesslog.Deps{
		ParseID: func(s string) (messages.RequestID, bool) { return extproc.ParseID(instance, s) },
		Ended:   r.picker.Ended, Ongoing: r.picker.Ongoing, Silent: r.picker.LogStreamEnded,
		Metrics: accesslog.NewMetrics(r.registry),
	})
	r.serve(bodyWait)
	return r
}

// plan is that of a configuration, with how requests wait under it. Its profiles have the configuration's number in
// their names.
func (r *rig) plan(text string, number uint64) (*schedule.Plan, *flow.Settings, error) {
	cfg, err := config.Load([]byte(text), config.Settings{Destinations: 3, Stale: 2 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	plan := r.faults.plan(cfg.Plan)
	if cfg.Plan.Gated() {
		plan.HaveWait(room{r}, cfg.Plan.Detector())
	}
	for i := range plan.Profiles() {
		plan.Profiles()[i].Name += suffixOf(number)
	}
	r.plugins.Observe(plan)
	return plan, r.faults.policies(cfg.Queueing), nil
}

// room is the detector of waiting, for the plan with faults.
type room struct{ *rig }

const most = 2 // requests at a server, under a gate

func (room) Saturation(*schedule.Input) float64 { return 0 }
func (room) Bounds(ceiling float64) endpoints.Room {
	return endpoints.Room{Requests: endpoints.Part(most, ceiling)}
}

func (g room) Room(in *schedule.Input, keep []bool) {
	for i := range keep {
		e := g.picker.Pool().Snapshot().ByID(in.Candidates().At(i).ID())
		keep[i] = e != nil && e.Inflight() < most
	}
}

func suffixOf(configuration uint64) string { return " of " + strconv.FormatUint(configuration, 10) }

// reported checks that a request was scheduled by the plan of the configuration that it came under.
func (r *rig) reported(of *messages.Record) {
	for _, run := range of.Decision.Profiles.All() {
		if !strings.HasSuffix(run.Profile, suffixOf(of.Configuration)) {
			r.Errorf("a request that came under configuration %d ran profile %q", of.Configuration, run.Profile)
		}
	}
}

var scraping = messages.Scraping{
	Metrics: true, Models: "lists", Interval: 50 * time.Millisecond, ModelsEvery: 200 * time.Millisecond,
}

// reload brings another configuration into force, in the order of the command, or tries to with a bad one.
func (r *rig) reload(dice *rand.Rand) {
	text, number, changed := settings, r.inForce.Load().Number+1, scraping
	switch dice.IntN(4) {
	case 0:
		text = splitting
	case 1:
		text = waiting
	}
	if dice.IntN(5) == 0 {
		text = strings.Replace(text, "-filter", "-filter-of-no-type", 1)
	}
	plan, queueing, err := r.plan(text, number)
	if err != nil {
		r.faults.met("bad configuration")
		return
	}
	if changed.Anew = dice.IntN(2) == 0; queueing != nil {
		r.faults.met("configuration with a gate")
	}
	picks := r.picker.Prepare(number, plan, queueing, changed)
	r.picker.Bring(picks)
	r.inForce.Store(r.under(number, picks))
	r.faults.met("configuration replaced")
}

// under is what streams take from a configuration.
func (r *rig) under(number uint64, picks *signalbox.Configuration) *extproc.Configuration {
	return &extproc.Configuration{
		Number: number, Parser: poisoned{parsers.New(parsers.Config{Seed: 1}), r.faults},
		Start: func(first messages.RequestArrived) (messages.Port[messages.CycleMsg], bool) {
			if first.Configuration != number {
				r.Errorf("a request of configuration %d began under %d", first.Configuration, number)
			}
			return r.start(picks, first)
		},
		Scan: func(api messages.API, contentType string) extproc.Scanner {
			return parsers.NewResponseScanner(api, contentType)
		},
	}
}

func (r *rig) values(plan *schedule.Plan, seed uint64) signalbox.Config {
	return signalbox.Config{
		Runtime: runtime.Config{Loops: loops, Seed: seed, HighWater: highWater, Intercept: intercept{r}},
		Plan:    plan,
		Limits:  limits,
		Scraper: scraper.Config{Scraping: scraping, Timeout: 100 * time.Millisecond},
		Outlier: outlier.Config{MaxEjectionPercent: 50, Config: machine.Config{
			FirstEjection: 20 * time.Millisecond, LongestEjection: 100 * time.Millisecond,
		}},
		Records:  signalbox.Records{Entries: 256 * loops, Bytes: loops << 20},
		PoolName: "pool", PrefixBlocks: blocks,
	}
}

func (r *rig) onPanic(p runtime.Panic, _ []string) {
	if _, drawn := p.Value.(fault); !drawn {
		r.Errorf("%s panicked at %s: %v\n%s", p.Actor, p.Message, p.Value, p.Stack)
	}
}

// serve makes a server as the command does: windows, codec and all.
func (r *rig) serve(bodyWait time.Duration) {
	r.inForce.Store(r.under(1, r.picker.InForce()))
	r.streams = extproc.NewServer(extproc.Config{
		Instance: instance, MaxBodyBytes: bodyLimit, MaxHeldBytes: heldLimit, BodyTimeout: bodyWait,
		WaitOtherModes: time.Minute,
		AnswerWithin:   limits.Queue + limits.Pick, ResponseIdle: limits.ResponseIdle, WholeRequest: time.Hour,
		Metrics: extproc.NewMetrics(r.registry),
	}, extproc.Deps{
		InForce: r.inForce.Load,
		Refused: r.picker.Refused, Now: r.picker.System().Now,
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
	r.grpc = grpc.NewServer(append(wire.ServerOptions(), grpc.MaxRecvMsgSize(bodyLimit+1<<20),
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(16<<20), grpc.NumStreamWorkers(64))...)
	wire.Register(r.grpc, tracked{r.streams, r.ledger})
	accesslogv3.RegisterAccessLogServiceServer(r.grpc, r.logs)
	go func() {
		defer close(r.ended)
		_ = r.grpc.Serve(listener) // it ends with Stop
	}()
}

// start spawns a cycle, and follows what its stream is told.
func (r *rig) start(
	picks *signalbox.Configuration, first messages.RequestArrived,
) (messages.Port[messages.CycleMsg], bool) {
	if n, ok := numberOf(first.Request.ClientID); ok {
		first.Stream = overheard{first.Stream, r.ledger.line(n)}
	}
	port, ok := picks.Start(first)
	if !ok {
		r.faults.met("inbox full")
	}
	return port, ok
}

// close ends everything, in the order of the command.
func (r *rig) close() {
	r.logs.Close()
	r.grpc.Stop()
	<-r.ended
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.picker.Close(ctx); err != nil {
		r.Error(err)
	}
}

// liveHeap is what the last collection left.
func liveHeap() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
