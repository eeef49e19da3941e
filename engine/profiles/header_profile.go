package profiles

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// HeaderProfile runs the profile that a header of the request names. If there is one profile only, it runs whatever the
// header says.
type HeaderProfile struct {
	// HeaderName is the header whose value is the name of a profile; empty = EPP-Profile.
	HeaderName string `json:"headerName"`
	// DefaultProfile is the profile of requests without the header. If there is no such profile they are refused.
	DefaultProfile string `json:"defaultProfile"`
	// OnUnknown says what becomes of a request whose header names no profile: Refuse (400), or Default, which runs
	// defaultProfile.
	OnUnknown string `json:"onUnknown"`

	header   attributes.HeaderSlot
	standard int // index of the profile of requests without the header; -1 = they are refused
	missing  bool
}

const (
	profileHeader  = "EPP-Profile"
	refuseUnknown  = "Refuse"
	defaultUnknown = "Default"
)

// Adapt names the header that an empty name stands for.
func (h *HeaderProfile) Adapt() (warnings []error) {
	if h.HeaderName == "" {
		h.HeaderName = profileHeader
		warnings = append(warnings, errors.New("headerName: empty, which counts as "+profileHeader))
	}
	return warnings
}

// Validate returns which parameters are out of range.
func (h *HeaderProfile) Validate() error {
	if h.OnUnknown != refuseUnknown && h.OnUnknown != defaultUnknown {
		return fmt.Errorf("onUnknown: got %q, want %s or %s", clip.Value(h.OnUnknown), refuseUnknown, defaultUnknown)
	}
	return nil
}

// Declare asks for the header.
func (h *HeaderProfile) Declare(r *attributes.Reader) { h.header = r.Header(h.HeaderName) }

// Arrange finds the default profile.
func (h *HeaderProfile) Arrange(profiles []string, _ func(string, string) any) error {
	if h.standard = slices.Index(profiles, h.DefaultProfile); h.standard >= 0 {
		return nil
	}
	if len(profiles) == 1 {
		h.standard = 0
		return nil
	}
	h.missing = true
	if h.OnUnknown == defaultUnknown {
		return fmt.Errorf("defaultProfile: %w, and onUnknown is %s", noProfile(h.DefaultProfile, profiles),
			defaultUnknown)
	}
	return nil
}

// Doubts says which requests are refused.
func (h *HeaderProfile) Doubts() []error {
	if !h.missing {
		return nil
	}
	return []error{fmt.Errorf("defaultProfile: no profile is named %q, so requests without the header %s are refused",
		clip.Value(h.DefaultProfile), clip.Value(h.HeaderName))}
}

// Next returns the profile that the header names, then none.
func (h *HeaderProfile) Next(c *schedule.Course) schedule.Run {
	if c.Results().Len() > 0 {
		return schedule.Run{Profile: -1}
	}
	name, _ := c.Header(h.header)
	for i, profile := range c.Profiles().All() {
		if name != "" && profile == name {
			return schedule.Run{Profile: i}
		}
	}
	known := name == "" || h.OnUnknown == defaultUnknown || c.Profiles().Len() == 1
	if known && h.standard >= 0 {
		return schedule.Run{Profile: h.standard}
	}
	return schedule.Run{Profile: -1, Refused: schedule.Refusal{Reason: messages.InvalidRequest, Detail: fmt.Sprintf(
		"the header %s is %q, want the name of a profile", strings.ToLower(h.HeaderName), clip.Value(name))}}
}

// Primary returns the only result.
func (h *HeaderProfile) Primary(*schedule.Course) int { return 0 }

// noProfile says that a name is none of a file's profiles.
func noProfile(name string, profiles []string) error {
	shown := make([]string, len(profiles))
	for i, p := range profiles {
		shown[i] = clip.Value(p)
	}
	return fmt.Errorf("no profile is named %q, want one of %s", clip.Value(name), strings.Join(shown, ", "))
}
