package profiles

import (
	"fmt"

	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// SingleProfile runs the only profile once; what it picks serves the request. The configuration must have one profile.
type SingleProfile struct{}

// Validate returns nil: there are no parameters.
func (SingleProfile) Validate() error { return nil }

// Arrange wants a single profile.
func (SingleProfile) Arrange(profiles []string, _ func(string, string) any) error {
	if len(profiles) != 1 {
		return fmt.Errorf("schedulingProfiles: got %d profiles, want one", len(profiles))
	}
	return nil
}

// Next returns the first profile, then none.
func (SingleProfile) Next(c *schedule.Course) schedule.Run {
	if c.Results().Len() > 0 || c.Profiles().Len() == 0 {
		return schedule.Run{Profile: -1}
	}
	return schedule.Run{}
}

// Primary returns the only result.
func (SingleProfile) Primary(*schedule.Course) int { return 0 }
