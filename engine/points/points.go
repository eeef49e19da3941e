// Package points holds the plugins that serve points of a request outside of profiles, or say for other plugins what a
// header or a label means: each has a file, and a line in Types. Admitters and detectors have packages of their own. A
// plugin keeps no memory between requests.
package points

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
)

// Types maps the type name in configuration to a constructor of the plugin with its defaults. Parameters are decoded
// onto that value, and its Validate returns what is wrong with them.
var Types = map[string]func() any{
	"agent-identity": func() any { return new(AgentIdentity) },
	"label-producer": func() any { return new(LabelProducer) },
	"latency-observer-producer-hub": func() any {
		return &LatencyObserver{
			IntervalDuration: time.Second, MaxObservationAge: 3 * time.Minute, MaxRequests: 100, MinRequests: 10,
			LowPercentile: 25, TypicalPercentile: 50, WindowSize: 5000, BucketDuration: time.Minute,
			BucketHistorySize: 1000,
		}
	},
	"mm-embeddings-cache-producer": func() any { return &EmbeddingsCache{CacheSizeInMBPerServer: 4096} },
	"outlen-bucket":                func() any { return new(OutputLength) },
	"p2p-source-producer": func() any {
		return &CacheSource{MinCachedTokenDelta: 1, PrefillProfileName: "prefill"}
	},
	"request-attribute-reporter": func() any { return new(AttributeReporter) },
	"session-id-producer":        func() any { return new(SessionID) },
	"session-state-producer": func() any {
		return &SessionState{EvictionTTLSeconds: 3600, EvictionSweepSeconds: 300}
	},
}

// Request is what has headers of a request.
type Request interface {
	Header(of attributes.HeaderSlot) (string, bool)
}
