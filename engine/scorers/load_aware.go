package scorers

import (
	"fmt"

	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// LoadAware prefers servers with a short queue, on a fixed scale: an empty queue scores 0.5, falling to 0 at threshold.
//
// Unlike queue-scorer it does not depend on the other candidates, so that its score can be compared between pools.
type LoadAware struct {
	// Threshold is the queue length, in requests, from which a server counts as full; at least 1.
	Threshold int `json:"threshold"`
}

// Validate returns which parameters are out of range.
func (s *LoadAware) Validate() error {
	if s.Threshold < 1 {
		return fmt.Errorf("threshold: got %d, want 1 or more", s.Threshold)
	}
	return nil
}

// Reads reports that the sample must be fresh.
func (*LoadAware) Reads() schedule.Reads { return schedule.ReadsSample }

// Score writes half of the free part of each queue.
func (s *LoadAware) Score(in *schedule.Input, scores []float32) {
	for i := range in.Candidates.Len() {
		waiting := min(max(in.Candidates.At(i).Waiting(), 0), s.Threshold)
		scores[i] = 0.5 * (1 - float32(waiting)/float32(s.Threshold))
	}
}
