package scorers

import (
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// QueueDepth prefers the shortest queue among the candidates: the shortest scores 1, the longest 0, in between in
// proportion; all equal score 1. The queue of a server is what it reported last, and the requests sent to it since. A
// server that does not report its queue scores the mean of those that do. A server whose answer is stale is passed by;
// while all are stale, in-flight load stands in.
type QueueDepth struct{ queued attributes.NumberSlot }

// Validate returns nil: there are no parameters.
func (*QueueDepth) Validate() error { return nil }

// Declare asks for the queue.
func (s *QueueDepth) Declare(r *attributes.Reader) {
	s.queued = r.Number(attributes.QueuedRequests.Name, "")
}

// Score compares the candidates' queues.
func (s *QueueDepth) Score(in *schedule.Input, scores []float32) {
	preferLeast(in.Numbers(s.queued), scores)
}
