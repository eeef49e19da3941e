package fairness

import "github.com/signalbox-epp/signalbox/engine/flow"

// GlobalStrict lets the request go first that the ordering puts first among the first requests of all flows, as if the
// band were one flow.
type GlobalStrict struct{}

// Validate returns nil: there are no parameters.
func (*GlobalStrict) Validate() error { return nil }

// Rank returns the first request's place.
func (*GlobalStrict) Rank(_ *flow.Account, head *flow.Entry) int64 { return head.Key }

// Join changes nothing.
func (*GlobalStrict) Join(*flow.Account, int64) {}
