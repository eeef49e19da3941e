// Package scorers holds every scorer: one file each, and a line in Types. A scorer computes from its input only: it
// keeps nothing between requests, and never filters or picks.
package scorers

import "github.com/signalbox-epp/signalbox/engine/schedule"

// Types maps the name used in configuration to the scorer with its defaults. Parameters decode onto the value; what
// it cannot accept, its Validate says: errors joined, each beginning with the parameter's path and a colon. On a
// field, the tag names gives the plugin type that its value must name, and effect:"none" says that only its default
// is accepted.
var Types = map[string]func() schedule.Scorer{
	"active-request-scorer":       func() schedule.Scorer { return &ActiveRequest{IdleThreshold: 0, MaxBusyScore: 1} },
	"kv-cache-utilization-scorer": func() schedule.Scorer { return new(KVCacheUtilization) },
	"load-aware-scorer":           func() schedule.Scorer { return &LoadAware{Threshold: 128} },
	"lora-affinity-scorer":        func() schedule.Scorer { return new(LoRAAffinity) },
	"prefix-cache-scorer": func() schedule.Scorer {
		return &PrefixCache{MatchLengthWeight: 0, MatchLengthScaleTokens: 8192}
	},
	"queue-scorer":                 func() schedule.Scorer { return new(QueueDepth) },
	"running-requests-size-scorer": func() schedule.Scorer { return new(RunningRequests) },
}
