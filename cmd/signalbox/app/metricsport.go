package app

import (
	"cmp"
	"errors"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

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
		Ready:       t.readyz, Endpoints: t.endpointViews, Proxies: t.proxyViews,
		NotScraped: func() string { return notScraped(t.configuration.current.Load().Config) },
		OpenDebug:  t.opts.openDebug, Profiles: t.opts.pprof, Now: t.picker.System().Now,
		Flow: admin.FlowConfig{
			Capacity: t.picker.Capacity(), Ends: t.ends, Room: t.room,
		},
		Concern:       t.concerns,
		Configuration: t.configuration.view, Reload: t.configuration.reload, Restore: t.configuration.restore,
		Push: t.push, PushBytes: modelserver.DefaultPageBytes, Tokens: t.wantsTokens(),
	})
}

// wantsTokens reports whether every request to the metrics port has a token that was checked.
func (t *tree) wantsTokens() bool {
	followsPods := t.configuration.current.Load().Discovery.Path == ""
	return t.opts.tls.metricsToken != "" || followsPods && t.opts.reviewsTokens()
}

// room returns where there is room as /debug/flow shows it, and the name of the detector that says so.
func (t *tree) room() (views []admin.RoomView, detector string) {
	all, detector := t.picker.Room()
	for _, r := range all {
		load := r.Counters()
		v := admin.RoomView{
			Address: string(r.Spec.Address), InflightRequests: load.Inflight, InflightTokens: load.Tokens,
		}
		if detector != "" {
			v.Room = &r.Free
		}
		if r.Windowed {
			v.Window = &admin.WindowView{Requests: r.Bound.Requests, Tokens: r.Bound.Tokens, Learned: r.Learned}
			if why := r.WindowReason(); why != nil {
				v.Window.Why = admin.Why(*why, t.picker.System().Now())
			}
		}
		views = append(views, v)
	}
	return views, detector
}

// ends returns how waits have ended as /debug/flow shows it: the highest priority first.
func (t *tree) ends() (views []admin.EndView) {
	for m := range collect(t.picker.Ends()) {
		v := admin.EndView{Requests: uint64(m.GetCounter().GetValue())}
		for _, l := range m.GetLabel() {
			switch l.GetName() {
			case "priority":
				v.Priority = l.GetValue()
			case "outcome":
				v.Outcome = l.GetValue()
			}
		}
		if v.Requests > 0 {
			views = append(views, v)
		}
	}
	number := func(label string) int {
		n, _ := strconv.Atoi(label) // a label of ours is a number
		return n
	}
	slices.SortFunc(views, func(a, b admin.EndView) int {
		return cmp.Or(cmp.Compare(number(b.Priority), number(a.Priority)), cmp.Compare(a.Outcome, b.Outcome))
	})
	return views
}

// collect ranges over the series of a collector.
func collect(c prometheus.Collector) iter.Seq[*dto.Metric] {
	return func(yield func(*dto.Metric) bool) {
		series := make(chan prometheus.Metric)
		go func() {
			c.Collect(series)
			close(series)
		}()
		more := true
		for s := range series { // to its end: the collector waits for each to be taken
			var m dto.Metric
			if more && s.Write(&m) == nil {
				more = yield(&m)
			}
		}
	}
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
