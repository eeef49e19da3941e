// Package profiles holds every profile handler: one file each, and a line in Types. A handler says which profile runs
// next: it keeps nothing between requests, and never looks at candidates.
package profiles

import "github.com/signalbox-epp/signalbox/engine/schedule"

// Types maps the name used in configuration to the handler with its defaults. Parameters decode onto the value; what it
// cannot accept, its Validate says.
var Types = map[string]func() schedule.Handler{
	"single-profile-handler": func() schedule.Handler { return new(SingleProfile) },
}
