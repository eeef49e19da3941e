//go:build mutation_answer

package sim_test

import (
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// A second answer: a cycle that falls after its answer says once more that it failed.
func init() {
	tagged = mutation{tag: "mutation_answer",
		cycle: func(a runtime.Actor[messages.CycleMsg]) runtime.Actor[messages.CycleMsg] {
			return &talkative{Actor: a}
		}}
}

type talkative struct {
	runtime.Actor[messages.CycleMsg]
	stream messages.Sink[messages.StreamMsg]
	ended  bool // it came to its end by itself
}

func (c *talkative) Receive(ctx runtime.Context[messages.CycleMsg], m messages.CycleMsg) {
	if m, ok := m.(messages.RequestArrived); ok {
		c.stream = m.Stream
	}
	c.Actor.Receive(noting{ctx, &c.ended}, m)
}

type noting struct {
	runtime.Context[messages.CycleMsg]
	ended *bool
}

func (n noting) Stop() {
	*n.ended = true
	n.Context.Stop()
}

func (c *talkative) Stopped(ctx runtime.Context[messages.CycleMsg]) {
	c.Actor.Stopped(ctx)
	if c.stream != nil && !c.ended {
		c.stream.Tell(messages.PickFailed{Reason: messages.Internal})
	}
}
