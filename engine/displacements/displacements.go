// Package displacements holds every displacement policy: each has a file, and a line in Types. A displacement decides
// which of the requests of a band makes way for another one when a limit is reached. It looks at one flow at a time,
// and keeps nothing.
package displacements

import "github.com/signalbox-epp/signalbox/engine/flow"

// Types maps the type name in configuration to a constructor of the displacement with its defaults.
var Types = map[string]func() flow.Displacement{
	"longest-flow-displacement-policy":   func() flow.Displacement { return new(LongestFlow) },
	"newest-request-displacement-policy": func() flow.Displacement { return new(NewestRequest) },
}
