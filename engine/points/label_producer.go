package points

import (
	"errors"
	"fmt"
)

// LabelProducer gives labels of endpoints names under which endpoint-attribute-weight-scorer finds them.
type LabelProducer struct {
	// Labels are the labels with their names; at least one.
	Labels []NamedLabel `json:"labels"`
}

// NamedLabel is a label with the name of its attribute.
type NamedLabel struct {
	// Label is the key of the label, such as topology.kubernetes.io/region; required.
	Label string `json:"label"`
	// AttributeKey is the name by which plugins ask for it; required.
	AttributeKey string `json:"attributeKey"`
}

// Validate returns which parameters are missing, or stand twice.
func (p *LabelProducer) Validate() error {
	var errs []error
	if len(p.Labels) == 0 {
		errs = append(errs, errors.New("labels: got none, want at least one"))
	}
	seen := map[string]bool{}
	for i, l := range p.Labels {
		if l.Label == "" {
			errs = append(errs, fmt.Errorf("labels[%d].label: missing", i))
		}
		switch {
		case l.AttributeKey == "":
			errs = append(errs, fmt.Errorf("labels[%d].attributeKey: missing", i))
		case seen[l.AttributeKey]:
			errs = append(errs, fmt.Errorf("labels[%d].attributeKey: stands twice", i))
		}
		seen[l.AttributeKey] = true
	}
	return errors.Join(errs...)
}

// Label returns the key of the label that an attribute stands for; false = there is no such attribute.
func (p *LabelProducer) Label(attribute string) (key string, ok bool) {
	for _, l := range p.Labels {
		if l.AttributeKey == attribute {
			return l.Label, true
		}
	}
	return "", false
}
