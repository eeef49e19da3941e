package scorers

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// EndpointAttributeWeight prefers servers by what a label-producer says of them, such as their region or GPU: the score
// of a server is the weight of its value divided by the largest weight. A server without a value, or with one that has
// no weight, scores like the least weight.
type EndpointAttributeWeight struct {
	// AttributeKey is the name that the label-producer gives the attribute; required.
	AttributeKey string `json:"attributeKey"`
	// Producer names the label-producer; empty = the one that is called label-producer.
	Producer string `json:"producer"`
	// Weights has the weight of each value, above 0; at least one.
	Weights map[string]float64 `json:"weights"`

	label  string
	scores map[string]float32
	least  float32
}

// Labels is a plugin that names labels of endpoints.
type Labels interface {
	// Label returns the key of the label that an attribute stands for; false = there is no such attribute.
	Label(attribute string) (key string, ok bool)
}

// Validate returns which parameters are missing or out of range.
func (s *EndpointAttributeWeight) Validate() error {
	var errs []error
	if s.AttributeKey == "" {
		errs = append(errs, errors.New("attributeKey: missing; name an attribute of the label-producer"))
	}
	if len(s.Weights) == 0 {
		errs = append(errs, errors.New("weights: got none, want at least one"))
	}
	most, least := 0.0, math.Inf(1)
	for _, value := range slices.Sorted(maps.Keys(s.Weights)) {
		w := s.Weights[value]
		if !(w > 0 && w <= math.MaxFloat64) {
			errs = append(errs, fmt.Errorf("weights.%s: got %v, want above 0", clip.Value(value), w))
		}
		most, least = max(most, w), min(least, w)
	}
	if len(errs) == 0 && float32(least/most) == 0 {
		errs = append(errs, fmt.Errorf("weights: got %v beside %v, of which it is no part that counts", least, most))
	}
	return errors.Join(errs...)
}

// Refer finds the label, and divides the weights.
func (s *EndpointAttributeWeight) Refer(plugin func(parameter, name string) any) error {
	name := s.Producer
	if name == "" {
		name = "label-producer"
	}
	x := plugin("producer", name)
	if x == nil || len(s.Weights) == 0 {
		return nil // a problem already
	}
	of, ok := x.(Labels)
	if !ok {
		return fmt.Errorf("producer: %s is no label-producer", clip.Value(name))
	}
	if s.label, ok = of.Label(s.AttributeKey); !ok {
		return fmt.Errorf("attributeKey: %s has no attribute %q", clip.Value(name), clip.Value(s.AttributeKey))
	}
	most := slices.Max(slices.Collect(maps.Values(s.Weights)))
	s.scores, s.least = make(map[string]float32, len(s.Weights)), 1
	for value, w := range s.Weights {
		s.scores[value] = float32(w / most)
		s.least = min(s.least, s.scores[value])
	}
	return nil
}

// Score looks up the weight of each candidate's label.
func (s *EndpointAttributeWeight) Score(in *schedule.Input, scores []float32) {
	for i, c := range in.Candidates().All() {
		scores[i] = s.least
		if value, labelled := c.Label(s.label); labelled {
			if score, weighed := s.scores[value]; weighed {
				scores[i] = score
			}
		}
	}
}
