package flow

import (
	"iter"
	"maps"
	"slices"
)

// Fill is how much of one priority waits, and how much may.
type Fill struct {
	Priority int
	Waiting  Total
	Most     Limits
}

// Fills ranges over the priorities of which requests wait, or have waited, the highest first.
func (q *Queues) Fills() iter.Seq[Fill] {
	return func(yield func(Fill) bool) {
		for i := 0; i < len(q.bands); {
			priority := q.bands[i].priority
			f := Fill{Priority: priority, Most: q.settings.band(priority).Limits}
			for ; i < len(q.bands) && q.bands[i].priority == priority; i++ {
				f.Waiting.Requests += q.bands[i].total.Requests
				f.Waiting.Bytes += q.bands[i].total.Bytes
			}
			if !yield(f) {
				return
			}
		}
	}
}

// Configured returns the priorities that the settings in force name, the lowest first, without what waits.
func (q *Queues) Configured() (all []Fill) {
	for _, priority := range slices.Sorted(maps.Keys(q.settings.Bands)) {
		all = append(all, Fill{Priority: priority, Most: q.settings.Bands[priority].Limits})
	}
	return all
}

// Limits returns those of all bands together.
func (q *Queues) Limits() Limits { return q.settings.Limits }
