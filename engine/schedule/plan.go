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

// Scratch are the buffers of one loop. They grow to the largest pool seen. From one request to the next they keep what was read of
// endpoints, which is read again only where it changed, and nothing of the request.
type Scratch struct {
	Clock    Clock
	Observer Observer
	Matcher  Matcher // nil = no prefix index
	Rand     *rand.Rand

	in      Input
	allowed allowed
	all     []Endpoint    // every endpoint of the snapshot, read once
	known   []known       // what all[i] was read from; as long as all can be
	stale   time.Duration // under which it is known
	sources []*endpoints.Endpoint
	cand    []Endpoint // those that are left; only compact writes to it
	shared  bool       // cand is all: nothing was dropped yet
	own     []Endpoint // memory of cand once something was
	place   []int      // of cand[i] in all
	keep    []bool
	scores  []float32 // of the scorer that runs
	totals  []float32
	ranked  []int
	matches []int
	matched bool // matches are this request's
	names   []string
	results []Result
	best    []*endpoints.Endpoint // what Outcome.Ranked shows

	outliers []out       // of all
	last     []uint32    // places of those that come last, in the profile that ran last
	picker   *PickerStep // likewise
	due      out         // which the profile that ran last may probe; at = -1: none
}

// Outcome is what a scheduling cycle came to.
type Outcome struct {
	Ranked   []*endpoints.Endpoint // of the primary profile, best first; empty if Reason is set. Valid until the next Run
	Reason   messages.Reason
	Detail   string
	Decision messages.Decision

	Probe        bool // this request is the probe of the first of Ranked
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
	s.room(len(snap.Endpoints), plan.Stale)
	s.sources, s.matched = s.sources[:0], false
	s.outliers = s.outliers[:0]
	s.allowed.restrict(req.Subset)
	defer s.allowed.forget()
	for _, e := range snap.Endpoints {
		if !s.allowed.admits(e.Spec.Address) {
			continue
		}
		s.sources = append(s.sources, e)
		s.read(e, now)
		s.inspect(e)
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

// known is what an Endpoint was read from. While it is the same, so is most of the Endpoint.
type known struct {
	endpoint *endpoints.Endpoint
	sample   *endpoints.Sample
	waiting  int       // in it
	until    time.Time // it is fresh
}

// room makes all large enough for n endpoints, and forgets what is of no use: in other memory, or under another threshold.
func (s *Scratch) room(n int, stale time.Duration) {
	if cap(s.all) < n {
		s.all = make([]Endpoint, n, n+n/2)
		s.known = make([]known, cap(s.all))
	}
	if s.all = s.all[:0]; s.stale != stale {
		s.stale = stale
		clear(s.known)
	}
}

// read appends an endpoint to all. What depends on its identity and its sample alone is written only if one of them is another than
// when this place was read last: most of it is pointers, and the memory of samples is far away.
func (s *Scratch) read(e *endpoints.Endpoint, now time.Time) {
	at := len(s.all)
	s.all = s.all[:at+1]
	out, k := &s.all[at], &s.known[at]
	load, smp := e.Load(), e.Sample()
	if k.endpoint != e || k.sample != smp {
		*out = Endpoint{ID: e.ID, Address: e.Spec.Address, Labels: e.Labels}
		*k = known{endpoint: e, sample: smp}
		if smp != nil {
			k.waiting, k.until = smp.Waiting, smp.FreshUntil(s.stale)
			out.Running, out.KVUsed = smp.Running, smp.KVUsed
			out.ActiveLoRAs, out.WaitingLoRAs, out.MaxLoRAs = smp.ActiveLoRAs, smp.WaitingLoRAs, smp.MaxLoRAs
		}
	}
	if smp != nil {
		out.Fresh, out.Waiting = !now.After(k.until), k.waiting+load.Since()
	}
	out.Failing = e.Failing.Load()
	out.InflightRequests, out.InflightTokens, out.PrefixBlocks = load.Inflight(), load.Tokens(), 0
}

// grow gives a slice of length n, from buf if it is large enough. Its content is whatever was there.
func grow[T any](buf []T, n int) []T {
	if cap(buf) >= n {
		return buf[:n]
	}
	return make([]T, n, n+n/2)
}
