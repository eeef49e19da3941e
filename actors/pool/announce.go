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
	// lingers is how long proxies still know an endpoint after the last loop has ceased to pick it. A pick takes time
	// to reach its proxy, and one that no longer knows the endpoint would send the request elsewhere, without an error.
	lingers = 2 * time.Second
	// passWithin is how long loops may take to pass a snapshot. A loop that takes longer hangs. Its streams have
	// answered by themselves by then, for by default no request waits longer than 61 s for its pick. Without this limit
	// one loop that hangs would keep servers that are long gone in the proxies' sets.
	passWithin = 2 * time.Minute
)

// announced is what the proxies were told. An endpoint is announced before its first pick, and removed from the
// announcements after its last one.
type announced struct {
	number   uint64                         // of the newest announcement; 0 = none yet
	admitted uint64                         // endpoints in announcements up to this one may be picked
	since    map[messages.Address]uint64    // first announcement that has the address; 0 = it was picked before any
	leaving  map[messages.Address]departure // endpoints that are wanted no more and still announced
	passed   []uint64                       // by loop: newest version that it has passed, or was passed over for
}

// departure is an endpoint that leaves.
type departure struct {
	version uint64    // of the first snapshot without it
	left    time.Time // when that came into force
	found   time.Time // when discovery had that set; zero = unknown
	stopped time.Time // when the last loop ceased to pick it; zero = a loop may still pick it
}

// newAnnounced returns the state in which all endpoints of a set may be picked without an announcement.
func newAnnounced(set *endpoints.Snapshot) announced {
	a := announced{since: map[messages.Address]uint64{}, leaving: map[messages.Address]departure{}}
	for _, e := range set.Endpoints {
		a.since[e.Spec.Address] = 0
	}
	return a
}

// announce tells the proxies which endpoints there are. found is when discovery had what is new in the set, or zero.
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
	case !p.deps.Announcer.Tell(m): // nothing takes announcements, so picks do not wait for them
		p.told.admitted = p.told.number
	case waits:
		ctx.After(acknowledgeWithin, messages.AcknowledgementOverdue{Number: p.told.number})
	}
}

// admits reports whether an endpoint may be picked: the proxies know it, or have had their time.
func (p *Pool) admits(e *endpoints.Endpoint) bool {
	return p.told.since[e.Spec.Address] <= p.told.admitted
}

// exchange tells the proxies of the wanted set and brings into force what of it they know. Endpoints that left are
// picked no more at once; new ones wait.
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
		if _, leaves := p.told.leaving[address]; !leaves && !wanted[address] { // it left before it was ever picked
			delete(p.told.since, address)
		}
	}
	p.announce(ctx, found)
	p.admitKnown()
	if gone {
		p.raiseBarrier(ctx, p.set.Version)
	}
}

// admitKnown brings into force the endpoints that may be picked. It does nothing if they are in force already and
// others still wait.
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

// raiseBarrier asks the loops that have not passed a snapshot to pass it, and has them asked again after a while,
// because a shard that panics loses the message. A loop whose shard does not take it picks nothing, and counts as
// passed.
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

// drain tells the proxies to drain the endpoints that no loop picks any more. They are removed once they have lingered.
func (p *Pool) drain(ctx runtime.Context[messages.PoolMsg]) {
	var newest uint64
	var found time.Time // the earliest of those known
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

// stopped reports whether all loops have passed a version, so that none picks what left with it.
func (p *Pool) stopped(version uint64) bool {
	return len(p.told.passed) == 0 || slices.Min(p.told.passed) >= version
}

// onRemovalDue removes endpoints that have lingered from the announcements. It asks loops again that have not passed,
// and passes over those that hang.
func (p *Pool) onRemovalDue(ctx runtime.Context[messages.PoolMsg], m messages.RemovalDue) {
	forgotten := false
	var lacks, hangs uint64 // newest version that a loop has not passed yet, and not within passWithin; 0 = none
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
	if hangs < lacks && lacks <= m.Version { // a newer version has a timer of its own
		p.raiseBarrier(ctx, lacks)
	}
}

// passOver counts loops that hang as passed.
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

// onAcknowledged lets picks of announced endpoints begin: the proxies have acknowledged them, or are overdue. A number
// that this incarnation has not given out is of an earlier one.
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
