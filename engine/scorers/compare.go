package scorers

import (
	"math"

	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// preferLeast scores the least value 1 and the largest 0, those between in proportion; 1 if all are equal. A value that
// is unknown scores the mean of the others, and 1 if none is known.
func preferLeast(values schedule.Numbers, scores []float32) {
	lo, hi, unknown := math.Inf(1), math.Inf(-1), 0
	for i := range scores {
		if x := values.At(i); x == x {
			lo, hi = min(lo, x), max(hi, x)
		} else {
			unknown++
		}
	}
	span := hi - lo
	for i := range scores {
		scores[i] = 1
		if span > 0 {
			scores[i] = float32((hi - values.At(i)) / span)
		}
	}
	if unknown > 0 {
		scoreUnknown(values, scores, 1)
	}
}

// scoreUnknown scores values that are unknown: the mean of the scores of the others, or otherwise if none is known.
func scoreUnknown(values schedule.Numbers, scores []float32, otherwise float32) {
	sum, known := float32(0), 0
	for i, score := range scores {
		if x := values.At(i); x == x {
			sum += score
			known++
		}
	}
	if known > 0 {
		otherwise = sum / float32(known)
	}
	for i := range scores {
		if x := values.At(i); x != x {
			scores[i] = otherwise
		}
	}
}
