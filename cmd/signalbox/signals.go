package main

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/actors/outlier"
	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/adapters/accesslog"
	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/adapters/discovery"
	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/adapters/peers"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	machine "github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// scrapers makes the function by which the pool spawns its scrapers. What no plugin reads is not scraped. The prefix index
// must hear of restarts, which only metrics pages tell, though it needs no load.
func (t *tree) scrapers(cfg *config.Config, served func(models ...string)) (spawnScraper, error) {
	want := modelserver.Wanted{Load: cfg.Reads&schedule.ReadsSample != 0, LoRA: cfg.Reads&schedule.ReadsLoRA != 0}
	fetcher, err := modelserver.NewFetcher(modelserver.Config{
		Want: want, Metrics: page(cfg.Metrics), Models: page(cfg.Models), EngineLabels: cfg.EngineLabelKeys,
	})
	if err != nil {
		return nil, err
	}
	t.fetcher = fetcher
	metrics, err := scraper.NewMetrics(t.registry)
	if err != nil {
		return nil, err
	}
	interval := t.opts.refresh
	if cfg.Metrics.Interval > 0 {
		interval = cfg.Metrics.Interval
	}
	settings := scraper.Config{
		Metrics: notScraped(cfg) == "", Models: cfg.Models.Enabled, Interval: interval, ModelsEvery: cfg.Models.Interval,
		Endpoints: func() int { return len(t.endpoint.Snapshot().Endpoints) }, Turned: t.turned, Served: served,
	}
	return func(self messages.Sink[messages.PoolMsg], e *endpoints.Endpoint, first messages.EndpointAssigned) (messages.Sink[messages.ScraperMsg], bool) {
		role := runtime.Role[messages.ScraperMsg]{
			Name: "scraper", Policy: runtime.RestartOnPanic,
			New: func() runtime.Actor[messages.ScraperMsg] {
				return scraper.New(settings, target{e, e.Load(), t.outlier}, fetcher, metrics)
			},
		}
		return runtime.Spawn(self.(runtime.Parent), role, messages.ScraperMsg(first))
	}, nil
}

// notScraped says why no metrics page is read; "" = they are read.
func notScraped(cfg *config.Config) string {
	switch {
	case cfg.Reads == 0:
		return "no plugin reads samples"
	case !cfg.Metrics.Enabled:
		return "dataLayer.injectDefaults is false, and dataLayer.sources names no metrics-data-source"
	}
	return ""
}

func page(s config.Source) modelserver.Page {
	return modelserver.Page{Scheme: s.Scheme, Path: s.Path, Port: s.Port, AnyCertificate: s.InsecureSkipVerify}
}

type spawnScraper = func(messages.Sink[messages.PoolMsg], *endpoints.Endpoint, messages.EndpointAssigned) (messages.Sink[messages.ScraperMsg], bool)

func (t *tree) turned(of messages.EndpointSpec, failure string) {
	if t.opts.hooks.servers {
		return
	}
	if failure == "" {
		t.log.Info("metrics are back", zap.String("endpoint", string(of.Address)))
		return
	}
	t.log.Warn("metrics cannot be read", zap.String("endpoint", string(of.Address)), zap.String("failure", failure))
}

// target is an endpoint as its scraper sees it.
type target struct {
	*endpoints.Endpoint
	load    *endpoints.Load
	outlier messages.Sink[messages.OutlierMsg]
}

func (t target) BeginScrape() uint32 { return t.load.BeginScrape() }
func (t target) Inflight() int       { return t.load.Inflight() }

func (t target) SampleInForce(number uint32) {
	t.load.SampleInForce(number)
	t.Failing.Store(false)
}

func (t target) ScrapeFailed(number uint32) {
	t.Failing.Store(true)
	t.outlier.Tell(messages.FailureReported{Endpoint: t.ID, Kind: messages.ScrapeFailed})
}

// serveStreams makes the ext_proc side.
func (t *tree) serveStreams(cfg *config.Config) {
	var parser extproc.Parser = noParser{}
	if cfg.ParseOpenAI {
		parser = parsers.NewOpenAI(parsers.Config{Seed: t.seed, MaxDecodedBytes: int(t.opts.maxBody)})
	}
	t.streams = extproc.NewServer(extproc.Config{
		Instance: t.instance, MaxBodyBytes: t.opts.maxBody, MaxHeldBytes: t.opts.maxHeld, BodyTimeout: limit(t.opts.bodyTimeout),
		AnswerWithin: limit(t.opts.queueTimeout) + limit(t.opts.pickTimeout), ResponseIdle: limit(t.opts.idleTimeout), WholeRequest: limit(t.opts.requestTimeout),
		Metrics: extproc.NewMetrics(t.registry),
	}, extproc.Deps{
		Start: t.startCycle, Refused: t.noteRefused, Parser: parser, Now: t.sys.Now, Connection: connectionOf,
		Scan: func(contentType string) extproc.Scanner { return parsers.NewResponseScanner(contentType) },
		Panicked: func(value any, stack []byte) {
			t.log.Error("a stream panicked", zap.Any("panic", value), zap.ByteString("stream_stack", stack))
		},
	})
	t.registry.MustRegister(extproc.HeldMetrics(t.streams)...)
}

// serveLogs makes the access log's side.
func (t *tree) serveLogs() {
	t.logs = accesslog.NewServer(accesslog.Deps{
		ParseID: func(s string) (messages.RequestID, bool) { return extproc.ParseID(t.instance, s) },
		Ended:   t.noteLogged, Ongoing: t.noteOngoing, Silent: t.noteSilence, Metrics: accesslog.NewMetrics(t.registry),
		Opened: func(ctx context.Context) accesslog.Proxy {
			if l := t.peers.Opened(ctx); l != nil {
				return l
			}
			return nil
		},
	})
}

// connectionOf is the connection that a stream came on.
func connectionOf(ctx context.Context) extproc.Connection {
	if c := peers.Of(ctx); c != nil {
		return c
	}
	return nil
}

// noteDoubt tells every shard that requests of a connection may never be told of.
func (t *tree) noteDoubt(of messages.ConnectionID) {
	for _, s := range t.shards {
		s.Port().Post(messages.ConnectionDoubted{Connection: of})
	}
}

// noteLogged tells the shard of a request's loop that the request has ended.
func (t *tree) noteLogged(m messages.ExchangeLogged) {
	t.shards[uint64(m.Request)%uint64(len(t.shards))].Port().Post(m)
}

// noteOngoing tells the shard of a request's loop how far the request is.
func (t *tree) noteOngoing(m messages.ExchangeOngoing) {
	t.shards[uint64(m.Request)%uint64(len(t.shards))].Port().Post(m)
}

// noteSilence tells every shard that a proxy's access log ended.
func (t *tree) noteSilence() {
	for _, s := range t.shards {
		s.Port().Post(messages.LogStreamEnded{})
	}
}

// noParser leaves every body unread: the configuration says so.
type noParser struct{}

func (noParser) Parse(string, string, string, []byte, *messages.Request) error { return nil }

// serveAdmin makes the metrics port's side.
func (t *tree) serveAdmin(c *config.Config) {
	t.admin = admin.NewHandler(admin.Config{
		Gatherer: t.registry, Recorder: t.recorder.Port(), FormatID: t.formatID,
		ParseID: func(s string) (messages.RequestID, bool) { return extproc.ParseID(t.instance, s) },
		Address: t.endpoint.Address, Incarnations: t.endpoint.Incarnations,
		MessageName: func(k uint16) string { return t.sys.KindName(runtime.Kind(k)) }, ActorName: t.sys.ActorName,
		Ready: t.ready, Endpoints: t.endpointViews, NotScraped: notScraped(c), OpenDebug: t.opts.openDebug, Profiles: t.opts.pprof, Now: t.sys.Now,
		Configuration: func() string { return describe(c) },
	})
}

// spawnOutlier spawns the actor that ejects endpoints, and what connects to them for it.
func (t *tree) spawnOutlier() {
	t.checker = modelserver.NewChecker()
	settings := outlier.Config{MaxEjectionPercent: t.opts.maxEjection, Config: machine.Config{FirstEjection: firstEjection, LongestEjection: longestEjection}}
	metrics := outlier.NewMetrics(t.registry)
	t.outlier, _ = runtime.Start(t.sys.Root(0), runtime.Role[messages.OutlierMsg]{
		Name: "outlier", Policy: runtime.RestartOnPanic,
		New: func() runtime.Actor[messages.OutlierMsg] {
			return outlier.New(settings, t.endpoint, t.checker, metrics)
		},
	}, messages.OutlierMsg(messages.OutlierStarted{}))
}

// readable says what is wrong with the endpoints file before anybody follows it.
func readable(cfg *config.Config) error {
	file, err := discovery.Open(discovery.Config{Path: cfg.Discovery.Path}, nil)
	if err != nil {
		return fmt.Errorf("endpoints file %s:\n%w", cfg.Discovery.Path, err)
	}
	file.Close()
	return nil
}

const namedEndpoints = 20 // in one line of the log

// endpointsProblem hears what is wrong with the endpoints file or its host names; nil = nothing any more.
func (t *tree) endpointsProblem(err error) {
	if err != nil {
		t.log.Warn("endpoints: a problem", zap.String("problem", err.Error()))
		return
	}
	t.log.Info("endpoints: all is well again")
}

func (t *tree) endpointsTold(c discovery.Change) {
	fields := []zap.Field{zap.Int("endpoints", c.Endpoints)}
	for _, part := range []struct {
		key   string
		names []string
	}{{"added", c.Added}, {"removed", c.Removed}} {
		if n := len(part.names); n > namedEndpoints {
			part.names = append(part.names[:namedEndpoints:namedEndpoints], fmt.Sprintf("and %d more", n-namedEndpoints))
		}
		if len(part.names) > 0 {
			fields = append(fields, zap.Strings(part.key, part.names))
		}
	}
	if c.Endpoints == 0 {
		t.log.Warn("endpoints: there are none, every request is refused with 503", fields...)
		return
	}
	t.log.Info("endpoints changed", fields...)
}
