package memory

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/messages"
)

// mostFirsts is how many times to first tokens are kept at most, of all endpoints and plugins together: 20 MiB,
// beside the least times.
const mostFirsts = 1 << 19

// FirstTokens is what a plugin knows of how long endpoints take to first tokens. Plugins of other names cannot reach
// it, and it outlives a configuration in which the plugin keeps its name. The zero FirstTokens is of no plugin.
type FirstTokens struct{ owner uint64 }

// NewFirstTokens declares what is known of first tokens. A plugin calls it in Declare.
func NewFirstTokens(r *attributes.Reader) FirstTokens { return FirstTokens{ownerOf(r)} }

// Of returns the sum of what an endpoint has shown; false = it has shown nothing.
func (f FirstTokens) Of(v View, endpoint messages.EndpointID) (FirstTokenSum, bool) {
	if v.tables == nil {
		return FirstTokenSum{}, false
	}
	of := v.tables.firsts.of(f.owner, endpoint)
	if of == nil {
		return FirstTokenSum{}, false
	}
	sum := of.sum.Load()
	if sum == nil {
		return FirstTokenSum{}, false
	}
	seen := *sum
	if v.now.Sub(seen.Newest) > seen.over.MaxAge { // none came since to sum up anew
		seen.Recent, seen.Low, seen.Typical = 0, math.NaN(), math.NaN()
	}
	return seen, true
}

// Keep notes how long an endpoint took.
func (f FirstTokens) Keep(n *Notes, at messages.EndpointID, first messages.FirstToken) {
	n.list = append(n.list, messages.Kept{
		Table: messages.FirstTokenTable, Key: max(f.owner, 1), Endpoint: at, Owner: f.owner, First: first,
	})
}

// FirstTokenSum sums up the times to first tokens of an endpoint. It never changes. Times are in seconds; NaN = too few
// are known.
type FirstTokenSum struct {
	Floor                        float64 // a low percentile of the least times of the newest buckets
	Low, Typical                 float64 // percentiles of recent ones
	LowInflight, TypicalInflight float64 // means of the requests in flight at picks whose time is near those
	Recent                       int     // how many those are of
	Newest                       time.Time

	over messages.FirstTokenSpan
}

// firsts is what one endpoint has shown. Readers see its sum.
type firsts struct {
	sum atomic.Pointer[FirstTokenSum] // nil = there is none

	// The writer alone uses what follows.

	ring   []first // the newest ones; ring[count % len(ring)] is the next to go
	count  int
	sorted *[]first  // room for the recent ones by their time, which all endpoints share
	begun  time.Time // of the bucket in hand
	floors []float64 // the least times of buckets before, the newest last
	floor  float64   // a low percentile of floors, if there are any
	over   messages.FirstTokenSpan
}

// first is one time to a first token.
type first struct {
	at       time.Time
	seconds  float64
	inflight float64
}

const (
	floorPercentile = 10
	// band is how many percentiles to each side of one have the requests in flight of which it has the mean.
	band = 10
)

// add enters a time, and sums up anew.
func (f *firsts) add(now time.Time, t *messages.FirstToken) {
	if f.begun.IsZero() {
		f.begun = now
	}
	if now.Sub(f.begun) >= f.over.Bucket {
		f.closeBucket()
		f.begun = now
	}
	f.ring[f.count%len(f.ring)] = first{now, t.Took.Seconds(), float64(t.Inflight)}
	f.count++
	f.sumUp(now, &f.over)
}

// closeBucket keeps the least time of the bucket in hand. If there are too many, the oldest goes, so that the floor
// follows an endpoint that has become slower: one slow bucket does not move a low percentile of many.
func (f *firsts) closeBucket() {
	own := f.since(f.begun)
	if len(own) == 0 {
		return
	}
	f.floors = append(f.floors, own[rank(floorPercentile, len(own))].seconds)
	if more := len(f.floors) - f.over.Buckets; more > 0 {
		f.floors = slices.Delete(f.floors, 0, more)
	}
	rising := slices.Sorted(slices.Values(f.floors))
	f.floor = rising[rank(floorPercentile, len(rising))]
}

// since returns the times from a moment on, rising. They are valid until the next call.
func (f *firsts) since(from time.Time) []first {
	sorted := (*f.sorted)[:0]
	for i := range min(f.count, len(f.ring)) {
		if !f.ring[i].at.Before(from) {
			sorted = append(sorted, f.ring[i])
		}
	}
	slices.SortFunc(sorted, func(a, b first) int {
		switch {
		case a.seconds < b.seconds:
			return -1
		case a.seconds > b.seconds:
			return 1
		}
		return 0
	})
	*f.sorted = sorted
	return sorted
}

// rank returns the place of a percentile among n sorted ones: the least of which so many are not larger.
func rank(percentile, n int) int { return max((percentile*n+99)/100, 1) - 1 }

func (f *firsts) sumUp(now time.Time, over *messages.FirstTokenSpan) {
	sum := &FirstTokenSum{Floor: math.NaN(), Low: math.NaN(), Typical: math.NaN(), Newest: now, over: *over}
	recent := f.since(now.Add(-over.MaxAge))
	if sum.Recent = len(recent); sum.Recent >= over.Least {
		sum.Low, sum.LowInflight = near(recent, over.Low)
		sum.Typical, sum.TypicalInflight = near(recent, over.Typical)
	}
	switch {
	case f.count < over.Least:
	case len(f.floors) > 0:
		sum.Floor = f.floor
	default:
		sum.Floor = recent[rank(floorPercentile, len(recent))].seconds
	}
	f.sum.Store(sum)
}

// near returns a percentile of sorted times, and the mean of the requests in flight of those near it.
func near(sorted []first, percentile int) (seconds, inflight float64) {
	from, to := rank(percentile-band, len(sorted)), rank(min(percentile+band, 100), len(sorted))
	for _, of := range sorted[from : to+1] {
		inflight += of.inflight
	}
	return sorted[rank(percentile, len(sorted))].seconds, inflight / float64(to-from+1)
}

// keepFirst enters a time to a first token.
func (m *Tables) keepFirst(k *messages.Kept, configuration uint64, now time.Time) {
	most := k.First.Over.Most
	at := m.firsts.take(place{k.Owner, k.Endpoint}, most, configuration, func() *firsts {
		return &firsts{ring: make([]first, most), sorted: &m.sorted}
	})
	if at == nil {
		return
	}
	if at.entries == 0 {
		at.entries = 1
		m.firsts.stats.Entries++
	}
	if configuration >= at.of {
		at.has.over = k.First.Over
	}
	at.has.add(now, &k.First)
}
