package flow

import (
	"maps"
	"sync/atomic"

	"github.com/signalbox-epp/signalbox/engine/cow"
)

// Traffic counts the requests of each priority, those included that never wait. Any goroutine may count and read. The
// zero Traffic is empty.
type Traffic struct {
	bands cow.Map[int, *BandTraffic]
	more  BandTraffic // of all priorities beyond those told apart
}

// trafficBands is how many priorities are told apart.
const trafficBands = 256

// BandTraffic counts the requests of one priority.
type BandTraffic struct{ arrived, dispatched, inflight atomic.Int64 }

// Counts are how many requests of a priority did what.
type Counts struct {
	Arrivals   int64 // that may have to wait for room; since the start
	Dispatches int64 // for which an endpoint was picked; since the start
	Inflight   int64 // that are part of the load of an endpoint
}

// Of returns the counter of a priority.
func (t *Traffic) Of(priority int) *BandTraffic {
	if b, known := t.bands.Get(priority); known {
		return b
	}
	b := &t.more
	t.bands.Change(func(now map[int]*BandTraffic) map[int]*BandTraffic {
		if known := now[priority]; known != nil {
			b = known
			return nil
		}
		if len(now) >= trafficBands {
			return nil
		}
		next := make(map[int]*BandTraffic, len(now)+1)
		maps.Copy(next, now)
		b = new(BandTraffic)
		next[priority] = b
		return next
	})
	return b
}

// Arrive counts a request that may have to wait.
func (b *BandTraffic) Arrive() { b.arrived.Add(1) }

// Dispatch counts a request for which an endpoint was picked.
func (b *BandTraffic) Dispatch() { b.dispatched.Add(1) }

// Enter counts a request that becomes part of the load of an endpoint. It must Leave once.
func (b *BandTraffic) Enter() { b.inflight.Add(1) }

// Leave takes back what Enter counted.
func (b *BandTraffic) Leave() { b.inflight.Add(-1) }

// Counts returns the counts as they are.
func (b *BandTraffic) Counts() Counts {
	return Counts{b.arrived.Load(), b.dispatched.Load(), b.inflight.Load()}
}
