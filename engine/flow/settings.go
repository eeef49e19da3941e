package flow

import (
	"cmp"
	"reflect"
	"time"

	"github.com/signalbox-epp/signalbox/engine/reclaim"
	"github.com/signalbox-epp/signalbox/messages"
)

// Limits bounds what waits. 0 = no bound.
type Limits struct {
	Requests int64
	Bytes    int64 // of the requests' bodies
}

// exceeded returns by how much a total with more is above the limits, and whether it is at all.
func (l Limits) exceeded(t Total, more Total) (over Total, exceeded bool) {
	if l.Requests > 0 {
		over.Requests = max(t.Requests+more.Requests-l.Requests, 0)
	}
	if l.Bytes > 0 {
		over.Bytes = max(t.Bytes+more.Bytes-l.Bytes, 0)
	}
	return over, over != Total{}
}

// Total is how much waits.
type Total struct {
	Requests int64
	Bytes    int64
}

func (t *Total) add(e *Entry) {
	t.Requests++
	t.Bytes += e.Bytes
}

func (t *Total) remove(e *Entry) {
	t.Requests--
	t.Bytes -= e.Bytes
}

// covers reports whether taking all of t away makes room for what is over.
func (t Total) covers(over Total) bool { return t.Requests >= over.Requests && t.Bytes >= over.Bytes }

// Policies are those of one band. None is nil.
type Policies struct {
	Ordering     Ordering
	Queue        QueueType
	Fairness     Fairness
	Displacement Displacement
}

// BandSettings are the settings of one band.
type BandSettings struct {
	Limits
	Policies
	Names   messages.PolicyNames
	Weights map[string]float64 // of flows, by fairness id, each above 0; others have 1
	TTL     time.Duration      // how long a request waits at most; 0 = as long as its client does

	// MinShare is the part of all dispatches that requests of the band get at least while they wait, ahead of those of
	// higher priority, below 1; 0 = none.
	MinShare float64
}

// Settings are those of one configuration. They are not changed once they are given to Queues.
type Settings struct {
	Limits                        // of all bands together
	Bands    map[int]BandSettings // by priority
	Default  BandSettings         // of priorities >= 0 that have none
	Negative BandSettings         // of priorities < 0 that have none
	BuiltIn  Policies             // in the place of policies that panic

	LimitedBy  string           // type of UsageLimit; "" = none
	UsageLimit UsageLimit       // nil = endpoints may be full with requests of any priority
	Priorities []int            // that requests of the configuration may have; none = any
	Headers    []string         // of requests that policies read, as attributes.Layout has them
	Flows      int              // that a band tells apart; others share one, as ids says
	Without    time.Duration    // how long a request waits at most while there is no endpoint; 0 as for TTL
	Evictions  []reclaim.Policy // that say which running requests are ended for waiting ones; nil = none is
	Settles    time.Duration    // until the room of a request that was ended shows; set if there are Evictions
}

// DefaultFlows is how many flows a band tells apart.
const DefaultFlows = 1000

// band returns the settings of a priority.
func (s *Settings) band(priority int) BandSettings {
	if b, ok := s.Bands[priority]; ok {
		return b
	}
	if priority < 0 {
		return s.Negative
	}
	return s.Default
}

// Local reports whether requests of a priority say what their prompts are.
func (s *Settings) Local(priority int) bool {
	b := s.band(priority)
	return b.quantum() > 0
}

// Needs returns what the queues must be able to do.
func (p *Policies) Needs() Ability {
	needs := p.Ordering.Needs()
	if p.quantum() > 0 {
		needs |= Listing
	}
	return needs
}

// quantum returns how far locality goes; 0 = not at all.
func (p *Policies) quantum() int64 {
	if local, ok := p.Fairness.(Local); ok {
		return max(local.Quantum(), 0)
	}
	return 0
}

// unlimited stands for no limit, and is the longest one.
const unlimited = 24 * time.Hour

// Patience returns how long a request waits at most: until its turn, and while there is no endpoint. told is what its
// client allows, which can only shorten both; 0 = it did not say.
func (s *Settings) Patience(priority int, told time.Duration) (turn, without time.Duration) {
	b := s.band(priority)
	turn, without = min(cmp.Or(b.TTL, unlimited), unlimited), min(cmp.Or(s.Without, unlimited), unlimited)
	if told > 0 {
		return min(turn, told), min(without, told)
	}
	return turn, without
}

// WaitAtMost has requests of priorities without a band of their own wait for so long, and no longer than that while
// there is no endpoint. It is for settings that are not in use yet.
func (s *Settings) WaitAtMost(d time.Duration) {
	s.Default.TTL, s.Negative.TTL = d, d
	s.Without = min(cmp.Or(s.Without, unlimited), d)
}

// orderedAs reports whether requests that wait under one of the settings may wait beside those of the other.
func (b *BandSettings) orderedAs(other *BandSettings) bool {
	return reflect.DeepEqual(b.Policies, other.Policies) && reflect.DeepEqual(b.Weights, other.Weights)
}
