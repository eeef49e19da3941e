package admitters

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// Probabilistic refuses requests of negative priority the more often the fuller the servers are, with status 429. The
// share of refused requests is the saturation to the power of power, times k, at most 1. Saturation is the mean over
// the servers of the larger one of two ratios: waiting requests, and KV cache in use, each by its threshold. A server
// that reports neither does not count. All requests are admitted while no server has a fresh sample.
type Probabilistic struct {
	// QueueDepthThreshold is the number of waiting requests at which a server is full.
	QueueDepthThreshold int `json:"queueDepthThreshold"`
	// KVCacheUtilThreshold is the share of the KV cache in use at which a server is full, above 0, at most 1.
	KVCacheUtilThreshold float64 `json:"kvCacheUtilThreshold"`
	// Power says how late refusals begin to grow.
	Power float64 `json:"power"`
	// K says how fast they grow then.
	K float64 `json:"k"`

	queue, cache attributes.NumberSlot
}

// Validate returns which parameters are out of range.
func (p *Probabilistic) Validate() error {
	var errs []error
	if p.QueueDepthThreshold < 1 {
		errs = append(errs, fmt.Errorf("queueDepthThreshold: got %d, want 1 or more", p.QueueDepthThreshold))
	}
	if !(p.KVCacheUtilThreshold > 0 && p.KVCacheUtilThreshold <= 1) {
		errs = append(errs, fmt.Errorf("kvCacheUtilThreshold: got %v, want above 0, at most 1",
			p.KVCacheUtilThreshold))
	}
	if !(p.Power > 0 && p.Power <= math.MaxFloat64) {
		errs = append(errs, fmt.Errorf("power: got %v, want above 0", p.Power))
	}
	if !(p.K >= 0 && p.K <= math.MaxFloat64) {
		errs = append(errs, fmt.Errorf("k: got %v, want 0 or more", p.K))
	}
	return errors.Join(errs...)
}

// Declare asks for what fills a server.
func (p *Probabilistic) Declare(r *attributes.Reader) {
	p.queue = r.Number(attributes.WaitingRequests.Name, "")
	p.cache = r.Number(attributes.KVCacheUsage.Name, "")
}

// Admit draws for requests of negative priority.
func (p *Probabilistic) Admit(in *schedule.Input) schedule.Refusal {
	if in.Request().Priority() >= 0 {
		return schedule.Refusal{}
	}
	share := min(math.Pow(p.saturation(in), p.Power)*p.K, 1)
	if !(share > 0) || in.Rand().Float64() >= share {
		return schedule.Refusal{}
	}
	return schedule.Refusal{
		Reason: messages.NoCapacity, Detail: "the servers are too full for requests of this priority",
		RetryAfter: time.Second,
	}
}

// saturation returns how full the servers are, 1 = full; 0 if none says.
func (p *Probabilistic) saturation(in *schedule.Input) float64 {
	queues, caches := in.Numbers(p.queue), in.Numbers(p.cache)
	sum, n := 0.0, 0
	for i := range in.Candidates().Len() {
		full := -1.0
		if q := queues.At(i) / float64(p.QueueDepthThreshold); q > full {
			full = q
		}
		if c := caches.At(i) / p.KVCacheUtilThreshold; c > full {
			full = c
		}
		if full >= 0 {
			sum, n = sum+full, n+1
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}
