// Package fairness holds every fairness policy: each has a file, and a line in Types. A fairness decides which flow of
// a band is next, by the flow's account and its first request. It keeps nothing itself.
package fairness

import "github.com/signalbox-epp/signalbox/engine/flow"

// Types maps the type name in configuration to a constructor of the policy with its defaults.
var Types = map[string]func() flow.Fairness{
	"program-aware-fairness": func() flow.Fairness {
		return &ProgramAware{
			Strategy: leastAttained, EvictionTTLSeconds: 3600, EvictionSweepSeconds: 300, LASWeightService: 0.8,
			LASWeightHeadWait: 0.2, LASHalfLifeSeconds: 60, LASDecayFactor: 0.99997,
		}
	},
	"global-strict-fairness-policy": func() flow.Fairness { return new(GlobalStrict) },
	"round-robin-fairness-policy":   func() flow.Fairness { return new(RoundRobin) },
	"token-fairness-policy":         func() flow.Fairness { return new(Token) },
}
