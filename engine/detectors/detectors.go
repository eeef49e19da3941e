// Package detectors holds every saturation detector: each has a file, and a line in Types. A detector says how full the
// pool is; in a profile it is a filter, which drops the servers that are full. It keeps no memory between requests.
package detectors

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// Types maps the type name in configuration to a constructor of the detector with its defaults. Parameters are decoded
// onto that value, and its Validate returns what is wrong with them.
var Types = map[string]func() schedule.Detector{
	"concurrency-detector": func() schedule.Detector {
		return &Concurrency{MaxConcurrency: 100, ConcurrencyMode: requestsMode, MaxTokenConcurrency: 1_000_000}
	},
	"learning-detector":       func() schedule.Detector { return new(Learning) },
	"max-saturation-detector": func() schedule.Detector { return new(MaxSaturation) },
	"utilization-detector": func() schedule.Detector {
		return &Utilization{QueueDepthThreshold: 5, KVCacheUtilThreshold: 0.8,
			MetricsStalenessThreshold: 200 * time.Millisecond}
	},
}

// counted are the candidates by which the pool is full: those that get requests. What is ejected or sleeps gets some
// only if all do.
type counted struct {
	in  *schedule.Input
	all bool
}

func countedOf(in *schedule.Input) counted {
	for i := range in.Candidates().Len() {
		if !in.Ejected(i) {
			return counted{in, false}
		}
	}
	return counted{in, true}
}

// has reports whether candidate i counts.
func (c counted) has(i int) bool { return c.all || !c.in.Ejected(i) }
