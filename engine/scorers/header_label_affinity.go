package scorers

import (
	"errors"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// HeaderLabelAffinity prefers servers with a label whose value is that of a header of the request: they score 1, all
// others 0. All score 0 for a request without the header, or with an empty one.
type HeaderLabelAffinity struct {
	// HeaderName is the name of the header; required. Of its value the first 128 bytes count.
	HeaderName string `json:"headerName"`
	// LabelKey is the key of the label; required.
	LabelKey string `json:"labelKey"`

	header attributes.HeaderSlot
}

// Validate returns which parameters are missing.
func (s *HeaderLabelAffinity) Validate() error {
	var errs []error
	if s.HeaderName == "" {
		errs = append(errs, errors.New("headerName: missing; name a header of requests"))
	}
	if s.LabelKey == "" {
		errs = append(errs, errors.New("labelKey: missing; name a label of endpoints"))
	}
	return errors.Join(errs...)
}

// Declare asks for the header.
func (s *HeaderLabelAffinity) Declare(r *attributes.Reader) { s.header = r.Header(s.HeaderName) }

// Score compares the label of each candidate with the header.
func (s *HeaderLabelAffinity) Score(in *schedule.Input, scores []float32) {
	wanted, _ := in.Header(s.header)
	if wanted == "" {
		return
	}
	for i, c := range in.Candidates().All() {
		if value, _ := c.Label(s.LabelKey); value == wanted {
			scores[i] = 1
		}
	}
}
