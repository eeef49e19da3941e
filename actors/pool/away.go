package pool

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	// awayFor is how long an endpoint may be away and come back as the same incarnation. Long prompts are computed and
	// nodes are reached again within that; what a server had cached is worth little later.
	awayFor = 5 * time.Minute
	// mostAway is how many endpoints are away at most. Of more, the one that has been away the longest is gone.
	mostAway = 1024
)

// away is an incarnation that left the set and may come back, with its load, its blocks and whatever else is known of
// it. It is in no snapshot, so that nothing picks it. Its scraper goes on, and tells if its process is another one.
type away struct {
	*endpoints.Endpoint
	since time.Time
}

// mayReturn reports whether an endpoint that a set does not have may come back as the same process, and something
// would tell if it did not: the source, or else the pages that its scraper reads.
func mayReturn(m messages.EndpointsDiscovered, unready map[messages.Address]messages.EndpointSpec,
	e *endpoints.Endpoint) bool {
	if s, ok := unready[e.Spec.Address]; ok && sameSpec(s, e.Spec) {
		return true
	}
	page := e.Sample()
	return !m.Whole && page != nil && page.BuiltIn(attributes.StartTime) > 0
}

// part has an incarnation be away, which ends by its return, or as that of withdraw.
func (p *Pool) part(ctx runtime.Context[messages.PoolMsg], e *endpoints.Endpoint) {
	if len(p.away) >= mostAway {
		p.withdraw(ctx, p.longestAway())
	}
	p.away[e.Spec.Address] = away{e, ctx.Now()}
}

// await has a timer be set for the endpoint that has been away the longest, or none if there is none.
func (p *Pool) await(ctx runtime.Context[messages.PoolMsg]) {
	longest := p.longestAway()
	switch {
	case longest != nil && p.absence == nil:
		p.absence = ctx.After(awayFor-ctx.Now().Sub(p.away[longest.Spec.Address].since), messages.AbsenceOver{})
	case longest == nil && p.absence != nil && p.absence.Cancel():
		p.absence = nil
	}
}

// longestAway returns the endpoint that has been away the longest; nil = none is away.
func (p *Pool) longestAway() (longest *endpoints.Endpoint) {
	var since time.Time
	for _, a := range p.away {
		if longest == nil || a.since.Before(since) || a.since.Equal(since) && a.ID.Generation < longest.ID.Generation {
			longest, since = a.Endpoint, a.since
		}
	}
	return longest
}

// review adds to stays the endpoints that were away and are in the set again, and withdraws those that are not to come
// back.
func (p *Pool) review(ctx runtime.Context[messages.PoolMsg], stays map[messages.Address]*endpoints.Endpoint,
	specs map[messages.Address]messages.EndpointSpec, gone func(*endpoints.Endpoint) bool) {
	for _, address := range sortedKeys(p.away) {
		e := p.away[address].Endpoint
		switch s, back := specs[address]; {
		case back && sameSpec(s, e.Spec):
			delete(p.away, address)
			stays[address] = e
		case back, gone(e):
			p.withdraw(ctx, e)
		}
	}
}

// onAbsenceOver withdraws the endpoints that have been away for too long since they left last.
func (p *Pool) onAbsenceOver(ctx runtime.Context[messages.PoolMsg]) {
	for _, address := range sortedKeys(p.away) {
		if a := p.away[address]; ctx.Now().Sub(a.since) >= awayFor {
			p.withdraw(ctx, a.Endpoint)
		}
	}
	p.absence = nil
	p.await(ctx)
}
