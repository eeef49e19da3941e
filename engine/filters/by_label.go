package filters

import (
	"errors"
	"fmt"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// ByLabel keeps the servers of which a label has one of some values. It is the older way to write a
// label-selector-filter, which has no allowsNoLabel.
type ByLabel struct {
	// Label is the key of the label; required.
	Label string `json:"label"`
	// ValidValues are the values that are kept; at least one, unless allowsNoLabel is true.
	ValidValues []string `json:"validValues"`
	// AllowsNoLabel keeps the servers without the label, too.
	AllowsNoLabel bool `json:"allowsNoLabel"`
}

// Validate returns what is wrong with the label.
func (f *ByLabel) Validate() error {
	var errs []error
	if f.Label == "" {
		errs = append(errs, errors.New("label: missing; name the key of the label"))
	} else if !validKey(f.Label) {
		errs = append(errs, fmt.Errorf("label: got %q, want a label key such as app or example.com/app",
			clip.Value(f.Label)))
	}
	if len(f.ValidValues) == 0 && !f.AllowsNoLabel {
		errs = append(errs, errors.New("validValues: got none, want at least one"))
	}
	return errors.Join(errs...)
}

// Filter keeps candidates by their label.
func (f *ByLabel) Filter(in *schedule.Input, keep []bool) {
	for i := range in.Candidates().Len() {
		value, labelled := in.Candidates().At(i).Label(f.Label)
		keep[i] = labelled && slices.Contains(f.ValidValues, value) || !labelled && f.AllowsNoLabel
	}
}
