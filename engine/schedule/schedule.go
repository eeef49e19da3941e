// Package schedule decides which endpoints serve a request: it runs the profiles of a plan over the candidates. It
// defines the interfaces of the plugins. It reads time and reports only through Clock and Observer, and never sends a
// message.
package schedule

import (
	"math/rand/v2"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/messages"
)

// Input is what a plugin may look at. A plugin must neither keep nor change any of it. Candidates is never empty.
type Input struct {
	Request    *messages.Request // its headers by Header
	Profile    string            // the profile that runs
	Earlier    []Result          // of the profiles that ran before for this request
	Candidates Candidates
	Rand       *rand.Rand // of the loop; seeded, so that a run can be repeated

	run    *profileRun
	values []any // of Private slots; nil in shadow profiles
}

// Numbers returns an attribute that the plugin has declared.
func (in *Input) Numbers(of attributes.NumberSlot) Numbers {
	return Numbers{in.run.numbers(of.Index())}
}

// Picked returns the endpoint that an earlier run ranked first; false = it picked nothing.
func (in *Input) Picked(r *Result) (Candidate, bool) {
	if r.Ranked.Len() == 0 {
		return Candidate{}, false
	}
	return Candidate{&in.run.view.all[r.Ranked.At(0)]}, true
}

// Header returns the value of a header that the plugin has declared, cut to 128 bytes; false = the request does not
// have it.
func (in *Input) Header(of attributes.HeaderSlot) (string, bool) { return header(in.Request, of) }

func header(r *messages.Request, of attributes.HeaderSlot) (string, bool) {
	if r.Headers.Len() == 0 {
		return "", false
	}
	value := r.Headers.At(of.Index())
	return value.Text, value.Given
}

// Names returns an attribute that the plugin has declared.
func (in *Input) Names(of attributes.NamesSlot) Names { return Names{in.run.names(of.Index())} }

// Filter says which candidates stay.
type Filter interface {
	// Filter sets keep[i] to false for each candidate i that goes. All of keep is true at first. If no candidate stays,
	// that is no error of the filter: the request is refused. Filters are called once in each run of a profile, in the
	// order of the configuration, each with what the ones before left. Once nothing is left, no further one is called.
	Filter(in *Input, keep []bool)
}

// Scorer gives each candidate a score.
type Scorer interface {
	// Score sets scores[i] to the score of candidate i, from 0 to 1, 1 the best. All of scores is 0 at first. The
	// profile multiplies each score by the scorer's weight and adds the products up. A score outside of [0,1] is
	// clamped, NaN is taken as 0, and both are counted. Score must not allocate for each candidate, keep memory between
	// requests, or read a clock. Scorers are called once in each run of a profile, after all filters, if any candidate
	// is left.
	Score(in *Input, scores []float32)
}

// Picker orders the candidates.
type Picker interface {
	// Pick appends the indexes of the picked candidates to ranked, best first, and returns it. totals[i] is the
	// weighted sum of the scores of candidate i. The picker is called once in each run of a profile, last, if any
	// candidate is left. If it picks nothing, or returns an index twice or out of range, the request is answered 500.
	Pick(in *Input, totals []float32, ranked []int) []int
}

// BodyUser is a plugin for which it matters whether the bodies of responses are visible. In the light lane they bypass
// Signalbox.
type BodyUser interface {
	// WithoutBody says what the plugin, with its parameters, cannot do or does otherwise for a response whose body
	// bypasses; "" = nothing. It is called after Arrange.
	WithoutBody() string
}

// Reader is a plugin that reads attributes of endpoints, or headers of requests.
type Reader interface {
	// Declare asks for the slots of the attributes and headers that the plugin reads, and keeps them. It is called
	// once, after the parameters were decoded and before the plugin runs. What no plugin declares is not gathered.
	Declare(r *attributes.Reader)
}
