// Package ceilings holds every usage limit policy: each has a file, and a line in Types. A usage limit says up to which
// share of its capacity an endpoint takes requests of a priority, so that room is left for higher ones. It keeps
// nothing between two calls.
package ceilings

import "github.com/signalbox-epp/signalbox/engine/flow"

// Types maps the type name in configuration to a constructor of the policy with its defaults.
var Types = map[string]func() flow.UsageLimit{
	"priority-holdback-policy": func() flow.UsageLimit {
		return &PriorityHoldback{MaxCeiling: 1, Domain: byRank, Shape: linear}
	},
	"reserve-policy":                 func() flow.UsageLimit { return new(Reserve) },
	"soft-reflective-ceiling-policy": func() flow.UsageLimit { return new(SoftReflective) },
	"static-usage-limit-policy":      func() flow.UsageLimit { return &Static{Threshold: 1} },
}
