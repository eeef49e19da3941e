package policybench

import "math"

// at returns the play of a load, which is a factor of the calibrated one.
func (s *setting) at(load float64, seed uint64) Play {
	p := s.play
	p.Seed = seed
	p.scale(load * s.unit)
	return p
}

// scale sets the number of clients or the rate.
func (p *Play) scale(by float64) {
	if p.Load.Clients > 0 {
		p.Load.Clients = max(int(math.Round(by)), 1)
		return
	}
	p.Load.Rate = by
	p.Load.Skip = int(p.Seed-1) * len(p.Load.Trace.Requests) / skips
}

// skips is how many parts of an open loop's trace there are, at which plays of successive seeds begin.
const skips = 8

// justServed is the 90th percentile of seconds to the first token up to which ideal sticky is not saturated: the load at
// which it comes to that is 1.0.
const justServed = 1.0

// calibrate finds the load 1.0 of a setting, to a few percent. What events do to servers is left out, and all servers
// are there from the beginning.
func (s *setting) calibrate() error {
	low, high := 1.0, 1500.0
	if s.play.Load.Clients == 0 {
		low, high = .05, 200
	}
	ideal := Contender{Name: denominator, rule: newIdealSticky}
	for high/low > 1.03 {
		mid := math.Sqrt(low * high)
		var p90 float64
		for seed := uint64(1); seed <= calibrationSeeds; seed++ {
			p := s.play
			p.Events, p.Away, p.Seed = nil, 0, seed
			p.scale(mid)
			o, err := Run(p, ideal)
			if err != nil {
				return err
			}
			p90 += o.P90 / calibrationSeeds
			if p90 > justServed {
				break
			}
		}
		if p90 > justServed {
			high = mid
		} else {
			low = mid
		}
	}
	s.unit = low
	return nil
}

const calibrationSeeds = 2
