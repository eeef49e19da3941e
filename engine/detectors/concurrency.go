package detectors

import (
	"errors"
	"fmt"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// The values of ConcurrencyMode.
const (
	requestsMode = "requests"
	tokensMode   = "tokens"
	hybridMode   = "hybrid"
)

// Concurrency says how full the pool is by what was sent to servers and has not ended: requests or tokens of all
// servers together, by the capacity of all. From 1 on, requests of negative priority are refused with status 429. In a
// profile it is a filter, which keeps the servers that are below their limit; if there are none the request is refused.
type Concurrency struct {
	// MaxConcurrency is the number of requests in flight at a full server.
	MaxConcurrency int `json:"maxConcurrency"`
	// Headroom is the share by which a server may be above its limit and pass the filter; 0.2 = a fifth more.
	Headroom float64 `json:"headroom"`
	// ConcurrencyMode says what counts: requests, tokens, or hybrid, the larger share of both of each server, of which
	// saturation is the mean.
	ConcurrencyMode string `json:"concurrencyMode"`
	// MaxTokenConcurrency is the number of prompt tokens to be computed at a full server.
	MaxTokenConcurrency int `json:"maxTokenConcurrency"`
	// InFlightLoadProducerName names the inflight-load-producer; empty = the only one.
	InFlightLoadProducerName string `json:"inFlightLoadProducerName" names:"inflight-load-producer"`

	requests, tokens attributes.NumberSlot
}

// Validate returns which parameters are out of range.
func (d *Concurrency) Validate() error {
	var errs []error
	if d.MaxConcurrency < 1 {
		errs = append(errs, fmt.Errorf("maxConcurrency: got %d, want 1 or more", d.MaxConcurrency))
	}
	if err := checkHeadroom(d.Headroom); err != nil {
		errs = append(errs, err)
	}
	if modes := []string{requestsMode, tokensMode, hybridMode}; !slices.Contains(modes, d.ConcurrencyMode) {
		errs = append(errs, fmt.Errorf("concurrencyMode: got %q, want one of %v", clip.Value(d.ConcurrencyMode), modes))
	}
	if d.MaxTokenConcurrency < 1 {
		errs = append(errs, fmt.Errorf("maxTokenConcurrency: got %d, want 1 or more", d.MaxTokenConcurrency))
	}
	return errors.Join(errs...)
}

// Declare asks for the load that counts.
func (d *Concurrency) Declare(r *attributes.Reader) {
	if d.ConcurrencyMode != tokensMode {
		d.requests = r.Number(attributes.InflightRequests.Name, d.InFlightLoadProducerName)
	}
	if d.ConcurrencyMode != requestsMode {
		d.tokens = r.Number(attributes.InflightTokens.Name, d.InFlightLoadProducerName)
	}
}

// Saturation returns the share of the capacity of all servers that get requests that they work on.
func (d *Concurrency) Saturation(in *schedule.Input) float64 {
	shares, servers := 0.0, 0
	for i, counts := 0, countedOf(in); i < in.Candidates().Len(); i++ {
		if counts.has(i) {
			shares += d.share(in, i)
			servers++
		}
	}
	return shares / float64(servers)
}

// Filter keeps the servers that are below their limit.
func (d *Concurrency) Filter(in *schedule.Input, keep []bool) { d.Room(in, keep) }

// Bounds returns the limits, with headroom, as far as the ceiling goes.
func (d *Concurrency) Bounds(ceiling float64) endpoints.Room {
	var room endpoints.Room
	if d.ConcurrencyMode != tokensMode {
		room.Requests = endpoints.Part(d.MaxConcurrency, ceiling*(1+d.Headroom))
	}
	if d.ConcurrencyMode != requestsMode {
		room.Tokens = endpoints.Part(d.MaxTokenConcurrency, ceiling*(1+d.Headroom))
	}
	return room
}

// Room keeps the servers that are below their limit.
func (d *Concurrency) Room(in *schedule.Input, keep []bool) {
	room := d.Bounds(in.Ceiling())
	for i := range keep {
		keep[i] = (room.Requests == 0 || in.Numbers(d.requests).At(i) < float64(room.Requests)) &&
			(room.Tokens == 0 || in.Numbers(d.tokens).At(i) < float64(room.Tokens))
	}
}

// share returns the share of its capacity that candidate i works on.
func (d *Concurrency) share(in *schedule.Input, i int) float64 {
	share := 0.0
	if d.ConcurrencyMode != tokensMode {
		share = in.Numbers(d.requests).At(i) / float64(d.MaxConcurrency)
	}
	if d.ConcurrencyMode != requestsMode {
		share = max(share, in.Numbers(d.tokens).At(i)/float64(d.MaxTokenConcurrency))
	}
	return share
}
