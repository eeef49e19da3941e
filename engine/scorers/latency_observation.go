package scorers

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// LatencyObservation prefers the server that is predicted to give the first token soonest, at the requests that it has
// in flight now, by what a latency-observer-producer-hub has observed. No page is read. The prediction is a line from
// the server's floor, at no requests in flight, by way of its low time to its typical time, each at the requests that
// were in flight then, and straight on. The low time is left out if it is not above the floor and below the typical
// one, or if its load is too near that of the typical one. The score falls from 1, of the least prediction, to 0, of
// the largest.
//
// A server of which too little was observed lately is tried by few requests: each scores 1 there with the probability
// of explorationRate, and else 0, as long as another server is known better. If none is, its prediction is its floor,
// or, if that is unknown too, that of the best server.
type LatencyObservation struct {
	// ExplorationRate is the probability that a request tries such a server, 0 to 1; with 0 it scores by its
	// prediction.
	ExplorationRate float64 `json:"explorationRate"`
	// MinInflightGap is by how many requests the loads of the low and the typical time must differ; more than 0.
	MinInflightGap float64 `json:"minInflightGap"`
	// RoundTTFTStep is what predictions are rounded to, in seconds; 0 = they are not.
	RoundTTFTStep float64 `json:"roundTTFTStep"`
	// TTFTPercentilesProducerName names the latency-observer-producer-hub that is read; empty = the only one.
	TTFTPercentilesProducerName string `json:"ttftPercentilesProducerName" names:"latency-observer-producer-hub"`
	// InFlightLoadProducerName names the inflight-load-producer that counts; empty = the only one.
	InFlightLoadProducerName string `json:"inFlightLoadProducerName" names:"inflight-load-producer"`

	floor, requests    attributes.NumberSlot
	low, lowAt         attributes.NumberSlot
	typical, typicalAt attributes.NumberSlot
}

// Validate returns which parameters are out of range.
func (s *LatencyObservation) Validate() error {
	var errs []error
	if !(s.ExplorationRate >= 0 && s.ExplorationRate <= 1) {
		errs = append(errs, fmt.Errorf("explorationRate: got %v, want 0 to 1", s.ExplorationRate))
	}
	if !(s.MinInflightGap > 0 && s.MinInflightGap <= math.MaxFloat64) {
		errs = append(errs, fmt.Errorf("minInflightGap: got %v, want more than 0", s.MinInflightGap))
	}
	if !(s.RoundTTFTStep >= 0 && s.RoundTTFTStep <= math.MaxFloat64) {
		errs = append(errs, fmt.Errorf("roundTTFTStep: got %v, want 0 or more", s.RoundTTFTStep))
	}
	return errors.Join(errs...)
}

// Refer has an observer be there.
func (s *LatencyObservation) Refer(plugin func(parameter, name string) any) error {
	plugin("ttftPercentilesProducerName", cmp.Or(s.TTFTPercentilesProducerName, "latency-observer-producer-hub"))
	return nil
}

// Declare asks for what was observed, and for the requests in flight.
func (s *LatencyObservation) Declare(r *attributes.Reader) {
	by := s.TTFTPercentilesProducerName
	s.requests = r.Number(attributes.InflightRequests.Name, s.InFlightLoadProducerName)
	s.floor = r.Number(attributes.FirstTokenFloor.Name, by)
	s.low, s.lowAt = r.Number(attributes.FirstTokenLow.Name, by), r.Number(attributes.FirstTokenLowLoad.Name, by)
	s.typical = r.Number(attributes.FirstTokenTypical.Name, by)
	s.typicalAt = r.Number(attributes.FirstTokenTypicalLoad.Name, by)
}

// Score predicts, and then compares. Between the two, scores hold predictions.
func (s *LatencyObservation) Score(in *schedule.Input, scores []float32) {
	least, most, trusted := math.Inf(1), math.Inf(-1), false
	for i := range scores {
		seconds, known := s.predict(in, i)
		trusted = trusted || known
		if scores[i] = float32(seconds); seconds == seconds {
			least, most = min(least, float64(scores[i])), max(most, float64(scores[i]))
		}
	}
	for i, seconds := range scores {
		_, known := s.predict(in, i)
		switch {
		case !known && trusted && s.ExplorationRate > 0:
			scores[i] = 0
			if in.Rand().Float64() < s.ExplorationRate {
				scores[i] = 1
			}
		case seconds != seconds || most <= least:
			scores[i] = 1
		default:
			scores[i] = float32((most - float64(seconds)) / (most - least))
		}
	}
}

// predict returns how long the first token of candidate i takes; NaN = nothing is known. known is false if too little
// was observed lately.
func (s *LatencyObservation) predict(in *schedule.Input, i int) (seconds float64, known bool) {
	floor, typical, typicalAt := in.Numbers(s.floor).At(i), in.Numbers(s.typical).At(i), in.Numbers(s.typicalAt).At(i)
	if !(typical > floor && typicalAt > 0) {
		return s.round(floor), false
	}
	low, lowAt, load := in.Numbers(s.low).At(i), in.Numbers(s.lowAt).At(i), in.Numbers(s.requests).At(i)
	fromAt, from, toAt, to := 0.0, floor, typicalAt, typical
	if lowAt > 0 && typicalAt-lowAt >= s.MinInflightGap && low > floor && low < typical {
		if load < lowAt {
			toAt, to = lowAt, low
		} else {
			fromAt, from = lowAt, low
		}
	}
	return s.round(max(from+(load-fromAt)*(to-from)/(toAt-fromAt), floor)), true
}

func (s *LatencyObservation) round(seconds float64) float64 {
	if s.RoundTTFTStep == 0 {
		return seconds
	}
	return math.Round(seconds/s.RoundTTFTStep) * s.RoundTTFTStep
}
