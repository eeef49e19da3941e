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

// justServed is the 90th percentile of seconds to the first token up to which ideal sticky is not saturated: the load
// at which it comes to that is 1.0.
const justServed = 1.0

// calibrate finds the load 1.0 of a setting, to a few percent. What events do to servers is left out, and all servers
// are there from the beginning.
func (s *setting) calibrate() (err error) {
	low, high := 1.0, 1500.0
	if s.play.Load.Clients == 0 {
		low, high = .05, 200
	}
	s.unit, err = s.highest(Contender{Name: denominator, rule: newIdealSticky}, justServed, low, high)
	return err
}

const calibrationSeeds = 2

// highest returns the largest number of clients, or rate, from low to high, to 3 %, at which the 90th percentile of a
// policy's seconds to the first token is within a bound; low if there is none.
func (s *setting) highest(c Contender, within, low, high float64) (float64, error) {
	for high/low > 1.03 {
		mid := math.Sqrt(low * high)
		var p90 float64
		for seed := uint64(1); seed <= calibrationSeeds && p90 <= within; seed++ {
			p := s.play
			p.Events, p.Away, p.Seed = nil, 0, seed
			p.scale(mid)
			o, err := Run(p, c)
			if err != nil {
				return 0, err
			}
			p90 += o.P90 / calibrationSeeds
		}
		if p90 > within {
			high = mid
		} else {
			low = mid
		}
	}
	return low, nil
}

// capacityTTFT is the 90th percentile of seconds to the first token within which a policy has its capacity.
const capacityTTFT = .5

// capacity returns how many requests a second of an open loop a policy serves within capacityTTFT, of loads from a
// quarter of the calibrated one to twice that.
func (s *setting) capacity(c Contender) (float64, error) {
	rate, err := s.highest(c, capacityTTFT, s.unit/4, 2*s.unit)
	all := s.play.Load.Trace.Requests
	return rate * float64(len(all)) / max(all[len(all)-1].At.Seconds(), 1), err
}
