package pickers

import "github.com/signalbox-epp/signalbox/engine/schedule"

// Random picks endpoints at random, whatever their totals. It is the base line to compare others with.
type Random struct{ Destinations }

// Pick draws endpoints without replacement.
func (p *Random) Pick(in *schedule.Input, totals []float32, ranked []int) []int {
	ranked, start, n := p.begin(len(totals), ranked)
	left := ranked[start:]
	for i := range n {
		j := i + in.Rand().IntN(len(left)-i)
		left[i], left[j] = left[j], left[i]
	}
	return ranked[:start+n]
}
