package capacity

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// ceilings are what the actor keeps to put the ceilings of bands in force.
type ceilings struct {
	flow.CeilingsWriter
	saturation float64       // how full the pool was when a request last said so
	timer      runtime.Timer // nil = none runs
	due        time.Time     // when the timer is; set if it runs
	asked      time.Time     // when the usage limit was asked last; zero before
	levels     uint64        // of Queues, at that time
}

// limitEvery is how often the usage limit is asked at most, unless other priorities wait. It is about all of them, and
// many messages come in that time.
const limitEvery = 10 * time.Millisecond

// limit asks the usage limit how full endpoints may be, and says so. A ceiling that rises may be room.
func (a *Capacity) limit(ctx runtime.Context[messages.CapacityMsg]) {
	c, now := &a.ceilings, ctx.Now()
	if left := c.asked.Add(limitEvery).Sub(now); left > 0 && c.levels == a.queues.Levels() {
		if a.deps.Settings().UsageLimit != nil && a.queues.Total().Requests > 0 {
			a.askAgain(ctx, left)
		}
		return
	}
	c.asked, c.levels = now, a.queues.Levels()
	list, again := a.queues.Ceilings(flow.Seen{
		Now: ctx.Now(), Saturation: a.ceilings.saturation, Traffic: a.deps.Traffic,
	})
	if a.ceilings.Set(list) {
		a.onRoomChanged(messages.EndpointID{})
	}
	a.askAgain(ctx, again)
}

// askAgain has the usage limit asked again within a time; 0 = not by the clock.
func (a *Capacity) askAgain(ctx runtime.Context[messages.CapacityMsg], within time.Duration) {
	c, due := &a.ceilings, ctx.Now().Add(within)
	if within <= 0 || c.timer != nil && !due.Before(c.due) {
		return
	}
	if c.timer != nil {
		c.timer.Cancel()
	}
	c.timer, c.due = ctx.After(within, messages.CeilingsDue{}), due
}

// seen takes from a request how full it found the pool.
func (a *Capacity) seen(s messages.Saturation) {
	if s.Known {
		a.ceilings.saturation = s.Full
	}
}
