package window

import (
	"cmp"
	"math"
	"time"
)

// StepTokens is how many tokens of prompts an endpoint is given at least, so that the steps of its engine are full.
const StepTokens = 2048

// FirstRate is a guess at how many tokens of prompts an endpoint computes in a second, until first tokens tell.
const FirstRate = 8000

// Ahead is for how many seconds of its prompts an endpoint is given work: so long its line is, and no longer.
const Ahead = 1

const (
	// paceOver is how long a first token matters: of what came so long ago a third is left.
	paceOver = 10 * time.Second
	// paceLeast is how many tokens say something: fewer take a step of the engine, however few they are.
	paceLeast = 256
	// mostRate is a rate that no endpoint has.
	mostRate = 1e9
)

// Pace is how soon an endpoint gives first tokens, as they have shown.
type Pace struct {
	Rate int // tokens of prompts that it computes in a second, whatever else holds it up; 0 = unknown
	// Marginal is how many further tokens of prompts delay a first token by a second; 0 = unknown.
	Marginal int
	// PerRequest is by how much each request in flight delays the first token of another one, beside its prompt: where
	// sequences have to end before others begin, all prompts may be cached.
	PerRequest time.Duration
	Count      int // first tokens that say so; of older ones a part counts
}

// pace learns a Pace.
type pace struct {
	all  sums // of all first tokens
	full sums // of those before which whole steps of prompts were computed
	best peak // of full
	fit  fit
}

// resume begins with what was learned before.
func (p *pace) resume(now time.Time, before Pace) {
	if before.Rate > 0 {
		p.all = sums{tokens: float64(before.Rate), seconds: 1, last: now}
	}
	if before.Marginal > 0 {
		p.fit.resume(now, 1/float64(before.Marginal), before.PerRequest.Seconds(), float64(before.Count))
	}
}

// add learns from a first token.
func (p *pace) add(now time.Time, f First) {
	tokens, took := float64(f.Prompt+f.Ahead), f.Took.Seconds()
	if took <= 0 {
		return
	}
	p.fit.add(now, tokens, float64(f.Before+1), took)
	if tokens < paceLeast {
		return
	}
	p.all.add(now, tokens, took)
	if tokens < StepTokens {
		return
	}
	if p.full.add(now, tokens, took); p.full.count >= fewFirsts {
		p.best.add(now, p.full.rate())
	}
}

// learned returns what is known at a time.
func (p *pace) learned(now time.Time) Pace {
	known := Pace{Rate: int(p.all.rate())}
	if p.fit.count > 0 {
		token, request := p.fit.solve(1 / cmp.Or(p.best.most(now), FirstRate))
		known.Marginal, known.PerRequest = int(1/token), time.Duration(request*float64(time.Second))
		known.Count = int(math.Round(p.fit.count))
	}
	return known
}

// reads reports whether nothing but prompts keeps the endpoint from the first tokens of others, which has had whole
// steps of prompts to compute since a time: it computes them half as fast as it was seen to at least, or few first
// tokens have told yet, for which those prompts may be too long. Where requests wait for something else, for sequences
// that must end first, the same tokens take longer.
func (p *pace) reads(now, since time.Time, prompts int) bool {
	if p.full.last.After(since) {
		since = p.full.last
	}
	longest := paceOver.Seconds() + float64(prompts)/cmp.Or(p.all.rate(), FirstRate)
	return now.Sub(since).Seconds() < longest && (p.full.count < fewFirsts || p.full.rate() >= p.best.most(now)/2)
}

// late returns by how many seconds a first token came later than at half the best rate.
func (p *pace) late(now time.Time, f First) float64 {
	tokens, best := float64(f.Prompt+f.Ahead), p.best.most(now)
	if tokens < StepTokens || best == 0 {
		return f.Took.Seconds()
	}
	return max(f.Took.Seconds()-2*tokens/best, 0)
}

// sums are what first tokens took, and how many tokens were computed meanwhile. Older ones matter less.
type sums struct {
	tokens, seconds float64
	count           int
	last            time.Time
}

func (s *sums) add(now time.Time, tokens, seconds float64) {
	if s.count > 0 {
		left := left(now.Sub(s.last))
		s.tokens, s.seconds = s.tokens*left, s.seconds*left
	}
	s.tokens += tokens
	s.seconds += seconds
	s.count++
	s.last = now
}

// left is which part of its weight what is so old has; nothing newer says more.
func left(age time.Duration) float64 {
	return max(math.Exp(-max(age, 0).Seconds()/paceOver.Seconds()), .05)
}

// rate returns tokens by a second; 0 = unknown.
func (s *sums) rate() float64 {
	if s.seconds == 0 {
		return 0
	}
	return min(s.tokens/s.seconds, mostRate)
}

// peak is the highest rate of this epoch and the one before. What is older says nothing any more.
type peak struct {
	began            time.Time
	newest, previous float64
}

func (p *peak) add(now time.Time, rate float64) {
	if now.Sub(p.began) > floorFor {
		p.began, p.previous, p.newest = now, p.newest, 0
	}
	p.newest = max(p.newest, rate)
}

func (p *peak) most(now time.Time) float64 {
	if now.Sub(p.began) > 2*floorFor {
		return 0
	}
	return max(p.newest, p.previous)
}
