package pickers

import (
	"math"

	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// MaxScore picks the endpoints with the highest totals, best first. Endpoints with equal totals are ordered at random.
type MaxScore struct{ Destinations }

// Pick moves the best candidate that is left to the front, once for each destination.
func (p *MaxScore) Pick(in *schedule.Input, totals []float32, ranked []int) []int {
	ranked, start, n := p.begin(len(totals), ranked)
	left := ranked[start:]
	for range n {
		j := best(in, totals, left)
		left[0], left[j] = left[j], left[0]
		left = left[1:]
	}
	return ranked[:start+n]
}

// best returns the position in left of the highest total; of several equal ones it draws one. A total that is NaN
// counts as the lowest.
func best(in *schedule.Input, totals []float32, left []int) int {
	at, top, ties := 0, ordered(totals[left[0]]), 1
	for j, i := range left[1:] {
		total := totals[i]
		if total < top || total != total && !math.IsInf(float64(top), -1) {
			continue
		}
		if total > top {
			at, top, ties = j+1, total, 1
			continue
		}
		ties++
		if in.Rand().IntN(ties) == 0 { // reservoir sampling: each of the ties is equally likely
			at = j + 1
		}
	}
	return at
}

// ordered returns a total that can be compared: NaN becomes minus infinity.
func ordered(total float32) float32 {
	if math.IsNaN(float64(total)) {
		return float32(math.Inf(-1))
	}
	return total
}
