package ceilings

import (
	"math"
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

// Reserve keeps a few places free for requests of higher priorities: as many as these need so that about one in two
// hundred does not find one, by how many of them come and how many requests end in a second. While none of a higher
// priority come, it keeps nothing back. Within a priority it does so for flows that have one request waiting, as
// against flows that have more.
type Reserve struct{}

const (
	unlucky      = 1. / 200 // part of the requests of higher priority that find no place
	mostReserved = .1       // of all places
	rare         = .01      // requests a second for which nothing is kept free
)

// Validate returns nil: there are no parameters.
func (*Reserve) Validate() error { return nil }

// Ceilings returns what is left beside the reserve of all higher priorities.
func (*Reserve) Ceilings(in *flow.Usage, out []float64) time.Duration {
	leaving, inflight := all(in)
	coming := 0. // of higher priorities
	for i, b := range in.Bands {
		if coming > rare && inflight > 0 {
			out[i] = 1 - min(places(coming, leaving)/float64(inflight), mostReserved)
		}
		coming += b.Rates.Arrivals
	}
	return 0
}

// all returns how many requests of all priorities leave in a second, and how many run.
func all(in *flow.Usage) (leaving float64, inflight int64) {
	for _, b := range in.Bands {
		leaving += b.Rates.Dispatches
		inflight += b.Inflight
	}
	return leaving, inflight
}

// Crowd returns what is left beside the reserve of flows that have one request waiting.
func (*Reserve) Crowd(in *flow.Usage, i int) float64 {
	leaving, inflight := all(in)
	if coming := in.Bands[i].Rates.Alone; coming > leaving/20 && inflight > 0 {
		return 1 - min(places(coming, leaving)/float64(inflight), mostReserved)
	}
	return 1
}

// places returns how many places are enough. Each that is taken comes back when a request ends, and those that come
// faster than that are served from them: the number in use is then geometric.
func places(coming, leaving float64) float64 {
	share := .9
	if leaving > 0 {
		share = min(coming/leaving, share)
	}
	return math.Ceil(math.Log(unlucky) / math.Log(share))
}
