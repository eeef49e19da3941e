package ceilings

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/flow"
)

// The values of Domain and Shape.
const (
	byRank  = "rank"
	byValue = "value"
	linear  = "linear"
)

// PriorityHoldback keeps room for higher priorities: the lower a priority, the less full may servers be for its
// requests. It looks at the priorities of the configuration, which are those of bands and of objectives, and 0, and at
// those that wait. If there is one alone, it has maxCeiling.
type PriorityHoldback struct {
	// MinCeiling is up to which degree requests of the lowest priority fill servers, as the saturation detector has it:
	// 0 or more, below maxCeiling; required. With 0 they go only to servers that have none.
	MinCeiling *float64 `json:"minCeiling"`
	// MaxCeiling is the same for the highest priority, at most 1.
	MaxCeiling float64 `json:"maxCeiling"`
	// Domain says where a priority stands between the lowest and the highest: by its rank, in equal steps, or by its
	// value.
	Domain string `json:"domain"`
	// Shape is how ceilings rise from the lowest to the highest priority: linear.
	Shape string `json:"shape"`
}

// Validate returns which parameters are missing or out of range.
func (p *PriorityHoldback) Validate() error {
	var errs []error
	switch {
	case p.MinCeiling == nil:
		errs = append(errs, errors.New("minCeiling: missing; name the ceiling of the lowest priority"))
	case !(*p.MinCeiling >= 0 && *p.MinCeiling < 1):
		errs = append(errs, fmt.Errorf("minCeiling: got %v, want 0 or more, below 1", *p.MinCeiling))
	case p.MaxCeiling > 0 && p.MaxCeiling <= 1 && *p.MinCeiling >= p.MaxCeiling:
		errs = append(errs, fmt.Errorf("minCeiling: got %v, want less than maxCeiling, which is %v", *p.MinCeiling,
			p.MaxCeiling))
	}
	if !(p.MaxCeiling > 0 && p.MaxCeiling <= 1) {
		errs = append(errs, fmt.Errorf("maxCeiling: got %v, want more than 0, at most 1", p.MaxCeiling))
	}
	if domains := []string{byRank, byValue}; !slices.Contains(domains, p.Domain) {
		errs = append(errs, fmt.Errorf("domain: got %q, want one of %v", clip.Value(p.Domain), domains))
	}
	if p.Shape != linear {
		errs = append(errs, fmt.Errorf("shape: got %q, want %s", clip.Value(p.Shape), linear))
	}
	return errors.Join(errs...)
}

// Ceilings returns what lies between the least and the highest ceiling where the band stands.
func (p *PriorityHoldback) Ceilings(in *flow.Usage, out []float64) time.Duration {
	for i := range out {
		out[i] = *p.MinCeiling + (p.MaxCeiling-*p.MinCeiling)*p.height(in.Bands, i)
	}
	return 0
}

// height returns where band i stands: 1 = it is the highest, 0 = the lowest of several.
func (p *PriorityHoldback) height(bands []flow.BandUsage, i int) float64 {
	last := len(bands) - 1
	switch {
	case last == 0:
		return 1
	case p.Domain == byRank:
		return 1 - float64(i)/float64(last)
	}
	lowest := float64(bands[last].Priority)
	return (float64(bands[i].Priority) - lowest) / (float64(bands[0].Priority) - lowest)
}
