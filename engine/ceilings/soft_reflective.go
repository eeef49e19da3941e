package ceilings

import (
	"math"
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

// SoftReflective lets lower priorities through the more slowly the fuller the pool is. Of n priorities, that of rank i,
// 0 the highest, is served as usual while the saturation is below 1 - i * saturation / (n - 1). From there on its
// requests go to servers that are less full than that, and to all others only from time to time: for a hundredth of a
// second in each s / (1 - s) hundredths, s being the saturation. While the pool is saturated they go to no others. The
// highest priority is never held back.
type SoftReflective struct{}

// tick is how long a band whose ceiling is reached is served at a time.
const tick = 10 * time.Millisecond

// Validate returns nil: there are no parameters.
func (*SoftReflective) Validate() error { return nil }

// ReadsSaturation reports that the policy goes by how full the pool is.
func (*SoftReflective) ReadsSaturation() bool { return true }

// Ceilings returns 1 for the bands that are served at this time, and for the others the saturation at which they are
// held back.
func (*SoftReflective) Ceilings(in *flow.Usage, out []float64) (again time.Duration) {
	ranks := float64(max(len(out)-1, 1))
	open, changes := turn(in.Now, in.Saturation)
	matters := false // it makes a difference whether it is their turn
	for i := range out {
		reflection := ranks / (ranks + float64(i)) // the saturation s that is 1 - i * s / ranks
		if i == 0 || !(in.Saturation >= reflection) {
			continue
		}
		matters = matters || open || in.Bands[i].Waiting > 0
		if !open {
			out[i] = reflection
		}
	}
	if !matters {
		return 0
	}
	return changes
}

// turn reports whether it is the turn of bands that are held back, and after which time that changes; 0 = it does not.
func turn(now time.Time, saturation float64) (open bool, changes time.Duration) {
	period := math.Round(saturation / (1 - saturation))
	switch {
	case !(saturation < 1) || period > math.MaxInt32:
		return false, 0
	case period <= 1:
		return true, 0
	}
	ticks, at := int64(period), now.UnixNano()
	left := int64(tick) - at%int64(tick) // of this tick
	number := at / int64(tick) % ticks
	if number == 0 {
		return true, time.Duration(left)
	}
	return false, time.Duration((ticks-number-1)*int64(tick) + left)
}
