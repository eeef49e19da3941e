// Package cycle is an actor.
package cycle

import (
	"example.test/planted/engine/schedule"
	"example.test/planted/messages"
)

// Cycle is one request.
type Cycle struct{ plugin schedule.Plugin }

// Receive handles one message.
func (c *Cycle) Receive(msg messages.CycleMsg) {
	switch msg.(type) {
	case messages.RequestArrived:
		c.plugin.Run()
	case messages.Dispatched:
	}
}
