// Package deciders holds every decider: each has a file, and a line in Types. A decider says for a profile handler
// whether a stage of a request is worth its own server. It keeps no memory between requests, and never picks.
package deciders

import "github.com/signalbox-epp/signalbox/engine/schedule"

// Types maps the type name in configuration to a constructor of the decider with its defaults. Parameters are decoded
// onto that value, and its Validate returns what is wrong with them.
var Types = map[string]func() schedule.Decider{
	"always-disagg-multimodal-decider": func() schedule.Decider { return new(Multimodal) },
	"always-disagg-pd-decider":         func() schedule.Decider { return new(Always) },
	"prefix-based-pd-decider":          func() schedule.Decider { return new(PrefixBased) },
}
