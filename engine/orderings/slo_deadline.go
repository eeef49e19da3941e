package orderings

import (
	"math"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

// SLODeadline lets the request go first whose first token is due first: its arrival and the time that its client gave
// in the header x-llm-d-slo-ttft-ms. Requests whose clients gave none come after all others, in the order of arrival.
type SLODeadline struct{}

// Validate returns nil: there are no parameters.
func (*SLODeadline) Validate() error { return nil }

// Key returns when the first token is due.
func (*SLODeadline) Key(e *flow.Entry) int64 {
	if e.TTFT <= 0 {
		return math.MaxInt64
	}
	return e.Arrived.Add(e.TTFT).UnixNano()
}

// Needs returns that the queue keeps the order of keys.
func (*SLODeadline) Needs() flow.Ability { return flow.Needed | flow.KeyOrder }
