package filters

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// EndpointAttribute keeps the servers of which an attribute is on the right side of a threshold. An attribute that is
// not built in is what a prometheus-extractor or json-extractor takes. Servers whose answer is stale are dropped; while
// all are stale, all are kept.
type EndpointAttribute struct {
	// AttributeKey is the attribute's name, such as example.com/watts or queued-requests; required.
	AttributeKey string `json:"attributeKey"`
	// Attribute is another name of attributeKey.
	Attribute string `json:"attribute"`
	// Producer is the plugin that emits it, by name; empty = the only one.
	Producer string `json:"producer"`
	// OnMissing says what becomes of a server that does not report it: Pass or Fail.
	OnMissing string `json:"onMissing"`
	// FallbackOnEmpty keeps all servers where none would be left.
	FallbackOnEmpty bool `json:"fallbackOnEmpty"`
	// Algorithm says which servers stay.
	Algorithm ThresholdAlgorithm `json:"algorithm"`

	value attributes.NumberSlot
}

// ThresholdAlgorithm compares with a threshold.
type ThresholdAlgorithm struct {
	// Type says how servers are judged: by one threshold.
	Type string `json:"type"`
	// Threshold is the comparison that the attribute of a server that stays holds.
	Threshold Threshold `json:"threshold"`
}

// Threshold is a comparison with a number.
type Threshold struct {
	// Operator says how the attribute compares with value, which stands on the right.
	Operator string `json:"operator"`
	// Value is what is compared with.
	Value float64 `json:"value"`
}

var operators = []string{"LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "Equal", "NotEqual"}

// Validate returns which parameters are missing or out of range.
func (f *EndpointAttribute) Validate() error {
	var errs []error
	switch {
	case f.AttributeKey == "" && f.Attribute == "":
		errs = append(errs, errors.New("attributeKey: got none, and no attribute, want one of them"))
	case f.AttributeKey != "" && f.Attribute != "":
		errs = append(errs, errors.New("attribute: stands beside attributeKey, want one of them"))
	}
	if f.OnMissing != "Pass" && f.OnMissing != "Fail" {
		errs = append(errs, fmt.Errorf("onMissing: got %q, want Pass or Fail", clip.Value(f.OnMissing)))
	}
	if f.Algorithm.Type != "threshold" {
		errs = append(errs, fmt.Errorf("algorithm.type: got %q, want threshold", clip.Value(f.Algorithm.Type)))
	}
	t := f.Algorithm.Threshold
	if !slices.Contains(operators, t.Operator) {
		errs = append(errs, fmt.Errorf("algorithm.threshold.operator: got %q, want one of %v",
			clip.Value(t.Operator), operators))
	}
	switch name := f.name(); {
	case math.IsNaN(t.Value):
		errs = append(errs, errors.New("algorithm.threshold.value: got NaN, want a number"))
	case attributes.IsShare(name) && !(t.Value >= 0 && t.Value <= 1):
		errs = append(errs, fmt.Errorf("algorithm.threshold.value: got %v, want 0 to 1, for %s is a share", t.Value,
			name))
	}
	return errors.Join(errs...)
}

// Declare asks for the attribute.
func (f *EndpointAttribute) Declare(r *attributes.Reader) {
	f.value = r.Named(f.name(), f.Producer)
}

func (f *EndpointAttribute) name() string { return cmp.Or(f.AttributeKey, f.Attribute) }

// Filter compares the attribute of each candidate.
func (f *EndpointAttribute) Filter(in *schedule.Input, keep []bool) {
	values, left := in.Numbers(f.value), 0
	for i := range keep {
		x := values.At(i)
		keep[i] = x == x && f.Algorithm.Threshold.holds(x) || x != x && f.OnMissing == "Pass"
		if keep[i] {
			left++
		}
	}
	if left == 0 && f.FallbackOnEmpty {
		keepAll(keep)
	}
}

func (t *Threshold) holds(x float64) bool {
	switch t.Operator {
	case "LessThan":
		return x < t.Value
	case "LessThanOrEqual":
		return x <= t.Value
	case "GreaterThan":
		return x > t.Value
	case "GreaterThanOrEqual":
		return x >= t.Value
	case "Equal":
		return x == t.Value
	}
	return x != t.Value
}
