package ceilings

import (
	"math"
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

// Reserve keeps a few places free for requests of higher priorities: as many as these need so that about one in two
// hundred does not find one, by how many of them come and how many requests end in a second. While none of a higher
// priority come, it keeps nothing back.
type Reserve struct{}

const (
	unlucky      = 1. / 200 // part of the requests of higher priority that find no place
	mostReserved = .1       // of all places
)

// Validate returns nil: there are no parameters.
func (*Reserve) Validate() error { return nil }

// Ceilings returns what is left beside the reserve of all higher priorities.
func (*Reserve) Ceilings(in *flow.Usage, out []float64) time.Duration {
	leaving, inflight := 0., int64(0)
	for _, b := range in.Bands {
		leaving += b.Rates.Dispatches
		inflight += b.Inflight
	}
	coming := 0. // of higher priorities
	for i, b := range in.Bands {
		if coming > 0 && inflight > 0 {
			out[i] = 1 - min(places(coming, leaving)/float64(inflight), mostReserved)
		}
		coming += b.Rates.Arrivals
	}
	return 0
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
