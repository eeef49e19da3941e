//go:build mutation_stop

package sim_test

import (
	"math"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// A stop delivers: a cycle that stopped is still given what was told to it before.
func init() {
	tagged = mutation{tag: "mutation_stop",
		outside: func(a runtime.Actor[messages.CycleMsg]) runtime.Actor[messages.CycleMsg] {
			return &lingering{Actor: a}
		}}
}

type lingering struct {
	runtime.Actor[messages.CycleMsg]
	stopping bool
}

// enough is the message at which a lingering actor ends.
var enough = messages.CycleDeadlinePassed{Generation: math.MaxUint32}

func (a *lingering) Receive(ctx runtime.Context[messages.CycleMsg], m messages.CycleMsg) {
	if m == messages.CycleMsg(enough) {
		ctx.Stop()
		return
	}
	a.Actor.Receive(slow{ctx, a}, m)
}

type slow struct {
	runtime.Context[messages.CycleMsg]
	actor *lingering
}

func (s slow) Stop() {
	if !s.actor.stopping {
		s.actor.stopping = true
		s.Context.After(0, enough)
	}
}
