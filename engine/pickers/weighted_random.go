package pickers

import (
	"math"

	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// WeightedRandom picks endpoints at random, each with a probability in proportion to its total. Where all totals that
// are left are 0 it picks among them as random-picker does.
type WeightedRandom struct{ Destinations }

// Pick draws endpoints without replacement.
func (p *WeightedRandom) Pick(in *schedule.Input, totals []float32, ranked []int) []int {
	ranked, start, n := p.begin(len(totals), ranked)
	left := ranked[start:]
	for range n {
		j := draw(in, totals, left)
		left[0], left[j] = left[j], left[0]
		left = left[1:]
	}
	return ranked[:start+n]
}

// draw returns a position in left, with a probability in proportion to the weight that stands there.
func draw(in *schedule.Input, totals []float32, left []int) int {
	sum := 0.0
	for _, i := range left {
		sum += weight(totals[i])
	}
	if sum == 0 {
		return in.Rand().IntN(len(left))
	}
	point, last := in.Rand().Float64()*sum, 0
	for j, i := range left {
		w := weight(totals[i])
		if w == 0 {
			continue
		}
		if point < w {
			return j
		}
		point, last = point-w, j
	}
	return last // rounding errors let point pass the last weight
}

// weight returns a total as a weight: negative ones and NaN become 0, and infinity becomes finite.
func weight(total float32) float64 {
	if total > 0 {
		return min(float64(total), math.MaxFloat32)
	}
	return 0
}
