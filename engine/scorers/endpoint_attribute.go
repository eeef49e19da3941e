package scorers

import (
	"errors"
	"fmt"
	"math"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// EndpointAttribute scores by one attribute, whatever it is: in proportion between the best value, which scores 1, and
// the worst, which scores 0. An attribute that is not built in is what a prometheus-extractor or json-extractor takes.
// A server that does not report it scores the mean of those that do, and 0 if none does. A server whose answer is stale
// is passed by; while all are stale, in-flight load stands in.
type EndpointAttribute struct {
	// AttributeKey is the attribute's name, such as example.com/watts or queued-requests; required.
	AttributeKey string `json:"attributeKey"`
	// Producer is the plugin that emits it, by name; empty = the only one.
	Producer string `json:"producer"`
	// Algorithm says what is better.
	Algorithm LinearAlgorithm `json:"algorithm"`

	value attributes.NumberSlot
}

// LinearAlgorithm says which values are better, and which are the best and the worst.
type LinearAlgorithm struct {
	// Type is linear_lower_is_better or linear_higher_is_better.
	Type string `json:"type"`
	// Normalization says which values score 0 and 1.
	Normalization Normalization `json:"normalization"`
}

// Normalization is a fixed range, or that of the candidates.
type Normalization struct {
	// FixedRange has the values that score 0 and 1; those beyond score like the nearer of both.
	FixedRange *Range `json:"fixedRange"`
	// AdaptiveRange is that from the least to the largest value of the candidates; it holds without a fixedRange.
	AdaptiveRange *struct{} `json:"adaptiveRange"`
}

// Range is that from min to max.
type Range struct {
	// Min is less than max.
	Min float64 `json:"min"`
	// Max is more than min.
	Max float64 `json:"max"`
}

const (
	lowerIsBetter  = "linear_lower_is_better"
	higherIsBetter = "linear_higher_is_better"
)

// Validate returns which parameters are missing or out of range.
func (s *EndpointAttribute) Validate() error {
	var errs []error
	if s.AttributeKey == "" {
		errs = append(errs, errors.New("attributeKey: missing; name an attribute"))
	}
	if t := s.Algorithm.Type; t != lowerIsBetter && t != higherIsBetter {
		errs = append(errs, fmt.Errorf("algorithm.type: got %q, want %s or %s", clip.Value(t), lowerIsBetter,
			higherIsBetter))
	}
	n := s.Algorithm.Normalization
	if n.FixedRange != nil && n.AdaptiveRange != nil {
		errs = append(errs, errors.New("algorithm.normalization: got fixedRange and adaptiveRange, want one of them"))
	}
	switch r := n.FixedRange; {
	case r == nil:
	case !(r.Min < r.Max && r.Max-r.Min <= math.MaxFloat64):
		errs = append(errs, fmt.Errorf("algorithm.normalization.fixedRange: got %v to %v, want min less than max",
			r.Min, r.Max))
	case attributes.IsShare(s.AttributeKey) && (r.Min < 0 || r.Max > 1):
		errs = append(errs, fmt.Errorf("algorithm.normalization.fixedRange: got %v to %v, want 0 to 1, "+
			"for %s is a share", r.Min, r.Max, s.AttributeKey))
	}
	return errors.Join(errs...)
}

// Declare asks for the attribute.
func (s *EndpointAttribute) Declare(r *attributes.Reader) {
	s.value = r.Named(s.AttributeKey, s.Producer)
}

// Score places the candidates in the range.
func (s *EndpointAttribute) Score(in *schedule.Input, scores []float32) {
	values, unknown := in.Numbers(s.value), 0
	worst, best := s.ends(values)
	for i := range scores {
		x := values.At(i)
		switch {
		case x != x:
			unknown++
		case worst == best:
			scores[i] = 1
		default:
			scores[i] = float32(min(max((x-worst)/(best-worst), 0), 1))
		}
	}
	if unknown > 0 {
		scoreUnknown(values, scores, 0)
	}
}

// ends returns the values that score 0 and 1; equal = all that are known score 1.
func (s *EndpointAttribute) ends(values schedule.Numbers) (worst, best float64) {
	lo, hi := math.Inf(1), math.Inf(-1)
	if r := s.Algorithm.Normalization.FixedRange; r != nil {
		lo, hi = r.Min, r.Max
	} else {
		for i := range values.Len() {
			if x := values.At(i); x == x {
				lo, hi = min(lo, x), max(hi, x)
			}
		}
	}
	if s.Algorithm.Type == higherIsBetter {
		return lo, hi
	}
	return hi, lo
}
