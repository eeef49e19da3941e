package scorers

import (
	"fmt"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// LoadAware prefers servers with a short queue, on a fixed scale: an empty queue scores 0.5, falling to 0 at threshold.
// A server that does not report its queue scores the mean of those that do. A server whose answer is stale is passed
// by; while all are stale, in-flight load stands in.
//
// Unlike queue-scorer it does not depend on the other candidates, so that its score can be compared between pools.
type LoadAware struct {
	// Threshold is the queue length, in requests, from which a server counts as full; at least 1.
	Threshold int `json:"threshold"`

	queued attributes.NumberSlot
}

// Validate returns which parameters are out of range.
func (s *LoadAware) Validate() error {
	if s.Threshold < 1 {
		return fmt.Errorf("threshold: got %d, want 1 or more", s.Threshold)
	}
	return nil
}

// Declare asks for the queue.
func (s *LoadAware) Declare(r *attributes.Reader) {
	s.queued = r.Number(attributes.QueuedRequests.Name, "")
}

// Score writes half of the free part of each queue.
func (s *LoadAware) Score(in *schedule.Input, scores []float32) {
	queued, unknown := in.Numbers(s.queued), 0
	for i := range scores {
		if x := queued.At(i); x == x {
			scores[i] = float32(0.5 * (1 - min(x/float64(s.Threshold), 1)))
		} else {
			unknown++
		}
	}
	if unknown > 0 {
		scoreUnknown(queued, scores, 0)
	}
}
