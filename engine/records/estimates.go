package records

import (
	"maps"
	"math"
	"sync/atomic"

	"github.com/signalbox-epp/signalbox/engine/cow"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	maxForms     = 1000 // pairs of model and form that are kept; the one that was learned from longest ago makes way
	memory       = 128  // answers after which the weight of an older one has fallen to a third
	fewest       = 6    // answers of a form before there are estimates
	trusted      = 64   // answers of a form after which only one in sparseEvery is learned from
	sparseEvery  = 4
	worstShare   = 0.15 // standard error of an estimate, as a share of it, up to which it is given
	worstTokens  = 1    // the same in tokens, which counts if it is more
	worstOff     = 0.5  // mean relative error of estimates of answers that told their tokens, up to which one is given
	farOff       = 3    // standard deviations beyond which an answer is an outlier
	leastNoise   = 0.1  // the noise is taken to be at least this share of the bytes of a token
	farOffInARow = 6    // outliers in a row that mean that the model server has changed: all before is forgotten
)

// Answer is what an estimate depends on.
type Answer struct {
	Model string
	Form  messages.AnswerForm
	Usage bool  // the request asked for token usage
	Bytes int64 // of the body, that passed; 0 = unknown
	Whole bool  // Bytes are those of the whole body
}

// Estimates estimates the output tokens of a response from its bytes, if it did not report them or was not read. It
// learns from responses that report them: for each model and form a constant, and the bytes of a token.
//
// All loops share one Estimates, because few answers are seen in full. What is known of a form is an immutable value
// behind an atomic pointer. If two answers update it at once, only one of them is learned from.
type Estimates struct {
	forms cow.Map[form, *cell]
	clock atomic.Uint64 // answers learned from so far
}

// form is what two answers must have in common for their bytes to be compared.
type form struct {
	model string
	messages.AnswerForm
}

// cell is what is known of one form.
type cell struct {
	fit  atomic.Pointer[fit] // nil = nothing yet
	seen atomic.Uint64       // answers of the form that told their tokens
}

// NewEstimates returns Estimates that have learned nothing.
func NewEstimates() *Estimates {
	return new(Estimates)
}

// Learn learns from an answer, if it is whole and the model server reported its tokens.
func (e *Estimates) Learn(a *Answer, u *messages.Usage) {
	if u.Source != messages.UsageReported || u.OutputTokens <= 0 || a.Bytes <= 0 || !a.Whole || !estimable(a) {
		return
	}
	c := e.cell(form{a.Model, a.Form})
	known, now := c.fit.Load(), e.clock.Add(1)
	turn := c.seen.Add(1) // counted by form: forms that alternate must not always be left out
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

// Usage returns the usage of an answer of which none was reported: an estimate, or the reason why there is none.
func (e *Estimates) Usage(a *Answer) messages.Usage {
	switch {
	case !estimable(a):
		return messages.Usage{Source: messages.UsageNotEstimable}
	case a.Bytes <= 0:
		return messages.Usage{Source: messages.UsageNotMeasured}
	}
	c, known := e.forms.Get(form{a.Model, a.Form})
	if !known {
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

// Roughly returns how many tokens the bytes of an answer hold if nothing was learned of its form: as many as there are
// events of the usual length in a stream, or words of the usual length in a text. An answer whose text is not its
// output alone has few.
func (a *Answer) Roughly() int64 {
	const event, message, word = 200, 16, 4
	switch {
	case a.Bytes <= 0:
		return 0
	case a.Form.API == messages.EngineAPI:
		return max(a.Bytes/message, 1)
	case a.Form.Stream || !estimable(a):
		return max(a.Bytes/event, 1)
	}
	return max(a.Bytes/word, 1)
}

// estimable reports whether the bytes of an answer say how many tokens it has.
func estimable(a *Answer) bool {
	return a.Form.API != messages.UnknownAPI && !a.Form.RepeatsMore
}

// separate reports whether usage comes in an event of its own. Its bytes are not counted, so that streams with and
// without usage can be compared.
func separate(a *Answer) bool { return a.Form.Stream && a.Usage && !a.Form.UsageInEach }

// cell returns what is known of a form, and adds it if it is new: in place of the oldest if there are too many.
func (e *Estimates) cell(f form) *cell {
	c, known := e.forms.Get(f)
	if known {
		return c
	}
	e.forms.Change(func(now map[form]*cell) map[form]*cell {
		if c, known = now[f]; known { // another loop was faster
			return nil
		}
		next := make(map[form]*cell, len(now)+1)
		maps.Copy(next, now)
		if len(next) >= maxForms {
			delete(next, oldest(next))
		}
		c = new(cell)
		next[f] = c
		return next
	})
	return c
}

// oldest returns the form that was learned from longest ago.
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
