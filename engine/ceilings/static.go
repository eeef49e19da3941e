package ceilings

import (
	"fmt"
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

// Static lets requests of every priority fill the servers to the same degree.
type Static struct {
	// Threshold is that degree, above 0, at most 1: with 0.8 a server has room until it is four fifths full, as the
	// saturation detector has it.
	Threshold float64 `json:"threshold"`
}

// Validate returns which parameters are out of range.
func (p *Static) Validate() error {
	if !(p.Threshold > 0 && p.Threshold <= 1) {
		return fmt.Errorf("threshold: got %v, want more than 0, at most 1", p.Threshold)
	}
	return nil
}

// Ceilings returns the threshold for all.
func (p *Static) Ceilings(_ *flow.Usage, out []float64) time.Duration {
	for i := range out {
		out[i] = p.Threshold
	}
	return 0
}
