// Package evictions holds every policy of in-flight eviction: each has a file, and a line in Types. A policy says which
// running requests may be ended for those that wait, or which of them goes first. It keeps nothing between two calls.
package evictions

import "github.com/signalbox-epp/signalbox/engine/reclaim"

// Types maps the type name in configuration to a constructor of the policy with its defaults.
var Types = map[string]func() reclaim.Eviction{
	"priority-then-time-eviction-order-policy": func() reclaim.Eviction { return new(PriorityThenTime) },
	"sheddable-eviction-filter":                func() reclaim.Eviction { return new(Sheddable) },
}
