package capacity

import (
	"maps"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// onFlowsQueried answers with what waits. It changes nothing.
func (a *Capacity) onFlowsQueried(ctx runtime.Context[messages.CapacityMsg], m messages.FlowsQueried) {
	now := ctx.Now()
	bands := a.queues.Look(now, m.Most, func(e *flow.Entry) bool { return a.hasRoomUpTo(e, e.Flow.Priority) })
	for i := range bands {
		bands[i].Ceiling = a.ceilings.Of(bands[i].Priority)
	}
	answer := messages.FlowsAnswered{
		Waiting:    messages.Held(a.queues.Total()),
		Limits:     messages.Held(a.queues.Limits()),
		Rate:       a.drain.perSecond(),
		Panics:     a.queues.Caught().Total(),
		Bands:      messages.TakeList(bands),
		UsageLimit: a.queues.LimitedBy(),
		Full: messages.TakeList(
			a.queues.Classes(slices.AppendSeq(slices.Collect(maps.Keys(a.full)), maps.Keys(a.prices.full))),
		),
	}
	if e := a.turn.entry; e != nil {
		answer.Trying = messages.Trying{Request: e.Request, Flow: e.Flow, Waited: now.Sub(e.Arrived)}
	}
	m.Admin.Tell(answer)
}
