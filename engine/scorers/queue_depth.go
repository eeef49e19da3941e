package scorers

import "github.com/signalbox-epp/signalbox/engine/schedule"

// QueueDepth prefers the shortest queue among the candidates: the shortest scores 1, the longest 0, in between in
// proportion; all equal score 1. The queue of a server is what it reported last, and the requests sent to it since.
type QueueDepth struct{}

// Validate returns nil: there are no parameters.
func (QueueDepth) Validate() error { return nil }

// Reads reports that the sample must be fresh.
func (QueueDepth) Reads() schedule.Reads { return schedule.ReadsSample }

// Score compares the candidates' queues.
func (QueueDepth) Score(in *schedule.Input, scores []float32) {
	lo, hi := in.Candidates.At(0).Waiting(), in.Candidates.At(0).Waiting()
	for i := range in.Candidates.Len() {
		lo, hi = min(lo, in.Candidates.At(i).Waiting()), max(hi, in.Candidates.At(i).Waiting())
	}
	for i := range in.Candidates.Len() {
		scores[i] = below(in.Candidates.At(i).Waiting(), lo, hi)
	}
}

// below returns 1 at lo and 0 at hi, in proportion between them; 1 if they are equal.
func below(n, lo, hi int) float32 {
	if hi == lo {
		return 1
	}
	return float32((float64(hi) - float64(n)) / (float64(hi) - float64(lo)))
}
