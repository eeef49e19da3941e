package scorers

import (
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// RunningRequests prefers the smallest batch among the candidates: the server that runs fewest requests scores 1, the
// one that runs most 0, in between in proportion; all equal score 1. A server that does not report its batch scores the
// mean of those that do. A server whose answer is stale is passed by; while all are stale, in-flight load stands in.
type RunningRequests struct{ running attributes.NumberSlot }

// Validate returns nil: there are no parameters.
func (*RunningRequests) Validate() error { return nil }

// Declare asks for the batch.
func (s *RunningRequests) Declare(r *attributes.Reader) {
	s.running = r.Number(attributes.RunningRequests.Name, "")
}

// Score compares the candidates' batches.
func (s *RunningRequests) Score(in *schedule.Input, scores []float32) {
	preferLeast(in.Numbers(s.running), scores)
}
