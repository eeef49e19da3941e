package fairness

import "github.com/signalbox-epp/signalbox/engine/flow"

// RoundRobin lets each flow that has requests waiting send one in turn, whatever their size. A flow that begins to
// wait comes after those that wait already.
type RoundRobin struct{}

// Validate returns nil: there are no parameters.
func (*RoundRobin) Validate() error { return nil }

// Rank returns when the flow was served last.
func (*RoundRobin) Rank(a *flow.Account, _ *flow.Entry) int64 { return int64(a.Served) }

// Join has the flow count as served when the band stood where it does. The flows that wait were served later, or wait
// for their first turn in this round.
func (*RoundRobin) Join(a *flow.Account, rank int64) { a.Served = max(a.Served, uint64(rank)) }
