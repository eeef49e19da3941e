package detectors

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// Utilization says how full the pool is by what servers report: the mean over all servers of the larger one of two
// ratios, queue and KV cache use, each by its threshold. From 1 on, requests of negative priority are refused with
// status 429. A ratio that a server does not report does not count; a server that reports neither, whose answer is too
// old, or that never answered, counts as one that is just full. A server whose first answer is awaited does not count.
// In a profile it is a filter: it keeps the servers that are below both thresholds by fresh answers,
// and all of them if there are none. For the filter, and for the feature gate flowControl, the queue is bounded at all
// times: a server has room for the requests that the newest page says it has room for, for one more with each that
// ends, and, while none waits there, for some more than ever ran there, which the next page tells of. A server whose
// first page is awaited has room for as many as may wait.
type Utilization struct {
	// QueueDepthThreshold is the queue, in requests, of a full server. For the saturation of the pool that is what it
	// said last.
	QueueDepthThreshold int `json:"queueDepthThreshold"`
	// KVCacheUtilThreshold is the KV cache use of a full server, above 0, at most 1.
	KVCacheUtilThreshold float64 `json:"kvCacheUtilThreshold"`
	// MetricsStalenessThreshold is the age from which an answer is too old, if it is also older than three of its
	// intervals.
	MetricsStalenessThreshold time.Duration `json:"metricsStalenessThreshold"`
	// Headroom is the share by which a server may be above a threshold and pass the filter; 0.2 = a fifth more.
	Headroom float64 `json:"headroom"`

	queue, cache attributes.NumberSlot
}

// Validate returns which parameters are out of range.
func (d *Utilization) Validate() error {
	var errs []error
	if d.QueueDepthThreshold < 1 {
		errs = append(errs, fmt.Errorf("queueDepthThreshold: got %d, want 1 or more", d.QueueDepthThreshold))
	}
	if !(d.KVCacheUtilThreshold > 0 && d.KVCacheUtilThreshold <= 1) {
		errs = append(errs, fmt.Errorf("kvCacheUtilThreshold: got %v, want more than 0, at most 1",
			d.KVCacheUtilThreshold))
	}
	if d.MetricsStalenessThreshold <= 0 {
		errs = append(errs, fmt.Errorf("metricsStalenessThreshold: got %v, want more than 0s",
			d.MetricsStalenessThreshold))
	}
	if err := checkHeadroom(d.Headroom); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func checkHeadroom(share float64) error {
	if !(share >= 0 && share <= math.MaxFloat64) {
		return fmt.Errorf("headroom: got %v, want 0 or more", share)
	}
	return nil
}

// Declare asks for what fills a server.
func (d *Utilization) Declare(r *attributes.Reader) {
	d.queue = r.Number(attributes.WaitingRequests.Name, "")
	d.cache = r.Number(attributes.KVCacheUsage.Name, "")
}

// Saturation returns the mean of how full those servers are that get requests.
func (d *Utilization) Saturation(in *schedule.Input) float64 {
	queues, caches := in.Numbers(d.queue), in.Numbers(d.cache)
	sum, n, counts := 0.0, 0, countedOf(in)
	for i := range in.Candidates().Len() {
		if in.Awaited(d.queue, i) || !counts.has(i) {
			continue
		}
		n++
		if !d.known(in, i, queues.At(i), caches.At(i)) {
			sum++
			continue
		}
		full := 0.0
		if q := queues.At(i) / float64(d.QueueDepthThreshold); q > full {
			full = q
		}
		if c := caches.At(i) / d.KVCacheUtilThreshold; c > full {
			full = c
		}
		sum += full
	}
	return sum / float64(max(n, 1))
}

// Filter keeps the servers that have room, or all if none has.
func (d *Utilization) Filter(in *schedule.Input, keep []bool) {
	if d.Room(in, keep); slices.Contains(keep, true) {
		return
	}
	for i := range keep {
		keep[i] = true
	}
}

// Bounds returns how many requests may wait at a server, as far as the ceiling goes.
func (d *Utilization) Bounds(ceiling float64) endpoints.Room {
	return endpoints.Room{Waiting: endpoints.Part(d.QueueDepthThreshold, ceiling*(1+d.Headroom))}
}

// Room keeps the servers that have room.
func (d *Utilization) Room(in *schedule.Input, keep []bool) {
	queues, caches := in.Numbers(d.queue), in.Numbers(d.cache)
	mostQueue := d.Bounds(in.Ceiling()).Waiting
	mostCache := d.KVCacheUtilThreshold * (1 + d.Headroom) * in.Ceiling()
	for i := range keep {
		if in.Awaited(d.queue, i) {
			keep[i], _ = in.Waiting(i, mostQueue)
			continue
		}
		queue, cache := queues.At(i), caches.At(i)
		keep[i] = d.known(in, i, queue, cache) && !(cache >= mostCache) && d.admits(in, i, queue, mostQueue)
	}
}

// admits reports whether less than so many requests wait at candidate i. Until the next page that is known of a queue
// that the endpoint's own page tells; a queue that another source tells of stays what it was.
func (d *Utilization) admits(in *schedule.Input, i int, queue float64, most int) bool {
	if room, known := in.Waiting(i, most); known && !math.IsNaN(queue) {
		return room
	}
	return !(queue >= float64(most))
}

// Unknown returns how many servers no fresh answer tells of. Those whose first answer is awaited are not among them.
func (d *Utilization) Unknown(in *schedule.Input) (count int) {
	queues, caches := in.Numbers(d.queue), in.Numbers(d.cache)
	for i := range in.Candidates().Len() {
		if !in.Awaited(d.queue, i) && !d.known(in, i, queues.At(i), caches.At(i)) {
			count++
		}
	}
	return count
}

// known reports whether a fresh answer says how full candidate i is.
func (d *Utilization) known(in *schedule.Input, i int, queue, cache float64) bool {
	return !(math.IsNaN(queue) && math.IsNaN(cache)) && !in.Outdated(d.queue, i, d.MetricsStalenessThreshold)
}
