package detectors

import (
	"slices"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// Learning says how full the pool is by a window of requests in flight that is learned for each server: it grows while
// it is what limits and nothing waits at the server, and shrinks as soon as requests wait there. First tokens tell that
// at once, the metrics page every half second; a page that is stale, stands still, or does not account for the requests
// that were sent, is left out. A server that reads prompts in chunks has more of them waiting: it is given as much of
// them as it computes in a second, which first tokens tell, and while it is as fast as it was, those that wait there
// are no sign that it is full, unless its KV cache is. A server whose page does not tell of its work has no window
// until it works on 16 requests and first tokens come, or it refuses one. The detector has no parameters. Saturation is
// the requests in flight at all servers, by their windows; from 1 on, requests of negative priority are refused with
// status 429. In a profile it is a filter, which keeps the servers that are below their window, and all of them if
// there are none.
type Learning struct {
	requests, tokens, window attributes.NumberSlot
}

// Validate returns nil: there are no parameters.
func (*Learning) Validate() error { return nil }

// Declare asks for the load and its window, and has pages be read for what the window is learned from.
func (d *Learning) Declare(r *attributes.Reader) {
	d.requests = r.Number(attributes.InflightRequests.Name, "")
	d.tokens = r.Number(attributes.InflightTokens.Name, "")
	d.window = r.Number(attributes.WindowRequests.Name, "")
}

// Learns has pages be read for what a window is learned from, where there are any.
func (*Learning) Learns() []attributes.Attribute {
	return []attributes.Attribute{attributes.WaitingRequests, attributes.RunningRequests, attributes.KVCacheUsage}
}

// Saturation returns the share of the windows of all servers that get requests that is in use. A server without one is
// half full at most.
func (d *Learning) Saturation(in *schedule.Input) float64 {
	load, room, counts := 0.0, 0.0, countedOf(in)
	requests, windows := in.Numbers(d.requests), in.Numbers(d.window)
	for i := range in.Candidates().Len() {
		if !counts.has(i) {
			continue
		}
		load += requests.At(i)
		if window := windows.At(i); window > 0 {
			room += window
		} else {
			room += max(2*requests.At(i), 1)
		}
	}
	return load / room
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

// Exclude keeps all: a request for which a server without room is picked waits for that server.
func (*Learning) Exclude(*schedule.Input, []bool) {}

// Bounds has the window of each server be its bound, as far as the ceiling goes.
func (*Learning) Bounds(ceiling float64) endpoints.Room {
	return endpoints.Room{Learned: true, Share: ceiling}
}

// Room keeps the servers that are below their window, as far as the ceiling goes. While some of them would begin with
// the request at once, it keeps those alone: the last places of a window are for requests that wait at the server.
func (d *Learning) Room(in *schedule.Input, keep []bool) {
	if d.below(in, keep, min(in.Ceiling(), free)) || in.Ceiling() < free {
		return
	}
	d.below(in, keep, in.Ceiling())
}

// free is the ceiling of the places of a window at which no request waits at the server.
const free = 1 - 1e-9

// below keeps the servers that are below the part of their window that a ceiling leaves, and reports whether any is.
func (d *Learning) below(in *schedule.Input, keep []bool, ceiling float64) bool {
	requests, tokens := in.Numbers(d.requests), in.Numbers(d.tokens)
	for i := range keep {
		room := in.Window(i).Part(ceiling)
		keep[i] = (room.Requests == 0 || int(requests.At(i)) < room.Requests) &&
			(room.Tokens == 0 || int(tokens.At(i)) < room.Tokens) &&
			(room.Prompts == 0 || in.Backlog(i) < room.Prompts)
	}
	return slices.Contains(keep, true)
}
