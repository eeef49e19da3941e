package profiles

import (
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// SingleProfile runs the only profile once; what it picks serves the request. The configuration must have one profile.
type SingleProfile struct{}

// Validate returns nil: there are no parameters.
func (SingleProfile) Validate() error { return nil }

// Next returns the first profile, then none.
func (SingleProfile) Next(_ *messages.Request, profiles []string, earlier []schedule.Result) int {
	if len(earlier) > 0 || len(profiles) == 0 {
		return -1
	}
	return 0
}

// Primary returns the only result.
func (SingleProfile) Primary([]schedule.Result) int { return 0 }
