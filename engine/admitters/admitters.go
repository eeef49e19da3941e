// Package admitters holds every admitter: each has a file, and a line in Types. An admitter says whether a request is
// served at all. It keeps no memory between requests, and never picks.
package admitters

import "github.com/signalbox-epp/signalbox/engine/schedule"

// Types maps the type name in configuration to a constructor of the admitter with its defaults. Parameters are decoded
// onto that value, and its Validate returns what is wrong with them.
var Types = map[string]func() schedule.Admitter{
	"probabilistic-admitter": func() schedule.Admitter {
		return &Probabilistic{QueueDepthThreshold: 5, KVCacheUtilThreshold: 0.8, Power: 5, K: 300}
	},
}
