// Package scorers holds every scorer.
package scorers

import "example.test/planted/engine/schedule"

// Types is the table.
var Types = map[string]func() schedule.Plugin{
	"kv-cache-utilization-scorer": func() schedule.Plugin { return new(KVCacheUtilization) },
}
