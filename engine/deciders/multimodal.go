package deciders

import "github.com/signalbox-epp/signalbox/engine/schedule"

// Multimodal has the media of a request encoded by encode servers, if it has any.
type Multimodal struct{}

// Validate returns nil: there are no parameters.
func (Multimodal) Validate() error { return nil }

// Decide looks for images, sounds and files in the messages.
func (Multimodal) Decide(c *schedule.Course, _ int) bool { return c.Request().Media() > 0 }
