package fairness

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/flow"
)

// leastAttained is the only value of Strategy.
const leastAttained = "las"

// ProgramAware serves next the flow that has attained the least service, as far as the wait of its first request does
// not weigh against that: each flow scores lasWeightService times 1 for the least and 0 for the most service of those
// that have requests waiting, and lasWeightHeadWait times 1 for the longest and 0 for the shortest wait, and the
// highest score is next. Service is the tokens of prompts, and twice those of output, of which half is forgotten in
// each lasHalfLifeSeconds.
type ProgramAware struct {
	// Strategy is las, least attained service.
	Strategy string `json:"strategy"`
	// EvictionTTLSeconds is how long a flow must not have been charged for its service to be forgotten; 0 = it never
	// is.
	EvictionTTLSeconds float64 `json:"evictionTtlSeconds"`
	// EvictionSweepSeconds is how often that is looked at in the reference. Here it is with each decision, and memory
	// is bounded by the flows that a band tells apart.
	EvictionSweepSeconds float64 `json:"evictionSweepSeconds" effect:"warning"`
	// LASWeightService is the weight of the service that a flow has attained.
	LASWeightService float64 `json:"lasWeightService"`
	// LASWeightHeadWait is the weight of the wait of its first request.
	LASWeightHeadWait float64 `json:"lasWeightHeadWait"`
	// LASHalfLifeSeconds is after which time half of the service is forgotten; 0 = as lasDecayFactor says.
	LASHalfLifeSeconds float64 `json:"lasHalfLifeSeconds"`
	// LASDecayFactor is which part of the service is left after a second, above 0, at most 1. It has an effect if
	// lasHalfLifeSeconds is 0.
	LASDecayFactor float64 `json:"lasDecayFactor"`
}

// Validate returns which parameters are out of range.
func (p *ProgramAware) Validate() error {
	var errs []error
	if p.Strategy != leastAttained {
		errs = append(errs, fmt.Errorf("strategy: got %q, want %s", clip.Value(p.Strategy), leastAttained))
	}
	for _, c := range []struct {
		name string
		got  float64
	}{
		{"evictionTtlSeconds", p.EvictionTTLSeconds}, {"lasWeightService", p.LASWeightService},
		{"lasWeightHeadWait", p.LASWeightHeadWait}, {"lasHalfLifeSeconds", p.LASHalfLifeSeconds},
	} {
		if !(c.got >= 0 && c.got <= most) {
			errs = append(errs, fmt.Errorf("%s: got %v, want 0 or more, at most %v", c.name, c.got, most))
		}
	}
	if !(p.EvictionSweepSeconds > 0 && p.EvictionSweepSeconds <= most) {
		errs = append(errs, fmt.Errorf("evictionSweepSeconds: got %v, want more than 0, at most %v",
			p.EvictionSweepSeconds, most))
	}
	if !(p.LASDecayFactor > 0 && p.LASDecayFactor <= 1) {
		errs = append(errs, fmt.Errorf("lasDecayFactor: got %v, want more than 0, at most 1", p.LASDecayFactor))
	}
	return errors.Join(errs...)
}

// most bounds what is given in seconds, and weights.
const most = 1e9

// service returns what is left of a flow's service.
func (p *ProgramAware) service(a *flow.Account, now time.Time) float64 {
	if a.Service == 0 {
		return 0
	}
	since := max(now.Sub(a.At).Seconds(), 0)
	switch {
	case p.EvictionTTLSeconds > 0 && since > p.EvictionTTLSeconds:
		return 0
	case p.LASHalfLifeSeconds > 0:
		return float64(a.Service) * math.Exp2(-since/p.LASHalfLifeSeconds)
	case p.LASDecayFactor < 1:
		return float64(a.Service) * math.Pow(p.LASDecayFactor, since)
	}
	return float64(a.Service)
}

// Charge adds to what is left of the service.
func (p *ProgramAware) Charge(a *flow.Account, now time.Time, t flow.Tokens) {
	a.Service = int64(math.Round(p.service(a, now))) + t.Prompt + 2*t.Output
}

// Choose returns the flow with the highest score, and of equal ones that whose request came first.
func (p *ProgramAware) Choose(now time.Time, all []flow.Candidate) int {
	service, wait := span{math.Inf(1), math.Inf(-1)}, span{math.Inf(1), math.Inf(-1)}
	for i := range all {
		all[i].Value = p.service(all[i].Account, now)
		service.widen(all[i].Value)
		wait.widen(waited(&all[i], now))
	}
	best, highest := 0, math.Inf(-1)
	for i := range all {
		score := p.LASWeightService*(1-service.place(all[i].Value)) +
			p.LASWeightHeadWait*wait.place(waited(&all[i], now))
		if score > highest || score == highest && all[i].Head.Number < all[best].Head.Number {
			best, highest = i, score
		}
	}
	return best
}

func waited(c *flow.Candidate, now time.Time) float64 { return now.Sub(c.Head.Arrived).Seconds() }

// span is from the least value to the greatest.
type span struct{ least, greatest float64 }

func (s *span) widen(to float64) { s.least, s.greatest = min(s.least, to), max(s.greatest, to) }

// place returns where a value stands: 0 = it is the least, or all are equal; 1 = the greatest.
func (s *span) place(v float64) float64 {
	if s.greatest <= s.least {
		return 0
	}
	return (v - s.least) / (s.greatest - s.least)
}

// Rank returns the service as it was charged last.
func (*ProgramAware) Rank(a *flow.Account, _ *flow.Entry) int64 { return a.Service }

// Join changes nothing: service that is long ago is forgotten.
func (*ProgramAware) Join(*flow.Account, int64) {}
