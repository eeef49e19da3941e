// Package pickers holds every picker: each has a file, and a line in Types. A picker orders candidates by their totals.
// It keeps no memory between requests, and never scores or filters.
package pickers

import (
	"fmt"

	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// Types maps the type name in configuration to a constructor of the picker with its defaults. Parameters are decoded
// onto that value, and its Validate returns what is wrong with them.
var Types = map[string]func() schedule.Picker{
	"max-score-picker":       func() schedule.Picker { return new(MaxScore) },
	"random-picker":          func() schedule.Picker { return new(Random) },
	"weighted-random-picker": func() schedule.Picker { return new(WeightedRandom) },
}

// maxDestinations bounds the work of one pick, which grows with destinations times candidates.
const maxDestinations = 100

// Destinations is the parameter that all pickers share.
type Destinations struct {
	// MaxNumOfEndpoints is how many endpoints are picked at most, best first, so that Envoy has others to try, 1 to
	// 100. 0 or absent = what the command line says: 3, or 1 with
	// --single-destination or --endpoint-selector.
	MaxNumOfEndpoints int `json:"maxNumOfEndpoints"`
}

// Default sets the number of destinations where the configuration does not.
func (d *Destinations) Default(n int) {
	if d.MaxNumOfEndpoints == 0 {
		d.MaxNumOfEndpoints = n
	}
}

// Most returns how many endpoints are picked at most.
func (d *Destinations) Most() int { return max(d.MaxNumOfEndpoints, 1) }

// Validate returns which parameters are out of range.
func (d *Destinations) Validate() error {
	if d.MaxNumOfEndpoints < 0 || d.MaxNumOfEndpoints > maxDestinations {
		return fmt.Errorf("maxNumOfEndpoints: got %d, want 0 to %d", d.MaxNumOfEndpoints, maxDestinations)
	}
	return nil
}

// begin appends the indexes of all candidates to ranked, from index start on. The picker orders them and keeps the
// first n of them.
func (d *Destinations) begin(candidates int, ranked []int) (all []int, start, n int) {
	start = len(ranked)
	for i := range candidates {
		ranked = append(ranked, i)
	}
	return ranked, start, min(max(d.MaxNumOfEndpoints, 1), candidates)
}
