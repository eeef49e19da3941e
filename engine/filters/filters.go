// Package filters holds every filter: one file each, and a line in Types. A filter says which candidates stay: it keeps
// nothing between requests, and never scores or picks.
package filters

import "github.com/signalbox-epp/signalbox/engine/schedule"

// Types maps the name used in configuration to the filter with its defaults. Parameters decode onto the value; what it
// cannot accept, its Validate says.
var Types = map[string]func() schedule.Filter{
	"decode-filter":         func() schedule.Filter { return new(Decode) },
	"label-selector-filter": func() schedule.Filter { return new(LabelSelector) },
	"prefill-filter":        func() schedule.Filter { return new(Prefill) },
}

// roleLabel says which stages of a request a server takes.
const roleLabel = "llm-d.ai/role"
