package app

import (
	"errors"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// proxyViews returns the connected proxies as /debug/proxies shows them.
func (t *tree) proxyViews() []admin.ProxyView {
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	var out []admin.ProxyView
	for _, v := range t.peers.Views() {
		out = append(out, admin.ProxyView{
			From: v.From, Node: orNull(v.Node), Version: orNull(v.Version), Lane: orNull(v.Lane()),
			Connections: v.Connections,
			Light:       v.Light, Full: v.Full, AccessLog: v.AccessLog, XDS: v.XDS,
			SinceSeconds: time.Since(v.Since).Seconds(),
		})
	}
	return out
}

// serveAdmin makes the handler of the metrics port.
func (t *tree) serveAdmin() {
	t.admin = admin.NewHandler(admin.Config{
		Gatherer: t.registry, Recorder: t.picker.Recorder(), FormatID: t.formatID,
		ParseID: func(s string) (messages.RequestID, bool) { return extproc.ParseID(t.instance, s) },
		Address: t.picker.Pool().Address, Incarnations: t.picker.Pool().Incarnations,
		MessageName: func(k uint16) string { return t.picker.System().KindName(runtime.Kind(k)) },
		ActorName:   t.picker.System().ActorName,
		Ready:       t.ready, Endpoints: t.endpointViews, Proxies: t.proxyViews,
		NotScraped: func() string { return notScraped(t.configuration.current.Load().Config) },
		OpenDebug:  t.opts.openDebug, Profiles: t.opts.pprof, Now: t.picker.System().Now,
		Concern:       t.configuration.concern,
		Configuration: t.configuration.view, Reload: t.configuration.reload, Restore: t.configuration.restore,
		Push: t.push, PushBytes: modelserver.DefaultPageBytes, Tokens: t.opts.tls.metricsToken != "",
	})
}

// push brings a document that somebody pushed into force.
func (t *tree) push(source string, document []byte, ttl time.Duration) (map[string]int, error) {
	values, err := t.fetcher.Push(source, document, ttl)
	if errors.Is(err, modelserver.ErrNotPushed) {
		return nil, admin.NoSource(err.Error())
	}
	return values, err
}

// endpointViews returns the pool as /debug/endpoints shows it.
func (t *tree) endpointViews() []admin.EndpointView {
	return admin.Views(t.picker.Pool().Snapshot(), t.picker.System().Now(), t.opts.staleness)
}
