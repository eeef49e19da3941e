// Command my-picker is a picker with a type of queues, and with policies of what waits.
package main

import (
	"slices"

	"github.com/signalbox-epp/signalbox/cmd/signalbox/app"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/flow"
)

// Stacks give the newest request of a flow first.
type Stacks struct{}

// Can says what every queue must be able to do, and no order.
func (*Stacks) Can() flow.Ability { return flow.Needed }

// New returns an empty stack.
func (*Stacks) New() flow.Queue { return new(stack) }

type stack struct{ all []*flow.Entry }

func (s *stack) Push(e *flow.Entry) { s.all = append(s.all, e) }
func (s *stack) Head() *flow.Entry  { return s.all[len(s.all)-1] }
func (s *stack) Tail() *flow.Entry  { return s.all[0] }
func (s *stack) Len() int           { return len(s.all) }
func (s *stack) Remove(e *flow.Entry) {
	i := slices.Index(s.all, e)
	s.all = slices.Delete(s.all, i, i+1)
}

// AsQueued leaves the order of a flow's requests to its queue.
type AsQueued struct{}

// Key is the same for all.
func (*AsQueued) Key(*flow.Entry) int64 { return 0 }

// Needs is what every queue must be able to do.
func (*AsQueued) Needs() flow.Ability { return flow.Needed }

// Cheap has requests of one flow make way first.
type Cheap struct {
	FairnessID string `json:"fairnessID" doc:"The flow whose requests make way."`
}

// Excess is how much a flow has; that with the most makes way.
func (c *Cheap) Excess(a *flow.Account, last *flow.Entry) float64 {
	if last.Flow.Fairness == c.FairnessID {
		return float64(a.Requests)
	}
	return 0
}

func main() {
	app.Main(app.Plugins(
		config.PluginType{Type: "example.com/stacks", New: func() any { return new(Stacks) }},
		config.PluginType{Type: "example.com/as-queued", New: func() any { return new(AsQueued) }},
		config.PluginType{Type: "example.com/cheap", New: func() any { return new(Cheap) }},
	))
}
