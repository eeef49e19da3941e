package scorers

import "github.com/signalbox-epp/signalbox/engine/schedule"

// RunningRequests prefers the smallest batch among the candidates: the server that runs fewest requests scores 1, the
// one that runs most 0, in between in proportion; all equal score 1.
type RunningRequests struct{}

// Validate returns nil: there are no parameters.
func (RunningRequests) Validate() error { return nil }

// Reads reports that the sample must be fresh.
func (RunningRequests) Reads() schedule.Reads { return schedule.ReadsSample }

// Score compares the candidates' batches.
func (RunningRequests) Score(in *schedule.Input, scores []float32) {
	lo, hi := in.Candidates.At(0).Running(), in.Candidates.At(0).Running()
	for i := range in.Candidates.Len() {
		lo, hi = min(lo, in.Candidates.At(i).Running()), max(hi, in.Candidates.At(i).Running())
	}
	for i := range in.Candidates.Len() {
		scores[i] = below(in.Candidates.At(i).Running(), lo, hi)
	}
}
