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

// halfLife returns after how many seconds half of the service is forgotten, a millisecond at least; 0 = never.
func (p *ProgramAware) halfLife() float64 {
	switch {
	case p.LASHalfLifeSeconds > 0:
		return max(p.LASHalfLifeSeconds, 1e-3)
	case p.LASDecayFactor < 1:
		return max(-1/math.Log2(p.LASDecayFactor), 1e-3)
	}
	return 0
}

// kept returns until when a flow's service counts.
func (p *ProgramAware) kept(a *flow.Account) time.Time {
	if p.EvictionTTLSeconds == 0 {
		return flow.Forever
	}
	return a.At.Add(time.Duration(p.EvictionTTLSeconds * float64(time.Second)))
}

// Charge adds to what is left of the service.
func (p *ProgramAware) Charge(a *flow.Account, now time.Time, t flow.Tokens) {
	left := float64(a.Service)
	if half := p.halfLife(); half > 0 {
		left *= math.Exp2(-max(now.Sub(a.At).Seconds(), 0) / half)
	}
	if a.Service != 0 && now.After(p.kept(a)) {
		left = 0
	}
	a.Service = int64(math.Round(left)) + t.Prompt + 2*t.Output
}

// Point returns the service of a flow and the arrival of its first request. Since the service of all flows is forgotten
// in proportion, it is given as what would have been as much at the beginning of an age that lasts for 256 half-lives.
func (p *ProgramAware) Point(now time.Time, a *flow.Account, head *flow.Entry) (flow.Point, time.Time) {
	half := p.halfLife()
	began, until := 0.0, flow.Forever
	if age := 256 * half; age > 0 && age < most {
		n := math.Floor(seconds(now) / age)
		began = n * age
		until = timeOf((n + 1) * age).Add(-time.Millisecond) // what is rounded must not reach into the next age
	}
	point := flow.Point{X: float64(a.Service), Y: seconds(head.Arrived)}
	if a.Service == 0 {
		return point, until
	}
	kept := p.kept(a)
	if now.After(kept) {
		point.X = 0
		return point, until
	}
	if kept.Before(until) {
		until = kept
	}
	if half > 0 {
		point.X *= math.Exp2(min((seconds(a.At)-began)/half, 512))
	}
	return point, until
}

// seconds returns a time in seconds since 1970, and timeOf the time.
func seconds(t time.Time) float64 { return float64(t.Unix()) + float64(t.Nanosecond())/1e9 }

func timeOf(seconds float64) time.Time {
	whole := math.Floor(seconds)
	return time.Unix(int64(whole), int64((seconds-whole)*1e9))
}

// Weights returns those of the service and of the wait.
func (p *ProgramAware) Weights() flow.Point {
	return flow.Point{X: p.LASWeightService, Y: p.LASWeightHeadWait}
}

// Rank returns the service as it was charged last.
func (*ProgramAware) Rank(a *flow.Account, _ *flow.Entry) int64 { return a.Service }

// Join changes nothing: service that is long ago is forgotten.
func (*ProgramAware) Join(*flow.Account, int64) {}
