package app

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/adapters/discovery"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/messages"
)

// endpointSource tells the pool which endpoints there are.
type endpointSource interface {
	Run(ctx context.Context, pool messages.Port[messages.PoolMsg])
	Close()
}

// cluster is a source of endpoints that is Kubernetes, which has more to tell.
type cluster interface {
	endpointSource
	join(ctx context.Context, t *tree)
}

// openEndpoints opens the source of endpoints: a file if the configuration or --endpoints names one, else pods.
func openEndpoints(o *options, cfg *loaded, log *telemetry.Log) (endpointSource, error) {
	if cfg.Discovery.Path == "" {
		return o.openPods(log)
	}
	return openFile(o, cfg, log)
}

// openFile reads the file of endpoints, which must be good at the start. Once a tree follows it, a bad file changes
// nothing.
func openFile(o *options, cfg *loaded, log *telemetry.Log) (*discovery.File, error) {
	told := endpointsLog{log: log.Logger, say: o.hooks.say}
	file, err := discovery.Open(discovery.Config{
		Path: cfg.Discovery.Path, Text: o.endpointsText, Fixed: !cfg.Discovery.Watch,
		Problem: told.problem, Told: told.change,
		Warnings: func(p discovery.Warnings) { log.Warn("endpoints: doubtful entries", zap.Stringers("entries", p)) },
	})
	if err != nil {
		return nil, fmt.Errorf("endpoints file %s:\n%w", cfg.Discovery.Path, err)
	}
	return file, nil
}

// namedEndpoints is how many endpoints one line of the log names at most.
const namedEndpoints = 20

// endpointsLog logs what becomes of the file of endpoints.
type endpointsLog struct {
	log *zap.Logger
	say func(format string, args ...any) // takes the line that all is well in place of the log; nil = the log does
}

// problem logs what is wrong with the endpoints file or its host names; nil = nothing is wrong any more.
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
			part.names = append(part.names[:namedEndpoints:namedEndpoints],
				fmt.Sprintf("and %d more", n-namedEndpoints))
		}
		if len(part.names) > 0 {
			fields = append(fields, zap.Strings(part.key, part.names))
		}
	}
	if c.Endpoints == 0 {
		l.log.Warn("endpoints: there are none; requests wait as long as flow control lets them, and get 503 then, or "+
			"at once without it", fields...)
		return
	}
	l.log.Info("endpoints changed", fields...)
}

// follow tells the picker the endpoints of a source, until the tree is closed.
func (t *tree) follow(ctx context.Context, source endpointSource) {
	t.source = source
	switch from := source.(type) {
	case cluster:
		from.join(ctx, t)
	case *discovery.File:
		t.concern = from.Concern
		t.registry.MustRegister(from.Collectors()...)
	}
	go source.Run(context.WithoutCancel(ctx), t.picker.Discovery())
}

// awaitEndpoints waits a second at most for the first set, so that the first request finds the endpoints.
func (t *tree) awaitEndpoints(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for t.picker.Pool().Snapshot().Version == 0 {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}
