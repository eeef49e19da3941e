// Package orderings holds every ordering policy: each has a file, and a line in Types. An ordering decides which
// request of a flow is next. It looks at one request at a time, and keeps nothing.
package orderings

import "github.com/signalbox-epp/signalbox/engine/flow"

// Types maps the type name in configuration to a constructor of the ordering with its defaults.
var Types = map[string]func() flow.Ordering{
	"edf-ordering-policy":           func() flow.Ordering { return new(EDF) },
	"fcfs-ordering-policy":          func() flow.Ordering { return new(FCFS) },
	"shortest-work-ordering-policy": func() flow.Ordering { return &ShortestWork{AgeingTokensPerSecond: 200} },
	"slo-deadline-ordering-policy":  func() flow.Ordering { return new(SLODeadline) },
}
