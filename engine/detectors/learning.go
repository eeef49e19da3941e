package detectors

import (
	"math"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// Learning says how full the pool is by a window of requests in flight that is learned for each server: it grows while
// it is what limits and nothing waits at the server, and shrinks as soon as requests wait there. First tokens tell that
// at once, the metrics page every half second; a page that is stale, stands still, or does not account for the requests
// that were sent, is left out. The detector has no parameters. Saturation is the requests in flight at all servers, by
// their windows; from 1 on, requests of negative priority are refused with status 429. In a profile it is a filter,
// which keeps the servers that are below their window, and all of them if there are none.
type Learning struct {
	requests, tokens, window, windowTokens attributes.NumberSlot
}

// Validate returns nil: there are no parameters.
func (*Learning) Validate() error { return nil }

// Declare asks for the load and its window, and has pages be read for what the window is learned from.
func (d *Learning) Declare(r *attributes.Reader) {
	d.requests = r.Number(attributes.InflightRequests.Name, "")
	d.tokens = r.Number(attributes.InflightTokens.Name, "")
	d.window = r.Number(attributes.WindowRequests.Name, "")
	d.windowTokens = r.Number(attributes.WindowTokens.Name, "")
}

// Learns has pages be read for what a window is learned from, where there are any.
func (*Learning) Learns() []attributes.Attribute {
	return []attributes.Attribute{attributes.WaitingRequests, attributes.RunningRequests, attributes.KVCacheUsage}
}

// Saturation returns the share of the windows of all servers that is in use.
func (d *Learning) Saturation(in *schedule.Input) float64 {
	return sum(in.Numbers(d.requests)) / sum(in.Numbers(d.window))
}

// Filter keeps the servers that are below their window, or all if none is.
func (d *Learning) Filter(in *schedule.Input, keep []bool) {
	if d.Room(in, keep); slices.Contains(keep, true) {
		return
	}
	for i := range keep {
		keep[i] = true
	}
}

// Bounds has the window of each server be its bound, as far as the ceiling goes.
func (*Learning) Bounds(ceiling float64) endpoints.Room {
	return endpoints.Room{Learned: true, Share: ceiling}
}

// Room keeps the servers that are below their window, as far as the ceiling goes.
func (d *Learning) Room(in *schedule.Input, keep []bool) {
	requests, window := in.Numbers(d.requests), in.Numbers(d.window)
	tokens, windowTokens := in.Numbers(d.tokens), in.Numbers(d.windowTokens)
	for i := range keep {
		keep[i] = !(requests.At(i) >= part(window.At(i), in)) && !(tokens.At(i) >= part(windowTokens.At(i), in))
	}
}

// part returns how much of a window the request may find in use; NaN = any.
func part(window float64, in *schedule.Input) float64 {
	if math.IsNaN(window) {
		return window
	}
	return float64(endpoints.Part(int(window), in.Ceiling()))
}
