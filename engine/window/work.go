package window

import (
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

// pace is how fast an endpoint computes prompts.
type pace struct {
	all  sums    // of all first tokens
	full sums    // of those before which whole steps of prompts were computed
	best peak    // of full
	top  peak    // of all
	peak float64 // the highest rate of late, by whole steps if there were any; 0 = unknown
}

// add takes in that a first token took so long, before which so many tokens were computed.
func (p *pace) add(now time.Time, tokens int, took time.Duration) {
	if tokens < paceLeast || took <= 0 {
		return
	}
	p.all.add(now, tokens, took)
	p.top.add(now, p.all.rate())
	if tokens >= StepTokens {
		p.full.add(now, tokens, took)
	}
	if tokens >= StepTokens && p.full.count >= fewFirsts {
		p.best.add(now, p.full.rate())
	}
	if p.peak = p.best.most(now); p.peak == 0 { // no whole steps were seen of late
		p.peak = p.top.most(now)
	}
}

// rate returns how many tokens of prompts the endpoint computes in a second; 0 = unknown.
func (p *pace) rate() float64 { return p.all.rate() }

// reads reports whether nothing but prompts keeps the endpoint from the first tokens of others: while it has whole
// steps of prompts to compute, it computes them half as fast as it was seen to at least. Where requests wait for
// something else, for sequences that must end first, the same tokens take longer.
func (p *pace) reads(now time.Time) bool {
	return p.full.count >= fewFirsts && now.Sub(p.full.last) < paceOver && p.full.rate() >= p.best.most(now)/2
}

// sums are what first tokens took, and what was computed meanwhile. Older ones matter less.
type sums struct {
	tokens, seconds float64
	count           int
	last            time.Time
}

func (s *sums) add(now time.Time, tokens int, took time.Duration) {
	if s.count > 0 {
		left := math.Exp(-max(now.Sub(s.last).Seconds(), 0) / paceOver.Seconds())
		left = max(left, .05) // nothing newer says more
		s.tokens, s.seconds = s.tokens*left, s.seconds*left
	}
	s.tokens += float64(tokens)
	s.seconds += took.Seconds()
	s.count++
	s.last = now
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
