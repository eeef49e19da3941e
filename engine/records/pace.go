package records

import (
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// PaceBounds returns up to how many seconds each bucket of a Pace but the last one reaches, as the reference has them.
func PaceBounds() []float64 { return paceBounds[:] }

var paceBounds = [messages.PaceBuckets - 1]float64{
	.001, .005, .01, .02, .04, .06, .08, .1, .15, .2, .3, .5, .75, 1, 2,
}

// AddPace adds an event that came so long after the one before.
func AddPace(to *messages.Pace, gap time.Duration) {
	at, seconds := 0, gap.Seconds()
	for at < len(paceBounds) && seconds > paceBounds[at] {
		at++
	}
	to.Events[at]++
	to.Sum += gap
}
