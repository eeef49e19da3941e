// Package scorers holds every scorer: each has a file, and a line in Types. A scorer computes from its input only. It
// keeps no memory between requests, and never filters or picks.
package scorers

import (
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/sessions"
)

// Types maps the type name in configuration to a constructor of the scorer with its defaults. Parameters are decoded
// onto that value, and its Validate returns what is wrong with them: errors joined, each beginning with the parameter's
// path and a colon. On a field, the tag names has the type of the plugin that the value must name, and effect:"none"
// means that only the default is accepted.
var Types = map[string]func() schedule.Scorer{
	"active-request-scorer": func() schedule.Scorer { return &ActiveRequest{IdleThreshold: 0, MaxBusyScore: 1} },
	"context-length-aware": func() schedule.Scorer {
		return &ContextLength{Label: "llm-d.ai/context-length-range"}
	},
	"endpoint-attribute-scorer": func() schedule.Scorer {
		return &EndpointAttribute{Algorithm: LinearAlgorithm{Type: lowerIsBetter}}
	},
	"endpoint-attribute-weight-scorer": func() schedule.Scorer { return new(EndpointAttributeWeight) },
	"expected-completion": func() schedule.Scorer {
		return &ExpectedCompletion{TokensPerSecond: 8000, OwnWeight: 1, LaterWeight: 1, SecondsPerRequest: .005}
	},
	"header-label-affinity-scorer": func() schedule.Scorer { return new(HeaderLabelAffinity) },
	"kv-cache-utilization-scorer":  func() schedule.Scorer { return new(KVCacheUtilization) },
	"latency-observation-scorer-hub": func() schedule.Scorer {
		return &LatencyObservation{ExplorationRate: 0.1, MinInflightGap: 2}
	},
	"load-aware-scorer":          func() schedule.Scorer { return &LoadAware{Threshold: 128} },
	"lora-affinity-scorer":       func() schedule.Scorer { return &LoRAAffinity{HotEndpoints: 4} },
	"mm-embeddings-cache-scorer": func() schedule.Scorer { return new(EmbeddingsCache) },
	"no-hit-lru-scorer":          func() schedule.Scorer { return &NoHitLRU{LRUSize: 1024} },
	"prefix-cache-scorer": func() schedule.Scorer {
		return &PrefixCache{MatchLengthWeight: 0, MatchLengthScaleTokens: 8192}
	},
	"queue-scorer":                 func() schedule.Scorer { return new(QueueDepth) },
	"running-requests-size-scorer": func() schedule.Scorer { return new(RunningRequests) },
	"session-affinity-scorer":      func() schedule.Scorer { return &SessionAffinity{sessions.Standard()} },
	"token-load-scorer": func() schedule.Scorer {
		return &TokenLoad{QueueThresholdTokens: queueThresholdTokens}
	},
	"topology-affinity-scorer": func() schedule.Scorer { return new(TopologyAffinity) },
}
