package xds

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/peer"

	"github.com/signalbox-epp/signalbox/messages"
)

// clients holds the proxies' streams, and what each has yet to acknowledge. Its methods are the callbacks of the
// stream server, which each stream calls from a goroutine of its own. The pool and the log are told after the lock is
// released.
type clients struct {
	log     *zap.Logger
	metrics *Metrics
	names   []string                                       // of endpoint resources that are served
	met     func(from, node, version string) (gone func()) // nil = nothing is told

	mu      sync.Mutex
	streams map[int64]*client
	version string                          // of the endpoints in force
	each    map[string]string               // version of each endpoint resource
	number  uint64                          // newest announcement
	told    uint64                          // newest announcement that was acknowledged
	pool    messages.Port[messages.PoolMsg] // that made it
}

// client is one stream.
type client struct {
	from, node string
	gone       func()              // called when the stream ends; nil = nothing is; only the stream's goroutine uses it
	asks       map[string]bool     // endpoint resources that it is sent
	owes       bool                // it has not acknowledged those in force
	sent       map[string]response // by type, the last one
}

type response struct {
	nonce, version string
	at             time.Time
}

// expect notes which endpoints an announcement puts in force, and reports whether they differ from those before. If
// they do, all streams that ask for endpoints owe an acknowledgement.
func (c *clients) expect(m messages.EndpointsAnnounced, version string, each map[string]string) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Number <= c.number { // another incarnation of the pool
		c.told = 0
	}
	c.number, c.pool = m.Number, m.Pool
	if version == c.version {
		return false
	}
	c.version, c.each = version, each
	for _, s := range c.streams {
		s.owes = len(s.asks) > 0
	}
	return true
}

// report tells the pool of the newest announcement once no stream owes an acknowledgement.
func (c *clients) report() {
	if pool, number := c.settled(); pool != nil {
		pool.Post(messages.EndpointsAcknowledged{Number: number})
	}
}

func (c *clients) settled() (messages.Port[messages.PoolMsg], uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told >= c.number {
		return nil, 0
	}
	for _, s := range c.streams {
		if s.owes {
			return nil, 0
		}
	}
	c.told = c.number
	return c.pool, c.number
}

// OnDeltaStreamOpen notes a stream.
func (c *clients) OnDeltaStreamOpen(ctx context.Context, id int64, _ string) error {
	from := ""
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams[id] = &client{from: from, asks: map[string]bool{}, sent: map[string]response{}}
	c.metrics.streams.Inc()
	return nil
}

// OnDeltaStreamClosed forgets a stream, so that nothing waits for it any more.
func (c *clients) OnDeltaStreamClosed(id int64, _ *corev3.Node) {
	c.mu.Lock()
	s := c.streams[id]
	delete(c.streams, id)
	c.mu.Unlock()
	if s == nil {
		return
	}
	c.metrics.streams.Dec()
	if s.gone != nil {
		s.gone()
	}
	c.log.Info("a proxy is gone from xDS", zap.String("node", s.node), zap.String("from", s.from))
	c.report()
}

// OnStreamDeltaRequest takes a subscription, an acknowledgement or a refusal.
func (c *clients) OnStreamDeltaRequest(id int64, r *discoveryv3.DeltaDiscoveryRequest) error {
	c.mu.Lock()
	s := c.streams[id]
	if s == nil {
		c.mu.Unlock()
		return nil
	}
	introduced := s.node == "" && r.GetNode() != nil
	if introduced {
		s.node = r.GetNode().GetId()
	}
	owed := s.owes
	unknown := c.subscribe(s, r)
	sent, known := s.sent[r.GetTypeUrl()]
	answers := known && r.GetResponseNonce() == sent.nonce // it acknowledges or refuses what was sent
	if answers {
		delete(s.sent, r.GetTypeUrl())
		if r.GetTypeUrl() == resource.EndpointType && sent.version == c.version {
			s.owes = false // also if it refuses: it will not take them later
		}
	}
	owesNoMore := owed && !s.owes
	proxy := []zap.Field{zap.String("node", s.node), zap.String("from", s.from)}
	c.mu.Unlock()
	if introduced && c.met != nil {
		s.gone = c.met(s.from, s.node, envoyVersion(r.GetNode()))
	}
	if introduced {
		version := cmp.Or(envoyVersion(r.GetNode()), "unknown")
		c.log.Info("a proxy asks by xDS", append(proxy, zap.String("version", version))...)
	}
	if unknown != "" {
		c.log.Warn("a proxy asks for endpoints of a cluster that is not served",
			append(proxy, zap.String("cluster", unknown), zap.Strings("served", c.names))...)
	}
	if answers {
		c.answered(r, sent, proxy)
	}
	if answers || owesNoMore {
		c.report()
	}
	return nil
}

// subscribe notes that a stream asks for endpoints, and returns a name that is not served. A proxy that comes back with
// what is in force, or asks again for what it is sent anyway, is sent nothing, and owes nothing.
func (c *clients) subscribe(s *client, r *discoveryv3.DeltaDiscoveryRequest) (unknown string) {
	if r.GetTypeUrl() != resource.EndpointType {
		return ""
	}
	for _, name := range r.GetResourceNamesSubscribe() {
		if !slices.Contains(c.names, name) {
			unknown = name
			continue
		}
		if s.asks[name] {
			continue
		}
		s.asks[name] = true
		have, known := r.GetInitialResourceVersions()[name]
		s.owes = s.owes || c.version != "" && (!known || have != c.each[name])
	}
	for _, name := range r.GetResourceNamesUnsubscribe() {
		delete(s.asks, name)
	}
	s.owes = s.owes && len(s.asks) > 0
	return unknown
}

// answered counts and logs an acknowledgement or a refusal.
func (c *clients) answered(r *discoveryv3.DeltaDiscoveryRequest, to response, proxy []zap.Field) {
	kind := kindOf(r.GetTypeUrl())
	fields := append(proxy, zap.String("type", kind), zap.String("version", to.version))
	if e := r.GetErrorDetail(); e != nil {
		c.metrics.refused.WithLabelValues(kind).Inc()
		c.log.Error("a proxy refuses an xDS response (NACK): what it had stays in force there",
			append(fields, zap.String("reason", e.GetMessage()))...)
		return
	}
	took := time.Since(to.at)
	c.metrics.acknowledged.WithLabelValues(kind).Inc()
	c.metrics.took.Observe(took.Seconds())
	c.log.Debug("a proxy has taken an xDS response (ACK)", append(fields, zap.Duration("took", took))...)
}

// OnStreamDeltaResponse notes what is about to be sent.
func (c *clients) OnStreamDeltaResponse(
	id int64, r *discoveryv3.DeltaDiscoveryRequest, sent *discoveryv3.DeltaDiscoveryResponse,
) {
	c.metrics.responses.WithLabelValues(kindOf(r.GetTypeUrl())).Inc()
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[id]; s != nil {
		s.sent[r.GetTypeUrl()] = response{nonce: sent.GetNonce(), version: sent.GetSystemVersionInfo(), at: time.Now()}
	}
}

// envoyVersion returns that of a node; "" = it does not say.
func envoyVersion(n *corev3.Node) string {
	v := n.GetUserAgentBuildVersion().GetVersion()
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%d.%d.%d", v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch())
}
