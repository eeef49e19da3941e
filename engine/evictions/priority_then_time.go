package evictions

import (
	"cmp"

	"github.com/signalbox-epp/signalbox/engine/reclaim"
)

// PriorityThenTime has the request of the lowest priority ended, and of several the one that began last: it has lost
// the least.
type PriorityThenTime struct{}

// Evictable leaves out none.
func (*PriorityThenTime) Evictable(*reclaim.Running) bool { return true }

// Compare orders by priority, then by time.
func (*PriorityThenTime) Compare(a, b *reclaim.Running) int {
	return cmp.Or(cmp.Compare(a.Flow.Priority, b.Flow.Priority), b.Since.Compare(a.Since))
}
