package profiles

import (
	"fmt"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// HeaderProfile runs the profile that a header of the request names.
type HeaderProfile struct {
	// HeaderName is the header whose value is the name of a profile.
	HeaderName string `json:"headerName"`
	// DefaultProfile is the profile of requests without the header, or with one that names no profile.
	DefaultProfile string `json:"defaultProfile"`

	header   attributes.HeaderSlot
	standard int // index of DefaultProfile
}

// Validate returns which parameters are missing.
func (h *HeaderProfile) Validate() error {
	if h.HeaderName == "" {
		return fmt.Errorf("headerName: missing; name the header of the profile")
	}
	return nil
}

// Declare asks for the header.
func (h *HeaderProfile) Declare(r *attributes.Reader) { h.header = r.Header(h.HeaderName) }

// Arrange finds the default profile.
func (h *HeaderProfile) Arrange(profiles []string, _ func(string, string) any) error {
	if h.standard = slices.Index(profiles, h.DefaultProfile); h.standard < 0 {
		return fmt.Errorf("defaultProfile: no profile is named %q", clip.Value(h.DefaultProfile))
	}
	return nil
}

// Next returns the profile that the header names, then none.
func (h *HeaderProfile) Next(c *schedule.Course) schedule.Run {
	if c.Results().Len() > 0 {
		return schedule.Run{Profile: -1}
	}
	name, given := c.Header(h.header)
	for i, profile := range c.Profiles().All() {
		if given && profile == name {
			return schedule.Run{Profile: i}
		}
	}
	return schedule.Run{Profile: h.standard}
}

// Primary returns the only result.
func (h *HeaderProfile) Primary(*schedule.Course) int { return 0 }
