package scorers

import (
	"errors"
	"fmt"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// ActiveRequest prefers servers to which few requests have been sent that have not ended yet. It counts them itself
// and needs no metrics page. A server with at most idleThreshold of them scores 1; the others score between
// maxBusyScore and 0, where 0 is the busiest candidate.
type ActiveRequest struct {
	// RequestTimeout is the time after which a request counts no longer. Requests count until they end.
	RequestTimeout string `json:"requestTimeout" effect:"warning"`
	// IdleThreshold is the number of requests up to which a server counts as idle; 0 or more.
	IdleThreshold int `json:"idleThreshold"`
	// MaxBusyScore is the highest score of a server that is not idle, 0 to 1.
	MaxBusyScore float64 `json:"maxBusyScore"`
	// InFlightLoadProducerName names the inflight-load-producer that counts; empty = the only one.
	InFlightLoadProducerName string `json:"inFlightLoadProducerName" names:"inflight-load-producer"`

	requests attributes.NumberSlot
}

// Validate returns which parameters are out of range.
func (s *ActiveRequest) Validate() error {
	var errs []error
	if s.IdleThreshold < 0 {
		errs = append(errs, fmt.Errorf("idleThreshold: got %d, want 0 or more", s.IdleThreshold))
	}
	if !(s.MaxBusyScore >= 0 && s.MaxBusyScore <= 1) {
		errs = append(errs, fmt.Errorf("maxBusyScore: got %v, want 0 to 1", s.MaxBusyScore))
	}
	return errors.Join(errs...)
}

// Declare asks for the requests in flight.
func (s *ActiveRequest) Declare(r *attributes.Reader) {
	s.requests = r.Number(attributes.InflightRequests.Name, s.InFlightLoadProducerName)
}

// Score compares the candidates' requests in flight.
func (s *ActiveRequest) Score(in *schedule.Input, scores []float32) {
	requests, most := in.Numbers(s.requests), 0.0
	for i := range scores {
		most = max(most, requests.At(i))
	}
	for i := range scores {
		scores[i] = 1
		if n := requests.At(i); n > float64(s.IdleThreshold) {
			scores[i] = float32((most - n) / most * s.MaxBusyScore)
		}
	}
}
