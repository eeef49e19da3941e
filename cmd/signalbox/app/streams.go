package app

import (
	"context"

	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/adapters/accesslog"
	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/adapters/peers"
	"github.com/signalbox-epp/signalbox/messages"
)

// serveStreams makes the ext_proc side.
func (t *tree) serveStreams() {
	t.streams = extproc.NewServer(extproc.Config{
		Instance: t.instance, MaxBodyBytes: t.opts.maxBody, MaxHeldBytes: t.opts.maxHeld,
		BodyTimeout:    timeLimit(t.opts.bodyTimeout),
		AnswerWithin:   timeLimit(t.opts.queueTimeout) + timeLimit(t.opts.pickTimeout),
		WaitOtherModes: timeLimit(t.opts.queueOtherModes),
		ResponseIdle:   timeLimit(t.opts.idleTimeout),
		WholeRequest:   timeLimit(t.opts.requestTimeout),
		WholePool:      t.opts.wholePool,
		Metrics:        extproc.NewMetrics(t.registry),
	}, extproc.Deps{
		InForce: t.configuration.streams,
		Refused: t.picker.Refused, Now: t.picker.System().Now,
		Connection: connectionOf, Certified: peers.Certified, Accepted: t.opts.tls.forces,
		Empty: func() bool { return len(t.picker.Pool().Snapshot().Endpoints) == 0 },
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
		Ended:   t.picker.Ended, Ongoing: t.picker.Ongoing, Silent: t.picker.LogStreamEnded,
		Metrics: accesslog.NewMetrics(t.registry),
		Opened: func(ctx context.Context) accesslog.Proxy {
			if l := t.peers.Opened(ctx); l != nil {
				return l
			}
			return nil // a nil *peers.Log would be a proxy
		},
		Panicked: func(err error) { t.log.Error("the stream of an access log panicked", zap.Error(err)) },
	})
}

// connectionOf returns the connection that a stream came on.
func connectionOf(ctx context.Context) extproc.Connection {
	if c := peers.Of(ctx); c != nil {
		return c
	}
	return nil // a nil *peers.Connection would be a connection
}

// noParser leaves every body unread: the configuration says so.
type noParser struct{}

func (noParser) Parse(string, string, string, []byte, *messages.Request) error { return nil }

func (noParser) SetPriority(string, string, string, []byte, int) (from, to int, text []byte) {
	return 0, 0, nil
}

func (noParser) Rename(string, string, string, []byte, string) (from, to int, text []byte) {
	return 0, 0, nil
}
