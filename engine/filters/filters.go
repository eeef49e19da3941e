// Package filters holds every filter: each has a file, and a line in Types. A filter says which candidates stay. It
// keeps no memory between requests, and never scores or picks.
package filters

import (
	"slices"

	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/sessions"
)

// Types maps the type name in configuration to a constructor of the filter with its defaults. Parameters are decoded
// onto that value, and its Validate returns what is wrong with them.
var Types = map[string]func() schedule.Filter{
	"by-label":      func() schedule.Filter { return new(ByLabel) },
	"decode-filter": func() schedule.Filter { return new(Decode) },
	"encode-filter": func() schedule.Filter { return new(Encode) },
	"endpoint-attribute-filter": func() schedule.Filter {
		return &EndpointAttribute{OnMissing: "Pass", Algorithm: ThresholdAlgorithm{Type: "threshold"}}
	},
	"header-based-testing-filter": func() schedule.Filter { return new(HeaderBasedTesting) },
	"label-selector-filter":       func() schedule.Filter { return new(LabelSelector) },
	"prefill-filter":              func() schedule.Filter { return new(Prefill) },
	"prefix-cache-affinity-filter": func() schedule.Filter {
		return &PrefixCacheAffinity{AffinityThreshold: 0.8, MaxTTFTPenaltyMs: 18000, TTFTSource: "prefillThroughput",
			PeakPrefillThroughput: 15928}
	},
	"session-affinity-filter": func() schedule.Filter {
		return &SessionAffinity{sessions.Standard()}
	},
	"topology-affinity-filter": func() schedule.Filter { return &TopologyAffinity{MinAffinity: "host"} },
	"utilization-filter":       func() schedule.Filter { return new(Utilization) },
}

// none reports whether no candidate is kept.
func none(keep []bool) bool { return !slices.Contains(keep, true) }

// keepAll keeps all candidates, for a filter that would leave none.
func keepAll(keep []bool) {
	for i := range keep {
		keep[i] = true
	}
}

// RoleLabel says which stages of a request a server takes.
const RoleLabel = "llm-d.ai/role"

// Roles are the values of RoleLabel that filters by role read; a server with another one serves no stage.
var Roles = []string{"decode", "prefill", "encode", "prefill-decode", "encode-prefill", "encode-prefill-decode", "both"}
