package peers

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/messages"
)

// Deps holds what a Table works with.
type Deps struct {
	// Doubted is told of each connection whose requests the access log may never tell of. It must not block.
	Doubted func(messages.ConnectionID)
	Log     *zap.Logger
}

// Table holds all proxies that are connected.
type Table struct {
	deps Deps
	last atomic.Uint64 // number of the newest connection

	mu          sync.Mutex
	connections map[messages.ConnectionID]*Connection // that have asked, until their end
	proxies     map[name]*proxy                       // none is empty
}

// name is what proxies are told apart by. Proxies with the same name count as one.
type name struct {
	host string
	node string // "" = the proxy has not said
}

// proxy is one proxy, as far as it can be told from others. A connection whose log has not come is assigned to the
// only proxy at its address that has said its name, or else to one without a name. The first entry assigns it for
// certain.
type proxy struct {
	name
	version     string // "" = unknown
	since       time.Time
	connections map[*Connection]struct{}
	logs        map[*Log]struct{}
	streams     int // of xDS
	light, full uint64
	asked       bool // the log says that it asks for picks
	heard       bool // an entry came; the log says that it sends them
	warned      bool // the log says that its access log is missing
}

// NewTable returns an empty table.
func NewTable(deps Deps) *Table {
	return &Table{deps: deps, connections: map[messages.ConnectionID]*Connection{}, proxies: map[name]*proxy{}}
}

func (t *Table) connected(from net.Addr) *Connection {
	id := messages.ConnectionID(t.last.Add(1))
	return &Connection{table: t, id: id, name: connectionName(id), host: hostOf(from.String())}
}

// hostOf returns an address without its port.
func hostOf(from string) string {
	if a, err := netip.ParseAddrPort(from); err == nil {
		return a.Addr().Unmap().String()
	}
	return from
}

// at returns the proxy of a name. It makes one if there is none.
func (t *Table) at(n name) *proxy {
	p := t.proxies[n]
	if p == nil {
		p = &proxy{name: n, since: time.Now(), connections: map[*Connection]struct{}{}, logs: map[*Log]struct{}{}}
		t.proxies[n] = p
	}
	return p
}

// likely returns the only proxy at an address that has said its name; else the one without a name.
func (t *Table) likely(host string) *proxy {
	var named []name
	for n := range t.proxies {
		if n.host == host && n.node != "" {
			named = append(named, n)
		}
	}
	if len(named) == 1 {
		return t.at(named[0])
	}
	return t.at(name{host: host})
}

// asked notes the first request of a connection in a lane.
func (t *Table) asked(c *Connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.ended || c.proxy != nil {
		return
	}
	p := t.likely(c.host)
	c.proxy, p.connections[c], t.connections[c.id] = p, struct{}{}, c
	if !p.asked {
		p.asked = true
		t.deps.Log.Info("a proxy connects", p.fields()...)
	}
}

// disconnected forgets a connection, and reports that no log may ever tell of its requests whose responses still run.
func (t *Table) disconnected(c *Connection) {
	t.mu.Lock()
	c.ended = true
	c.stopAwaiting()
	delete(t.connections, c.id)
	if p := c.proxy; p != nil {
		delete(p.connections, c)
		p.light, p.full = p.light+c.light.Load(), p.full+c.full.Load()
		t.left(p)
	}
	t.mu.Unlock()
	if c.light.Load() > 0 {
		t.deps.Doubted(c.id)
	}
}

// await returns what has come of the log of a connection of whose requests no open log has told.
func (t *Table) await(c *Connection) messages.LogState {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case c.seen(): // an entry came since the caller looked
		return messages.LogSeen
	case c.missing:
		return messages.LogMissing
	case c.ended:
		return messages.LogAwaited
	case c.awaited == nil:
		c.waits++
		number := c.waits
		c.awaited = time.AfterFunc(entryWithin, func() { t.overdue(c, number) })
	}
	if t.hears(c.host) {
		return messages.LogSeen
	}
	return messages.LogAwaited
}

// hears reports whether an open log from an address has sent an entry.
func (t *Table) hears(host string) bool {
	for n, p := range t.proxies {
		if n.host == host && p.speaks() {
			return true
		}
	}
	return false
}

// overdue ends a wait for the first entry. The access log counts as missing only if no log from the address has sent
// an entry: a proxy whose log has final entries only cannot have sent one for a response that takes longer.
func (t *Table) overdue(c *Connection, number int) {
	t.mu.Lock()
	if c.awaited == nil || c.waits != number { // the timer was stopped while it fired
		t.mu.Unlock()
		return
	}
	c.awaited, c.missing = nil, !t.hears(c.host)
	if !c.missing {
		t.mu.Unlock()
		return
	}
	if p := c.proxy; !p.warned {
		p.warned = true
		t.deps.Log.Warn("a proxy hides response bodies and sends no access log: no entry within 10 s; "+
			"its requests count as ended with the response's headers, and their usage is unknown; "+
			"its http_connection_manager wants an access_log of type envoy.access_loggers.http_grpc to this port, "+
			"and access_log_options with an access_log_flush_interval of 5s, as signalbox envoy-config prints them",
			p.fields()...)
	}
	t.mu.Unlock()
	t.deps.Doubted(c.id)
}

func (c *Connection) stopAwaiting() {
	if c.awaited != nil {
		c.awaited.Stop()
		c.awaited = nil
	}
}

// identified assigns a log to its proxy.
func (t *Table) identified(l *Log, node, version string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.at(name{l.host, node})
	p.version = cmp.Or(version, p.version)
	l.proxy = p
	p.logs[l] = struct{}{}
}

// spoke notes an entry. It returns the connection that its request came on; nil = it is not known.
func (t *Table) spoke(l *Log, connection messages.ConnectionID) *Connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.spoke = true
	c := t.connections[connection]
	if c != nil {
		t.named(l, c)
	}
	if p := l.proxy; p != nil && !p.heard {
		p.heard = true
		t.deps.Log.Info("a proxy sends its access log", p.fields()...)
	}
	return c
}

// named notes that an entry of a log names a connection.
func (t *Table) named(l *Log, c *Connection) {
	c.log.Store(l)
	c.missing = false
	c.stopAwaiting()
	if from, to := c.proxy, l.proxy; from != to && to != nil {
		delete(from.connections, c)
		to.connections[c], c.proxy = struct{}{}, to
		to.asked = true
		if from.node == "" && from.since.Before(to.since) {
			to.since = from.since
		}
		if from.empty() { // it has a name now
			delete(t.proxies, from.name)
		}
	}
}

// logEnded forgets a log. Entries of the connections that it told of are awaited again.
func (t *Table) logEnded(l *Log) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := l.proxy; p != nil {
		delete(p.logs, l)
		t.left(p)
	}
}

// Configured notes an xDS stream of a proxy. The caller calls gone once, when the stream ends.
func (t *Table) Configured(from, node, version string) (gone func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.at(name{hostOf(from), node})
	p.version = cmp.Or(version, p.version)
	p.streams++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		p.streams--
		t.left(p)
	}
}

// left forgets a proxy that has no connection, log or xDS stream any more.
func (t *Table) left(p *proxy) {
	if !p.empty() {
		return
	}
	if p.asked {
		requests := []zap.Field{zap.Uint64("light_requests", p.light), zap.Uint64("full_requests", p.full)}
		t.deps.Log.Info("a proxy leaves", append(p.fields(), requests...)...)
	}
	if t.proxies[p.name] == p {
		delete(t.proxies, p.name)
	}
}

func (p *proxy) empty() bool { return len(p.connections)+len(p.logs)+p.streams == 0 }

// speaks reports whether one of its open logs has sent an entry.
func (p *proxy) speaks() bool {
	for l := range p.logs {
		if l.spoke {
			return true
		}
	}
	return false
}

// requests returns how many requests came on all connections, by lane.
func (p *proxy) requests() (light, full uint64) {
	light, full = p.light, p.full
	for c := range p.connections {
		light, full = light+c.light.Load(), full+c.full.Load()
	}
	return light, full
}

// fields returns what describes a proxy in the log.
func (p *proxy) fields() []zap.Field {
	v := p.view()
	unknown := func(s string) string { return cmp.Or(s, "unknown") }
	return []zap.Field{
		zap.String("from", v.From), zap.String("node", unknown(v.Node)), zap.String("version", unknown(v.Version)),
		zap.String("lane", unknown(lanes(v.Light, v.Full))), zap.String("access_log", v.AccessLog),
	}
}

// View is what /debug/proxies shows of a proxy.
type View struct {
	From        string // address, without a port
	Node        string // as its access log or xDS names it; "" = unknown
	Version     string // of Envoy, likewise
	Connections int    // that ask for picks
	Light, Full uint64 // requests, by lane
	AccessLog   string // what has come of it, in a word: seen, awaited, missing, ended, "not needed" or "none"
	XDS         bool   // it is configured over xDS
	Since       time.Time
}

// Lane returns the lanes of its requests; "" = it has asked for nothing.
func (v View) Lane() string { return lanes(v.Light, v.Full) }

func (p *proxy) view() View {
	v := View{
		From: p.host, Node: p.node, Version: p.version, Connections: len(p.connections), XDS: p.streams > 0,
		Since: p.since,
	}
	v.Light, v.Full = p.requests()
	v.AccessLog = p.accessLog(v.Light, v.Full)
	return v
}

func (p *proxy) accessLog(light, full uint64) string {
	var missing, awaited, ended bool // of any connection
	for c := range p.connections {
		missing = missing || c.missing
		awaited = awaited || c.awaited != nil
		ended = ended || c.log.Load() != nil
	}
	gone := p.empty() // then what was seen in its life
	switch {
	case p.speaks(), gone && p.heard:
		return "seen"
	case missing, gone && p.warned:
		return "missing"
	case ended:
		return "ended"
	case awaited:
		return "awaited"
	case light == 0 && full > 0:
		return "not needed"
	}
	return "none"
}

// Views returns the proxies, by address and node.
func (t *Table) Views() []View {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]View, 0, len(t.proxies))
	for _, p := range t.proxies {
		out = append(out, p.view())
	}
	slices.SortFunc(out, func(a, b View) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Node, b.Node))
	})
	return out
}

// Close stops all timers. Connections end with their server.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.connections {
		c.stopAwaiting()
	}
}
