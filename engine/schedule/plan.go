package schedule

import (
	"math/rand/v2"
	"time"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// Plan is a configuration ready to run. Immutable; shared by all loops.
type Plan struct {
	Profiles []Profile
	Handler  Handler
	Stale    time.Duration // a sample older than this, and than three of its intervals, is stale
}

// Profile is a named set of filters, scorers and one picker.
type Profile struct {
	Name    string
	Filters []FilterStep
	Scorers []ScorerStep
	Picker  PickerStep
}

// Step is what all plugins of a profile have in common.
type Step struct {
	Type  string // as in the configuration
	Name  string // of the instance
	Meter int    // what the observer knows this step by
	Reads Reads
}

// FilterStep is a filter at its place in a profile.
type FilterStep struct {
	Step
	Filter Filter
}

// ScorerStep is a scorer with its weight.
type ScorerStep struct {
	Step
	Scorer Scorer
	Weight float32
}

// PickerStep is the picker of a profile.
type PickerStep struct {
	Step
	Picker Picker
	Most   func() int // endpoints that it picks at most; nil = it does not say
}

// most is how many endpoints an answer of this picker may have, if it gave n.
func (p *PickerStep) most(n int) int {
	if p.Most == nil {
		return max(n, 1)
	}
	return p.Most()
}

// Clock times plugins. The loop supplies it.
type Clock interface {
	Nanos() int64 // monotonic
}

// Observer is told what plugins cost and what they did wrong. The loop supplies it; it must not block.
type Observer interface {
	PluginRan(meter int, took time.Duration)
	ScoreClamped(meter int) // out of [0,1]
	ScoreNaN(meter int)
	AllStale()
}

// Matcher finds how much of a prompt each endpoint holds: out[slot] becomes the number of lead blocks. It gives the largest.
type Matcher interface {
	Match(p blockindex.Prompt, out []int) int
}

// Scratch are the buffers of one loop. They grow to the largest pool seen and hold nothing between requests.
type Scratch struct {
	Clock    Clock
	Observer Observer
	Matcher  Matcher // nil = no prefix index
	Rand     *rand.Rand

	in      Input
	allowed allowed
	all     []Endpoint // every endpoint of the snapshot, read once
	sources []*endpoints.Endpoint
	cand    []Endpoint // those that are left; only compact writes to it
	shared  bool       // cand is all: nothing was dropped yet
	own     []Endpoint // memory of cand once something was
	place   []int      // of cand[i] in all
	keep    []bool
	scores  []float32
	totals  []float32
	ranked  []int
	matches []int
	matched bool // matches are this request's
	names   []string
	results []Result
	best    []*endpoints.Endpoint // what Outcome.Ranked shows

	blemishes []blemish   // what is held against endpoints of all
	picker    *PickerStep // of the profile that ran last
	due       blemish     // a suspended endpoint of the profile that ran last which may be tried; at = -1: none
}

// Outcome is what a scheduling cycle came to.
type Outcome struct {
	Ranked   []*endpoints.Endpoint // of the primary profile, best first; empty if Reason is set. Valid until the next Run
	Reason   messages.Reason
	Detail   string
	Decision messages.Decision

	Probe        bool // the first of Ranked is suspended, and this request tries it
	PrefixBlocks int  // of the request, how many lead blocks the best of Ranked holds; -1 = nobody looked
}

// reads is everything that the plan looks at.
func (p *Plan) reads() Reads {
	var r Reads
	for i := range p.Profiles {
		for _, f := range p.Profiles[i].Filters {
			r |= f.Reads
		}
		for _, s := range p.Profiles[i].Scorers {
			r |= s.Reads
		}
	}
	return r
}

// gather reads every endpoint once, so that all profile runs of the request see the same.
func (s *Scratch) gather(req *messages.Request, snap *endpoints.Snapshot, now time.Time, plan *Plan) {
	s.all, s.sources, s.matched = grow(s.all, len(snap.Endpoints))[:0], s.sources[:0], false
	s.blemishes = s.blemishes[:0]
	s.allowed.restrict(req.Subset)
	defer s.allowed.forget()
	for _, e := range snap.Endpoints {
		if !s.allowed.admits(e.Spec.Address) {
			continue
		}
		s.sources = append(s.sources, e)
		s.all = s.all[:len(s.all)+1]
		read(e, now, plan.Stale, &s.all[len(s.all)-1])
		s.inspect(e, now)
	}
	if len(s.all) == 0 || plan.reads()&ReadsPrefix == 0 || s.Matcher == nil || req.Blocks.Len() == 0 {
		return
	}
	s.matches = grow(s.matches, snap.Slots())
	clear(s.matches)
	s.matched = true
	s.Matcher.Match(blockindex.Prompt{Model: req.Model, Salt: req.Salt, Blocks: req.Blocks}, s.matches)
	for i := range s.all {
		s.all[i].PrefixBlocks = s.matches[s.all[i].ID.Slot]
	}
}

// read writes an endpoint where it is kept: it is large, and all are read for each request.
func read(e *endpoints.Endpoint, now time.Time, stale time.Duration, out *Endpoint) {
	load, smp := e.Load(), e.Sample()
	if smp == nil {
		*out = Endpoint{
			ID: e.ID, Address: e.Spec.Address, Labels: e.Labels,
			InflightRequests: load.Inflight(), InflightTokens: load.Tokens(),
		}
		return
	}
	*out = Endpoint{
		ID: e.ID, Address: e.Spec.Address, Labels: e.Labels,
		Fresh: smp.Fresh(now, stale), Waiting: smp.Waiting + load.Since(), Running: smp.Running, KVUsed: smp.KVUsed,
		ActiveLoRAs: smp.ActiveLoRAs, WaitingLoRAs: smp.WaitingLoRAs, MaxLoRAs: smp.MaxLoRAs,
		InflightRequests: load.Inflight(), InflightTokens: load.Tokens(),
	}
}

// grow gives a slice of length n, from buf if it is large enough. Its content is whatever was there.
func grow[T any](buf []T, n int) []T {
	if cap(buf) >= n {
		return buf[:n]
	}
	return make([]T, n, n+n/2)
}
