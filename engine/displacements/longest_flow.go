package displacements

import "github.com/signalbox-epp/signalbox/engine/flow"

// LongestFlow has the flow that has the most requests waiting, for its weight, lose the last one of them. In its own
// band a request takes the place of another one if that flow has more waiting than its own will have.
type LongestFlow struct{}

// Validate returns nil: there are no parameters.
func (*LongestFlow) Validate() error { return nil }

// Excess returns how many requests of the flow wait, by its weight.
func (*LongestFlow) Excess(a *flow.Account, _ *flow.Entry) float64 {
	return float64(a.Requests) / a.Weight
}
