package flow

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// UsageLimit says how full endpoints may be with the requests of each band, so that there is room for those of higher
// priority.
type UsageLimit interface {
	// Ceilings sets out[i] to the ceiling of band i: the share of an endpoint's capacity, as the saturation detector
	// has it, up to which a request of the band finds room there. All of out is 1 at first. A ceiling is above 0, at
	// most 1, and never above that of a higher priority: without room in one band there is none in lower ones. One that
	// is not is lowered to that, and raised to the least that there is if it is 0 or less.
	//
	// It is called at once when other priorities wait, and else a hundredth of a second after a change of what waits at
	// the latest. It returns after which time it is to be asked at the latest even if nothing has changed until then; 0
	// = it needs not be. That holds while requests wait or run.
	Ceilings(in *Usage, out []float64) (again time.Duration)
}

// Usage is what a UsageLimit goes by.
type Usage struct {
	Now time.Time
	// Saturation is how full the detector found the pool when it was last asked for a request that waits, or has to; 1
	// = saturated. It is 0 unless the policy is a SaturationReader.
	Saturation float64
	Bands      []BandUsage // of the priorities of the configuration, and of all that wait; highest first, at least one
}

// BandUsage is what the requests of one priority do.
type BandUsage struct {
	Priority int
	Waiting  int64 // requests that wait for room
	Counts
	Rates Rates
}

// Rates are how many requests of a priority did what in a second, lately: means over about ten seconds.
type Rates struct {
	Arrivals   float64
	Dispatches float64
	Alone      float64 // that began to wait while no other of their flow waited
}

// ratesOver is the time over which Rates are means.
const ratesOver = 10 * time.Second

// pace is what Rates are worked out from.
type pace struct {
	Rates
	at     time.Time
	counts Counts
	alone  int64 // requests that began to wait while no other of their flow waited
	before int64 // of those, at that time
}

// now brings the rates up to date.
func (p *pace) now(at time.Time, counts Counts) Rates {
	past := at.Sub(p.at).Seconds()
	switch {
	case p.at.IsZero():
		p.at, p.counts, p.before = at, counts, p.alone
	case past >= .1: // many messages come in a moment
		weight := 1 - math.Exp(-past/ratesOver.Seconds())
		p.Arrivals += weight * (float64(counts.Arrivals-p.counts.Arrivals)/past - p.Arrivals)
		p.Dispatches += weight * (float64(counts.Dispatches-p.counts.Dispatches)/past - p.Dispatches)
		p.Alone += weight * (float64(p.alone-p.before)/past - p.Alone)
		p.at, p.counts, p.before = at, counts, p.alone
	}
	return p.Rates
}

// SaturationReader is a UsageLimit that may read Usage.Saturation.
type SaturationReader interface {
	UsageLimit

	// ReadsSaturation reports whether it does.
	ReadsSaturation() bool
}

// CrowdLimit is a UsageLimit that also keeps room from flows that have more than one request waiting, for those of the
// same band that have one.
type CrowdLimit interface {
	UsageLimit

	// Crowd returns the part of what band i may fill that requests of such flows may: above 0, at most 1.
	Crowd(in *Usage, i int) float64
}

// ReadsSaturation reports whether the usage limit goes by how full the pool is.
func (s *Settings) ReadsSaturation() bool {
	r, ok := s.UsageLimit.(SaturationReader)
	return ok && r.ReadsSaturation()
}

// Ceiling is that of one band.
type Ceiling struct {
	Priority int
	Share    float64 // of an endpoint's capacity; above 0, at most 1
}

// leastShare is the least ceiling that there is: an endpoint takes a request if it has none.
const leastShare = 1e-9

// Ceilings are those in force. The actor that owns Queues writes them, by its CeilingsWriter; any goroutine may read
// them. The zero Ceilings are 1 for all.
type Ceilings struct{ list atomic.Pointer[[]Ceiling] }

// Of returns the ceiling of a priority. One without a band of its own has that of the next lower one, or, below all,
// that of the lowest.
func (c *Ceilings) Of(priority int) float64 { return shareOf(c.All(), priority) }

func shareOf(list []Ceiling, priority int) float64 {
	if len(list) == 0 {
		return 1
	}
	for _, one := range list {
		if one.Priority <= priority {
			return one.Share
		}
	}
	return list[len(list)-1].Share
}

// All returns the ceilings, highest priority first, for reading only; nil = all are 1.
func (c *Ceilings) All() []Ceiling {
	if list := c.list.Load(); list != nil {
		return *list
	}
	return nil
}

// CeilingsWriter is the handle by which the owner of Queues writes ceilings.
type CeilingsWriter struct{ *Ceilings }

// Set puts ceilings in force, highest priority first, and reports whether one of them has risen; an empty list = all
// are 1.
func (w CeilingsWriter) Set(list []Ceiling) (risen bool) {
	before := w.All()
	if slices.Equal(before, list) {
		return false
	}
	list = slices.Clone(list)
	w.list.Store(&list)
	for _, ceilings := range [][]Ceiling{before, list} {
		for _, one := range ceilings {
			risen = risen || shareOf(list, one.Priority) > shareOf(before, one.Priority)
		}
	}
	return risen
}

// Seen is what the owner of Queues knows beside what waits.
type Seen struct {
	Now        time.Time
	Saturation float64
	Traffic    *Traffic
}

// Ceilings asks the usage limit, and returns after which time it is to be asked again; 0 = when something changes. An
// empty list means that there is no limit: every ceiling is 1. It is valid until the next call. If the usage limit
// panics there is none this time, and from the third panic in a row on until the next configuration.
func (q *Queues) Ceilings(seen Seen) (list []Ceiling, again time.Duration) {
	if q.settings.UsageLimit == nil || q.limitFaults >= mostPanics {
		return nil, 0
	}
	busy := q.look(seen)
	if len(q.usage.Bands) == 0 {
		return nil, 0
	}
	q.shares = q.shares[:0]
	for range q.usage.Bands {
		q.shares = append(q.shares, 1)
	}
	again, ok := q.ask()
	if !ok {
		return nil, 0
	}
	q.ceilings = q.ceilings[:0]
	most := 1.0
	for i, share := range q.shares {
		if math.IsNaN(share) {
			share = 1
		}
		most = max(min(share, most), leastShare)
		q.ceilings = append(q.ceilings, Ceiling{q.usage.Bands[i].Priority, most})
	}
	if !busy {
		again = 0
	}
	return q.ceilings, again
}

// CrowdShare returns the part of what its band may fill that a request may which crowds, as of the newest Ceilings.
func (q *Queues) CrowdShare(e *Entry) float64 {
	limit, ok := q.settings.UsageLimit.(CrowdLimit)
	if !ok || q.limitFaults >= mostPanics {
		return 1
	}
	for i := range q.usage.Bands {
		if q.usage.Bands[i].Priority == e.Flow.Priority {
			return q.crowd(limit, i)
		}
	}
	return 1
}

// crowd asks the limit. If it panics, there is none this time.
func (q *Queues) crowd(limit CrowdLimit, i int) (share float64) {
	defer func() {
		if value := recover(); value != nil {
			q.limitPanicked(value)
			share = 1
		}
	}()
	share = limit.Crowd(&q.usage, i)
	if !(share > 0 && share <= 1) {
		return 1
	}
	return share
}

// look brings the usage up to date, and reports whether requests wait or run.
func (q *Queues) look(seen Seen) (busy bool) {
	q.usage.Now, q.usage.Saturation, q.usage.Bands = seen.Now, seen.Saturation, q.usage.Bands[:0]
	for _, priority := range q.priorities() {
		same, _ := q.totals(priority)
		counts := seen.Traffic.Of(priority).Counts()
		b := BandUsage{priority, same.Requests, counts, q.paceOf(priority).now(seen.Now, counts)}
		busy = busy || b.Waiting > 0 || b.Inflight > 0
		q.usage.Bands = append(q.usage.Bands, b)
	}
	return busy
}

// paceOf returns the pace of a priority. Priorities that clients make up by the thousand start anew now and then.
func (q *Queues) paceOf(priority int) *pace {
	p := q.paces[priority]
	if p == nil {
		if len(q.paces) >= trafficBands {
			clear(q.paces)
		}
		p = new(pace)
		q.paces[priority] = p
	}
	return p
}

// ask asks the usage limit, and reports whether it answered.
func (q *Queues) ask() (again time.Duration, ok bool) {
	defer func() {
		if !ok {
			q.limitPanicked(recover())
		}
	}()
	again = q.settings.UsageLimit.Ceilings(&q.usage, q.shares)
	q.limitFaults = 0
	return again, true
}

func (q *Queues) limitPanicked(value any) {
	q.caught.Note("usage limit policy", q.settings.LimitedBy, value)
	q.limitFaults++
}

// priorities returns those of the configuration, and those of which requests wait, highest first.
func (q *Queues) priorities() []int {
	all := append(q.levels[:0], q.settings.Priorities...)
	for _, b := range q.bands {
		if (b.total != Total{}) {
			all = append(all, b.priority)
		}
	}
	slices.SortFunc(all, func(a, b int) int { return b - a })
	q.levels = slices.Compact(all)
	return q.levels
}
