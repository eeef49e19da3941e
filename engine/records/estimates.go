package records

import (
	"maps"
	"math"
	"sync/atomic"

	"github.com/signalbox-epp/signalbox/messages"
)

const (
	maxForms     = 1000 // models and forms that are told apart; the one that was learned from longest ago makes way
	memory       = 128  // answers after which an older one weighs a third
	fewest       = 6    // answers of a form before anything is said of it
	trusted      = 64   // answers after which one in sparseEvery is enough
	sparseEvery  = 4
	worstShare   = 0.15 // of the estimate, that the fit alone may make it wrong by: one standard error
	worstTokens  = 1    // likewise, in tokens, for short answers
	worstOff     = 0.5  // of the truth, that estimates of answers that told it were wrong by, in the mean
	farOff       = 3    // standard deviations beyond which an answer is an outlier
	leastNoise   = 0.1  // of the bytes of a token: what is taken for the noise where answers show less
	farOffInARow = 6    // outliers in a row are a change of the model server's ways: all before is forgotten
)

// Answer is what decides an estimate.
type Answer struct {
	Model string
	Form  messages.AnswerForm
	Usage bool  // the request asked for token usage
	Bytes int64 // of the body that passed; 0 = unknown
	Whole bool  // that is all of it
}

// Estimates tell output tokens from the bytes of a response that did not say how many it has, or was not read. They
// learn from responses that did: for each model and form a constant and the bytes of a token.
//
// All loops share one Estimates, for the answers that are seen in full are few. What is known of a form is an immutable
// value behind an atomic pointer. An answer whose update meets another one's is not learned from: there will be more.
type Estimates struct {
	forms atomic.Pointer[map[form]*cell]
	clock atomic.Uint64 // answers learned from
}

// form is what must be alike in two answers for their bytes to compare.
type form struct {
	model string
	messages.AnswerForm
}

type cell struct {
	fit  atomic.Pointer[fit]
	seen atomic.Uint64 // answers of the form that told their tokens
}

// NewEstimates knows nothing.
func NewEstimates() *Estimates {
	e := &Estimates{}
	e.forms.Store(&map[form]*cell{})
	return e
}

// Learn takes a whole answer whose tokens the model server reported.
func (e *Estimates) Learn(a *Answer, u *messages.Usage) {
	if u.Source != messages.UsageReported || u.OutputTokens <= 0 || a.Bytes <= 0 || !a.Whole || !estimable(a) {
		return
	}
	c := e.cell(form{a.Model, a.Form})
	if c == nil {
		return
	}
	known, now := c.fit.Load(), e.clock.Add(1)
	turn := c.seen.Add(1) // of this form: forms that take turns must not hide from each other
	if known != nil && known.answers >= trusted && known.odd == 0 && turn%sparseEvery != 0 {
		return
	}
	next := &fit{}
	if known != nil {
		*next = *known
	}
	own := float64(0)
	if separate(a) {
		own = float64(u.OwnBytes)
		next.noteOwn(own)
	}
	next.learn(float64(a.Bytes)-own, float64(u.OutputTokens))
	next.at = now
	c.fit.CompareAndSwap(known, next)
}

// Usage is the usage of an answer whose model server did not report it to us: estimated,
// or unknown for a reason that it names.
func (e *Estimates) Usage(a *Answer) messages.Usage {
	switch {
	case !estimable(a):
		return messages.Usage{Source: messages.UsageNotEstimable}
	case a.Bytes <= 0:
		return messages.Usage{Source: messages.UsageNotMeasured}
	}
	c := (*e.forms.Load())[form{a.Model, a.Form}]
	if c == nil {
		return messages.Usage{Source: messages.UsageNotLearned}
	}
	f := c.fit.Load()
	if f == nil {
		return messages.Usage{Source: messages.UsageNotLearned}
	}
	bytes := float64(a.Bytes)
	if a.Whole && separate(a) {
		bytes -= f.own
	}
	tokens, ok := f.tokens(bytes)
	if !ok {
		return messages.Usage{Source: messages.UsageNotLearned}
	}
	fewestTokens := 0.0
	if a.Whole {
		fewestTokens = 1
	}
	tokens = min(max(math.Round(tokens), fewestTokens), math.MaxInt32)
	return messages.Usage{Source: messages.UsageEstimated, OutputTokens: int(tokens)}
}

// estimable reports whether the bytes of an answer say how many tokens it has.
func estimable(a *Answer) bool {
	return a.Form.API != messages.UnknownAPI && !a.Form.RepeatsMore
}

// separate reports whether usage has an event of its own: it does not count,
// so that streams with usage teach of those without.
func separate(a *Answer) bool { return a.Form.Stream && a.Usage && !a.Form.UsageInEach }

// cell is where a form is kept; nil if another loop has just added one.
func (e *Estimates) cell(f form) *cell {
	known := e.forms.Load()
	if c := (*known)[f]; c != nil {
		return c
	}
	next := maps.Clone(*known)
	if len(next) >= maxForms {
		delete(next, oldest(next))
	}
	c := &cell{}
	next[f] = c
	if !e.forms.CompareAndSwap(known, &next) {
		return nil
	}
	return c
}

// oldest is the form that was learned from longest ago.
func oldest(forms map[form]*cell) (found form) {
	at := uint64(math.MaxUint64)
	for f, c := range forms {
		learned := uint64(0)
		if k := c.fit.Load(); k != nil {
			learned = k.at
		}
		if learned < at {
			found, at = f, learned
		}
	}
	return found
}
