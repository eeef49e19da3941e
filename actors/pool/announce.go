package pool

import (
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	// acknowledgeWithin is how long an endpoint waits for the proxies before it is picked.
	acknowledgeWithin = time.Second
	// lingers is how long proxies know an endpoint after the last loop has stopped to pick it: an answer takes its way
	// through ext_proc, and a proxy that does not know the endpoint any more would send the request elsewhere without a
	// word.
	lingers = 2 * time.Second
	// passWithin is how long loops may take to pass a snapshot. One that takes longer hangs; its streams have answered
	// by themselves by then, for by default no request waits longer than 61 s for its pick. Without a limit it would
	// leave servers that are long gone to whatever a proxy routes by itself.
	passWithin = 2 * time.Minute
)

// announced is what the proxies were told. An endpoint is announced, then picked; it is picked no more, then forgotten.
type announced struct {
	number   uint64                         // of the newest announcement
	admitted uint64                         // what stands in announcements up to this one may be picked
	since    map[messages.Address]uint64    // announcement in which an address first stood
	leaving  map[messages.Address]departure // what is wanted no more, and not forgotten yet
	passed   []uint64                       // version that each loop has seen, at least
}

// departure is an endpoint on its way out.
type departure struct {
	version uint64    // of the first snapshot without it
	left    time.Time // when that came into force
	found   time.Time // when discovery had it; zero = not known
	stopped time.Time // from then on no loop picks it; zero = one may still
}

// newAnnounced begins with what is picked already.
func newAnnounced(set *endpoints.Snapshot) announced {
	a := announced{since: map[messages.Address]uint64{}, leaving: map[messages.Address]departure{}}
	for _, e := range set.Endpoints {
		a.since[e.Spec.Address] = 0
	}
	return a
}

// announce tells the proxies what they shall know. found is when discovery had what is new in it, or zero.
func (p *Pool) announce(ctx runtime.Context[messages.PoolMsg], found time.Time) {
	p.told.number++
	list := make([]messages.AnnouncedEndpoint, 0, len(p.next)+len(p.told.leaving))
	waits := false
	for _, e := range p.next {
		since, known := p.told.since[e.Spec.Address]
		if !known {
			since = p.told.number
			p.told.since[e.Spec.Address] = since
		}
		waits = waits || since > p.told.admitted
		list = append(list, messages.AnnouncedEndpoint{Address: e.Spec.Address})
	}
	for _, address := range sortedKeys(p.told.leaving) {
		leaving := !p.told.leaving[address].stopped.IsZero()
		list = append(list, messages.AnnouncedEndpoint{Address: address, Leaving: leaving})
	}
	m := messages.EndpointsAnnounced{
		Number: p.told.number, Endpoints: messages.TakeList(list), Found: found, Pool: ctx.Port(),
	}
	switch {
	case !p.deps.Announcer.Tell(m): // there is nothing to take it, so there is nothing to wait for
		p.told.admitted = p.told.number
	case waits:
		ctx.After(acknowledgeWithin, messages.AcknowledgementOverdue{Number: p.told.number})
	}
}

// admits reports whether the proxies know an endpoint, or have had their time.
func (p *Pool) admits(e *endpoints.Endpoint) bool {
	return p.told.since[e.Spec.Address] <= p.told.admitted
}

// exchange makes next the set that is wanted. What is known is picked at once, and what is gone no more; what is new
// waits.
func (p *Pool) exchange(ctx runtime.Context[messages.PoolMsg], found time.Time) {
	wanted := make(map[messages.Address]bool, len(p.next))
	for _, e := range p.next {
		wanted[e.Spec.Address] = true
		delete(p.told.leaving, e.Spec.Address)
	}
	if n := len(p.deps.Shards()); len(p.told.passed) != n {
		p.told.passed = make([]uint64, n)
	}
	gone := false
	for _, e := range p.set.Endpoints {
		if !wanted[e.Spec.Address] {
			p.told.leaving[e.Spec.Address] = departure{version: p.set.Version + 1, left: ctx.Now(), found: found}
			gone = true
		}
	}
	for address := range p.told.since {
		if _, leaves := p.told.leaving[address]; !leaves && !wanted[address] { // was never picked
			delete(p.told.since, address)
		}
	}
	p.announce(ctx, found)
	p.admitKnown()
	if gone {
		p.raiseBarrier(ctx, p.set.Version)
	}
}

// admitKnown publishes what may be picked, unless that is what is picked already and more is to come.
func (p *Pool) admitKnown() {
	admitted := make([]*endpoints.Endpoint, 0, len(p.next))
	for _, e := range p.next {
		if p.admits(e) {
			admitted = append(admitted, e)
		}
	}
	if len(admitted) < len(p.next) && slices.Equal(admitted, p.set.Endpoints) {
		return
	}
	p.put(admitted)
}

// raiseBarrier asks the loops that have not passed a snapshot to pass it on, and again after a while: a shard that
// panics loses what it was asked. A loop without a shard picks nothing.
func (p *Pool) raiseBarrier(ctx runtime.Context[messages.PoolMsg], version uint64) {
	ctx.After(lingers, messages.RemovalDue{Version: version})
	for i, s := range p.deps.Shards() {
		replaced := messages.SnapshotReplaced{Loop: i, Version: version, Pool: ctx.Self()}
		if p.told.passed[i] < version && !s.Tell(replaced) {
			p.told.passed[i] = version
		}
	}
	p.drain(ctx)
}

func (p *Pool) onLoopPassed(ctx runtime.Context[messages.PoolMsg], m messages.LoopPassed) {
	if m.Loop >= len(p.told.passed) || m.Version <= p.told.passed[m.Loop] {
		return
	}
	p.told.passed[m.Loop] = m.Version
	p.drain(ctx)
}

// drain tells the proxies of endpoints that the last loop has just stopped to pick. They are forgotten in a while.
func (p *Pool) drain(ctx runtime.Context[messages.PoolMsg]) {
	var newest uint64
	var found time.Time // of the first one
	for address, d := range p.told.leaving {
		if !d.stopped.IsZero() || !p.stopped(d.version) {
			continue
		}
		d.stopped = ctx.Now()
		p.told.leaving[address] = d
		newest = max(newest, d.version)
		if found.IsZero() || !d.found.IsZero() && d.found.Before(found) {
			found = d.found
		}
	}
	if newest > 0 {
		ctx.After(lingers, messages.RemovalDue{Version: newest})
		p.announce(ctx, found)
	}
}

// stopped reports whether no loop picks any more what left with this version.
func (p *Pool) stopped(version uint64) bool {
	return len(p.told.passed) == 0 || slices.Min(p.told.passed) >= version
}

// onRemovalDue forgets what has lingered, and looks after loops that have not passed.
func (p *Pool) onRemovalDue(ctx runtime.Context[messages.PoolMsg], m messages.RemovalDue) {
	forgotten := false
	var lacks, hangs uint64 // newest version that a loop has not passed, and has not in all that time
	for address, d := range p.told.leaving {
		switch {
		case d.stopped.IsZero():
			lacks = max(lacks, d.version)
			if ctx.Now().Sub(d.left) >= passWithin {
				hangs = max(hangs, d.version)
			}
		case ctx.Now().Sub(d.stopped) >= lingers:
			delete(p.told.leaving, address)
			delete(p.told.since, address)
			forgotten = true
		}
	}
	if forgotten {
		p.announce(ctx, time.Time{})
	}
	if hangs > 0 {
		p.passOver(ctx, hangs)
	}
	if hangs < lacks && lacks <= m.Version { // what left later has a timer of its own
		p.raiseBarrier(ctx, lacks)
	}
}

// passOver takes loops that hang for ones that have passed.
func (p *Pool) passOver(ctx runtime.Context[messages.PoolMsg], version uint64) {
	for i, passed := range p.told.passed {
		if passed >= version {
			continue
		}
		p.told.passed[i] = version
		p.deps.Metrics.passedOver.Inc()
		if p.deps.Hangs != nil {
			p.deps.Hangs(i, passWithin)
		}
	}
	p.drain(ctx)
}

// onAcknowledged and its deadline let picks begin. A number that this incarnation has not given out is another one's.
func (p *Pool) onAcknowledged(number uint64, overdue bool) {
	if number > p.told.number || number <= p.told.admitted {
		return
	}
	p.told.admitted = number
	known := len(p.set.Endpoints)
	if known == len(p.next) {
		return
	}
	p.admitKnown()
	if overdue && len(p.set.Endpoints) > known {
		p.deps.Metrics.overdue.Inc()
	}
}
