package app

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/adapters/accesslog"
	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/adapters/discovery"
	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/adapters/peers"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// newFetcher makes what reads model servers' pages. What no plugin reads is not scraped. The prefix index must hear of restarts,
// which only metrics pages tell, though it needs no load.
func newFetcher(cfg *config.Config) (*modelserver.Fetcher, error) {
	reads := cfg.Plan.Reads()
	return modelserver.NewFetcher(modelserver.Config{
		Want:    modelserver.Wanted{Load: reads&schedule.ReadsSample != 0, LoRA: reads&schedule.ReadsLoRA != 0},
		Metrics: page(cfg.Metrics), Models: page(cfg.Models), EngineLabels: cfg.EngineLabelKeys,
	})
}

// notScraped says why no metrics page is read; "" = they are read.
func notScraped(cfg *config.Config) string {
	switch {
	case cfg.Plan.Reads() == 0:
		return "no plugin reads samples"
	case !cfg.Metrics.Enabled:
		return "dataLayer.injectDefaults is false, and dataLayer.sources names no metrics-data-source"
	}
	return ""
}

func page(s config.Source) modelserver.Page {
	return modelserver.Page{Scheme: s.Scheme, Path: s.Path, Port: s.Port, AnyCertificate: s.InsecureSkipVerify}
}

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
		Start: t.picker.Start, Refused: t.picker.Refused, Parser: parser, Now: t.picker.System().Now, Connection: connectionOf,
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
		Ended:   t.picker.Ended, Ongoing: t.picker.Ongoing, Silent: t.picker.LogStreamEnded, Metrics: accesslog.NewMetrics(t.registry),
		Opened: func(ctx context.Context) accesslog.Proxy {
			if l := t.peers.Opened(ctx); l != nil {
				return l
			}
			return nil
		},
	})
}

// proxyViews are the connected proxies as /debug/proxies shows them.
func (t *tree) proxyViews() []admin.ProxyView {
	known := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	var out []admin.ProxyView
	for _, v := range t.peers.Views() {
		out = append(out, admin.ProxyView{
			From: v.From, Node: known(v.Node), Version: known(v.Version), Lane: known(v.Lane()), Connections: v.Connections,
			Light: v.Light, Full: v.Full, AccessLog: v.AccessLog, XDS: v.XDS, SinceSeconds: time.Since(v.Since).Seconds(),
		})
	}
	return out
}

// connectionOf is the connection that a stream came on.
func connectionOf(ctx context.Context) extproc.Connection {
	if c := peers.Of(ctx); c != nil {
		return c
	}
	return nil
}

// noParser leaves every body unread: the configuration says so.
type noParser struct{}

func (noParser) Parse(string, string, string, []byte, *messages.Request) error { return nil }

// serveAdmin makes the metrics port's side.
func (t *tree) serveAdmin(c *config.Config) {
	t.admin = admin.NewHandler(admin.Config{
		Gatherer: t.registry, Recorder: t.picker.Recorder(), FormatID: t.formatID,
		ParseID: func(s string) (messages.RequestID, bool) { return extproc.ParseID(t.instance, s) },
		Address: t.picker.Pool().Address, Incarnations: t.picker.Pool().Incarnations,
		MessageName: func(k uint16) string { return t.picker.System().KindName(runtime.Kind(k)) }, ActorName: t.picker.System().ActorName,
		Ready: t.ready, Endpoints: t.endpointViews, Proxies: t.proxyViews, NotScraped: notScraped(c), OpenDebug: t.opts.openDebug, Profiles: t.opts.pprof, Now: t.picker.System().Now,
		Configuration: func() string { return describe(c) },
	})
}

// openEndpoints reads the file of endpoints, which must be good at the start. Once a tree follows it, a bad one changes nothing.
func openEndpoints(o *options, cfg *config.Config, log *telemetry.Log) (*discovery.File, error) {
	told := endpointsLog{log: log.Logger, say: o.hooks.say}
	file, err := discovery.Open(discovery.Config{
		Path: cfg.Discovery.Path, Fixed: !cfg.Discovery.Watch, Problem: told.problem, Told: told.change,
		Doubles: func(p discovery.Problems) { log.Warn("endpoints: entries stand twice", zap.Stringers("entries", p)) },
	})
	if err != nil {
		return nil, fmt.Errorf("endpoints file %s:\n%w", cfg.Discovery.Path, err)
	}
	return file, nil
}

const namedEndpoints = 20 // in one line of the log

// endpointsLog logs what becomes of the file of endpoints.
type endpointsLog struct {
	log *zap.Logger
	say func(format string, args ...any) // says that all is well in place of the log; nil = the log says it
}

// problem hears what is wrong with the endpoints file or its host names; nil = nothing any more.
func (l endpointsLog) problem(err error) {
	if err != nil {
		l.log.Warn("endpoints: a problem", zap.String("problem", err.Error()))
		return
	}
	const well = "endpoints: all is well again"
	if l.say != nil {
		l.say(well)
		return
	}
	l.log.Info(well)
}

func (l endpointsLog) change(c discovery.Change) {
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
		l.log.Warn("endpoints: there are none, every request is refused with 503", fields...)
		return
	}
	l.log.Info("endpoints changed", fields...)
}
