package schedule

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
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
