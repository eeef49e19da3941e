package app

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox"
	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/outlier"
	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/adapters/accesslog"
	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/adapters/peers"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/adapters/xds"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	machine "github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// tree is the picker and the adapters around it; a server answers on its ports. What the command tree prints is
// supervision, the tree of the picker's actors.
type tree struct {
	randomNumbers
	modelServers
	handlers
	opts          *options
	log           *telemetry.Log
	registry      *prometheus.Registry
	picker        *signalbox.Picker
	source        endpointSource // nil before it is followed
	peers         *peers.Table
	xds           *xds.Server // nil without --xds-port
	configuration *inForce    // nil before there is a picker
	lifecycle
}

// lifecycle is what readiness goes by, beside the configuration.
type lifecycle struct {
	known     func() error  // what is not known yet of the endpoints; nil = readiness, once reached, is not lost
	concern   func() string // what is wrong with where they come from, while the last known ones serve; nil = nothing
	firstLook firstLook
	draining  atomic.Bool
	health    *readiness // what tells it; nil before a port answers
	election  candidate  // nil = all pickers serve at once
}

// candidate claims the lease of the leader.
type candidate interface {
	// Leads returns nil while this process leads, else which one does.
	Leads() error
	// Close gives the lease up, and tells when that has ended. It may be called again.
	Close() (ended <-chan struct{})
}

// randomNumbers are drawn at the start.
type randomNumbers struct {
	instance uint64 // stands in request ids, which clients see
	seed     uint64 // seeds hashes, which clients must not see
}

// modelServers ask the model servers, on behalf of the actors, which need both until the last of them has ended.
type modelServers struct {
	fetcher *modelserver.Fetcher
	checker *modelserver.Checker
}

// handlers answer on our ports, out of the picker: there is none before it.
type handlers struct {
	streams *extproc.Server
	logs    *accesslog.Server
	admin   http.Handler
	reviews func(*http.Request) admin.Access // of tokens, on the metrics port; nil = Kubernetes is not asked
}

const (
	recordEntries = 4096     // of ended requests, in all loops together
	recordBytes   = 16 << 20 // likewise

	// An endpoint that recovers is tried again after the longest ejection, within ten seconds.
	firstEjection   = 2 * time.Second
	longestEjection = 8 * time.Second
)

// buildTree makes what the picker needs, the picker, and then what tells it things.
func buildTree(ctx context.Context, o *options, cfg *loaded, log *telemetry.Log, picker netip.AddrPort) (*tree,
	error) {
	t := &tree{opts: o, log: log, randomNumbers: randomNumbers{rand.Uint64(), rand.Uint64()},
		registry: prometheus.NewRegistry()}
	t.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	t.peers = peers.NewTable(peers.Deps{
		Doubted: func(c messages.ConnectionID) { t.picker.ConnectionDoubted(c) }, // there is no picker yet
		Log:     log.Logger,
	})
	if err := t.announceByXds(picker); err != nil {
		return nil, errors.Join(err, t.close(ctx))
	}
	if err := t.assemble(cfg); err != nil {
		return nil, errors.Join(err, t.close(ctx))
	}
	t.registry.MustRegister(append(telemetry.BuildInfo(built()), log.Sink.Metric())...)
	sys := t.picker.System()
	t.registry.MustRegister(telemetry.NewCollector(sys, t.picker.Pool(), o.poolName, o.staleness),
		telemetry.PoolInfo(o.poolName, o.namespace()))
	t.serveStreams()
	t.serveLogs()
	t.serveAdmin()
	return t, nil
}

// assemble puts the picker together from the flags, the configuration and the adapters that it needs.
func (t *tree) assemble(cfg *loaded) (err error) {
	pages := pagesOf(cfg.Config, wanted(cfg.Config))
	if t.fetcher, err = modelserver.NewFetcher(modelserver.Config{Pages: pages}); err != nil {
		return err
	}
	t.checker = modelserver.NewChecker()
	plugins := telemetry.NewPlugins(t.registry, t.log.Logger,
		func() *endpoints.Snapshot { return t.picker.Pool().Snapshot() })
	plugins.Observe(cfg.Plan)
	if t.picker, err = signalbox.New(t.values(cfg), t.world()); err != nil {
		return err
	}
	t.configuration = newInForce(t, plugins, cfg)
	return nil
}

// values are those of the flags and of the configuration.
func (t *tree) values(cfg *loaded) signalbox.Config {
	o := t.opts
	return signalbox.Config{
		Runtime: runtime.Config{Loops: o.shards, Seed: rand.Uint64()},
		Plan:    cfg.Plan, Queueing: cfg.Queueing,
		Limits: cycle.Limits{
			Queue: timeLimit(o.queueTimeout), Pick: timeLimit(o.pickTimeout), FirstToken: timeLimit(o.firstToken),
			ResponseIdle: timeLimit(o.idleTimeout),
			Logged:       max(timeLimit(o.logTimeout), firstEntryFor),
		},
		Scraper: scraper.Config{Scraping: o.scraping(cfg.Config)},
		Outlier: outlier.Config{
			MaxEjectionPercent: o.maxEjection,
			Config:             machine.Config{FirstEjection: firstEjection, LongestEjection: longestEjection},
		},
		Records: signalbox.Records{Entries: recordEntries, Bytes: recordBytes}, PoolName: o.poolName,
		EmitScores: o.emitScores, FlowLabels: o.flowLabels,
	}
}

// world returns the interfaces through which the picker reaches the outside.
func (t *tree) world() signalbox.World {
	requests := telemetry.NewRequests(t.log,
		func(id messages.EndpointID) messages.Address { return t.picker.Pool().Address(id) }, t.formatID)
	w := signalbox.World{
		Metrics: t.registry, ID: t.formatID, Fetcher: t.fetcher, Checker: t.checker,
		Report: requests.Report, Status: extproc.Status, Turned: t.turned, Panicked: t.onPanic, Release: t.release,
		PolicyPanicked: t.onPolicyPanic,
	}
	if t.xds != nil { // a nil *xds.Server would be an announcer
		w.Announcer, w.Hangs = t.xds, t.hangs
	}
	return w
}

func (t *tree) onPanic(p runtime.Panic, did []string) {
	t.log.Error("an actor panicked", zap.String("actor", p.Actor), zap.Uint64("id", p.ID),
		zap.String("message", p.Message),
		zap.Any("panic", p.Value), zap.ByteString("actor_stack", p.Stack), zap.Strings("loop_did_last", did))
}

// onPolicyPanic logs a panic that was caught, with how often the policy has panicked.
func (t *tree) onPolicyPanic(p flow.Panic) {
	t.log.Error("a policy panicked", zap.String("policy", p.Policy), zap.String("plugin_type", p.Type),
		zap.Any("panic", p.Value), zap.Uint64("times", p.Times), zap.ByteString("policy_stack", p.Stack))
}

func (t *tree) formatID(id messages.RequestID) string { return extproc.FormatID(t.instance, id) }

// close ends what tells the picker things, and then the picker.
func (t *tree) close(ctx context.Context) error {
	if t.configuration != nil {
		t.configuration.close()
	}
	gaveUp := t.giveUpLease()
	if t.source != nil {
		t.source.Close()
	}
	within(giveUpWithin, gaveUp)
	if t.picker == nil {
		t.release()
		return nil
	}
	return t.picker.Close(ctx)
}

// release closes what the picker's actors needed.
func (t *tree) release() {
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
}

// giveUpWithin is how long a shutdown waits at its end for the lease to be given up.
const giveUpWithin = 2 * time.Second

// giveUpLease has another process lead, without waiting for that. It may be called again.
func (t *tree) giveUpLease() (done <-chan struct{}) {
	if t.election == nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return t.election.Close()
}
