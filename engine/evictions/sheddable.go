package evictions

import "github.com/signalbox-epp/signalbox/engine/reclaim"

// Sheddable has only requests of negative priority ended.
type Sheddable struct{}

// Evictable reports whether the priority of a request is negative.
func (*Sheddable) Evictable(r *reclaim.Running) bool { return r.Flow.Priority < 0 }

// Compare has no order.
func (*Sheddable) Compare(_, _ *reclaim.Running) int { return 0 }
