package displacements

import "github.com/signalbox-epp/signalbox/engine/flow"

// NewestRequest has the request make way that came last, of the last ones of all flows, whichever flow it is of. In its
// own band a request takes no place of another one: it is refused, for it came later.
type NewestRequest struct{}

// Validate returns nil: there are no parameters.
func (*NewestRequest) Validate() error { return nil }

// Excess returns the number of the request's arrival.
func (*NewestRequest) Excess(_ *flow.Account, last *flow.Entry) float64 { return float64(last.Number) }
