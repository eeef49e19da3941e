// Package pool owns the set of endpoints: it takes what discovery finds, gives each incarnation a slot and a scraper,
// and publishes a snapshot for each version. If there is an announcer, the proxies learn of an endpoint before its
// first pick, and that it is gone after its last one. It never looks at a request or at a metric.
package pool

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// Prefix is the address of the prefix actor: it can be told and watched.
type Prefix interface {
	messages.Sink[messages.PrefixMsg]
	runtime.Target
}

// Scrape spawns the scraper of an endpoint as a child of the pool, whose address is self. It returns false if the loop
// refuses.
type Scrape func(
	self messages.Sink[messages.PoolMsg], e *endpoints.Endpoint, first messages.EndpointAssigned,
) (messages.Sink[messages.ScraperMsg], bool)

// Deps holds what the pool works with.
type Deps struct {
	Pool    endpoints.Publisher
	Prefix  Prefix
	Scrape  Scrape
	Metrics *Metrics
	Bell    flow.Bell // of the line of those who wait for room, and its owner
	// Announcer tells the proxies which endpoints there are; nil = they know by themselves, and picks never wait.
	Announcer messages.Sink[messages.XdsMsg]
	// Shards returns the shards of all loops, by index. It is called only if there is an Announcer, and endpoints.
	Shards func() []messages.Sink[messages.ShardMsg]
	// Hangs is called with each loop that is passed over because it has not passed a snapshot for the time waited. It
	// must not block; nil = not called.
	Hangs func(loop int, waited time.Duration)
}

// Pool is the actor. After a restart it goes on from the snapshot in force.
type Pool struct {
	deps     Deps
	version  uint64                    // of the newest set of discovery
	set      *endpoints.Snapshot       // in force
	next     []*endpoints.Endpoint     // the wanted set: those of set that stay, and those that wait for the proxies
	away     map[messages.Address]away // that may come back; a restart of the pool takes them for gone
	absence  runtime.Timer             // for AbsenceOver; nil = none is set
	told     announced
	scrapers map[messages.EndpointID]messages.Sink[messages.ScraperMsg]
	slots    slots
	known    incarnations
}

// incarnations has the addresses of incarnations, for records name incarnations that have left, too.
type incarnations struct {
	latest uint32                                   // newest generation; none is ever given out twice
	names  map[messages.EndpointID]messages.Address // of those in the pool, and of those in gone
	gone   []messages.EndpointID                    // those that left, oldest first; at most goneNames
}

const goneNames = 4096 // incarnations that left and whose addresses are kept

// New returns a pool that goes on from what deps.Pool has published.
func New(deps Deps) *Pool {
	p := &Pool{
		deps: deps, set: deps.Pool.Snapshot(), away: map[messages.Address]away{},
		scrapers: map[messages.EndpointID]messages.Sink[messages.ScraperMsg]{},
		slots:    slots{clearing: map[uint32]messages.EndpointID{}, departed: map[uint32]messages.EndpointID{}},
		known:    incarnations{names: maps.Clone(deps.Pool.Names())},
	}
	p.next, p.told = p.set.Endpoints, newAnnounced(p.set)
	used := map[uint32]messages.EndpointID{}
	for _, e := range p.set.Endpoints {
		used[e.ID.Slot] = e.ID
		p.known.names[e.ID] = e.Spec.Address
	}
	for id := range p.known.names { // those that are gone, too: no generation is ever given out twice
		p.slots.count = max(p.slots.count, id.Slot+1)
		p.known.latest = max(p.known.latest, id.Generation)
		if used[id.Slot] == id {
			continue
		}
		p.known.gone = append(p.known.gone, id)
		if p.slots.departed[id.Slot].Generation < id.Generation {
			p.slots.departed[id.Slot] = id
		}
	}
	slices.SortFunc(p.known.gone, func(a, b messages.EndpointID) int { return cmp.Compare(a.Generation, b.Generation) })
	for slot := range p.slots.count {
		if _, ok := used[slot]; !ok { // whether prefix has cleared it is no longer known: ask will ask it
			p.slots.clearing[slot] = messages.EndpointID{Slot: slot, Generation: p.slots.departed[slot].Generation}
		}
	}
	return p
}

// Receive turns each message into a change of the set, or of what the proxies know of it.
func (p *Pool) Receive(ctx runtime.Context[messages.PoolMsg], m messages.PoolMsg) {
	switch m := m.(type) {
	case messages.PoolStarted:
		p.onPoolStarted(ctx)
	case messages.EndpointsDiscovered:
		p.onEndpointsDiscovered(ctx, m)
	case messages.ConfigurationReplaced:
		p.onConfigurationReplaced(m)
	case messages.EndpointRestarted:
		p.onEndpointRestarted(ctx, m)
	case messages.SlotCleared:
		p.onSlotCleared(ctx, m)
	case messages.PrefixLost:
		p.onPrefixLost(ctx)
	case messages.EndpointsAcknowledged:
		p.onAcknowledged(m.Number, false)
	case messages.AcknowledgementOverdue:
		p.onAcknowledged(m.Number, true)
	case messages.LoopPassed:
		p.onLoopPassed(ctx, m)
	case messages.RemovalDue:
		p.onRemovalDue(ctx, m)
	case messages.AbsenceOver:
		p.onAbsenceOver(ctx)
	}
}

func (p *Pool) onPoolStarted(ctx runtime.Context[messages.PoolMsg]) {
	ctx.Watch(p.deps.Prefix, messages.PrefixLost{})
	p.remind()
	p.ask(ctx)
	for _, e := range p.set.Endpoints {
		p.scrape(ctx, e)
	}
	if p.deps.Announcer != nil && p.set.Version > 0 { // the earlier incarnation may have left something untold
		p.announce(ctx, time.Time{})
	}
}

func (p *Pool) onEndpointsDiscovered(ctx runtime.Context[messages.PoolMsg], m messages.EndpointsDiscovered) {
	if m.Version <= p.version {
		return
	}
	p.version = m.Version
	specs := map[messages.Address]messages.EndpointSpec{}
	var order []messages.Address
	for _, s := range m.Endpoints.All() {
		if _, twice := specs[s.Address]; !twice {
			order = append(order, s.Address)
		}
		specs[s.Address] = s
	}
	unready := make(map[messages.Address]messages.EndpointSpec, m.Unready.Len())
	for _, s := range m.Unready.All() {
		unready[s.Address] = s
	}
	gone := func(e *endpoints.Endpoint) bool { return !mayReturn(m, unready, e) }
	stays := make(map[messages.Address]*endpoints.Endpoint, len(p.next))
	p.review(ctx, stays, specs, gone)
	for _, e := range p.next {
		switch s, ok := specs[e.Spec.Address]; {
		case ok && sameSpec(s, e.Spec):
			stays[e.Spec.Address] = e
		case ok, gone(e):
			p.withdraw(ctx, e)
		default:
			p.part(ctx, e)
		}
	}
	p.await(ctx)
	next := make([]*endpoints.Endpoint, 0, len(order))
	for _, a := range order {
		if e := stays[a]; e != nil {
			next = append(next, e)
			continue
		}
		next = append(next, p.admit(ctx.Now(), specs[a]))
	}
	p.publish(ctx, next, m.Found)
}

// onConfigurationReplaced tells the scrapers that run. One that starts, or restarts, is given the configuration in
// force.
func (p *Pool) onConfigurationReplaced(m messages.ConfigurationReplaced) {
	for _, e := range p.next {
		if s := p.scrapers[e.ID]; s != nil {
			s.Tell(m.Scraping) // it drops what is not newer
		}
	}
}

func (p *Pool) onEndpointRestarted(ctx runtime.Context[messages.PoolMsg], m messages.EndpointRestarted) {
	for _, a := range p.away { // its last page was on its way
		if a.ID == m.Endpoint {
			p.withdraw(ctx, a.Endpoint)
			return
		}
	}
	next := make([]*endpoints.Endpoint, 0, len(p.next))
	changed := false
	for _, e := range p.next {
		if e.ID != m.Endpoint {
			next = append(next, e)
			continue
		}
		changed = true
		p.withdraw(ctx, e)
		next = append(next, p.admit(ctx.Now(), e.Spec))
	}
	if changed {
		p.publish(ctx, next, time.Time{})
	}
}

// admit returns a new incarnation of an endpoint.
func (p *Pool) admit(now time.Time, spec messages.EndpointSpec) *endpoints.Endpoint {
	p.known.latest++
	id := messages.EndpointID{Slot: p.slots.take(), Generation: p.known.latest}
	p.known.names[id] = spec.Address
	e := endpoints.New(id, spec)
	e.Since = now
	return e
}

// withdraw ends an incarnation: its scraper stops, and its slot is not given out until prefix has cleared it.
func (p *Pool) withdraw(ctx runtime.Context[messages.PoolMsg], e *endpoints.Endpoint) {
	if s := p.scrapers[e.ID]; s != nil {
		s.Tell(messages.EndpointWithdrawn{})
		delete(p.scrapers, e.ID)
	}
	if a, ok := p.away[e.Spec.Address]; ok && a.Endpoint == e {
		delete(p.away, e.Spec.Address)
	}
	p.known.gone = append(p.known.gone, e.ID)
	if n := len(p.known.gone) - goneNames; n > 0 {
		for _, id := range p.known.gone[:n] {
			delete(p.known.names, id)
		}
		p.known.gone = append(p.known.gone[:0], p.known.gone[n:]...)
	}
	p.slots.clearing[e.ID.Slot], p.slots.departed[e.ID.Slot] = e.ID, e.ID
	p.deps.Prefix.Tell(messages.EndpointLeft{Endpoint: e.ID, Pool: ctx.Self()})
}

// publish makes next the wanted set. Without an announcer it comes into force at once. found is when discovery had what
// is new in it; zero = unknown, or discovery found nothing new.
func (p *Pool) publish(ctx runtime.Context[messages.PoolMsg], next []*endpoints.Endpoint, found time.Time) {
	p.next = next
	for _, e := range next { // endpoints that wait for the proxies, too, so that they have samples when picks begin
		if p.scrapers[e.ID] == nil {
			p.scrape(ctx, e)
		}
	}
	if p.deps.Announcer == nil {
		p.put(next)
		return
	}
	p.exchange(ctx, found)
}

// put brings a set into force. No other function does.
func (p *Pool) put(set []*endpoints.Endpoint) {
	p.set = endpoints.NewSnapshot(p.set.Version+1, set)
	p.deps.Pool.Publish(p.set, maps.Clone(p.known.names))
	p.deps.Metrics.published(p.set, len(p.away))
	p.deps.Bell.Ring()
}

func (p *Pool) scrape(ctx runtime.Context[messages.PoolMsg], e *endpoints.Endpoint) {
	s, ok := p.deps.Scrape(ctx.Self(), e, messages.EndpointAssigned{Endpoint: e.ID, Spec: e.Spec, Pool: ctx.Self()})
	if ok {
		p.scrapers[e.ID] = s
	}
}

// Stopped brings the wanted set into force, for the next incarnation knows only what is published. The scrapers are
// children and have ended before.
func (p *Pool) Stopped(runtime.Context[messages.PoolMsg]) {
	if len(p.set.Endpoints) != len(p.next) {
		p.put(p.next)
	}
}

// sameSpec reports whether nothing about an endpoint changed, so that it stays the same incarnation.
func sameSpec(a, b messages.EndpointSpec) bool {
	if a.Name != b.Name || a.Namespace != b.Namespace || a.Address != b.Address || a.Labels.Len() != b.Labels.Len() {
		return false
	}
	for k, v := range a.Labels.All() {
		if w, ok := b.Labels.Get(k); !ok || v != w {
			return false
		}
	}
	return true
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
