package orderings

import "github.com/signalbox-epp/signalbox/engine/flow"

// EDF lets the request go first whose wait ends first: earliest deadline first.
type EDF struct{}

// Validate returns nil: there are no parameters.
func (*EDF) Validate() error { return nil }

// Key returns when the wait ends.
func (*EDF) Key(e *flow.Entry) int64 { return e.Deadline.UnixNano() }

// Needs returns that the queue keeps the order of keys.
func (*EDF) Needs() flow.Ability { return flow.Needed | flow.KeyOrder }
