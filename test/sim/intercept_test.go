package sim_test

import (
	"reflect"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// intercept puts faults around the picker's actors and addresses, and what writes down what they do.
type intercept struct{ *world }

// Incarnation wraps an actor of the picker. The outermost skin is a fault's.
func (i intercept) Incarnation(of runtime.Birth, actor any) any {
	if of.Again {
		i.faults.drew(restartOf(of.Kind))
	}
	switch a := actor.(type) {
	case runtime.Actor[messages.CycleMsg]:
		followed := &followed{Actor: skin(tagged.cycle, a), ledger: i.ledger, model: i.model}
		return skin(tagged.outside, shaken[messages.CycleMsg](i.faults, of.Kind, followed))
	case runtime.Actor[messages.PrefixMsg]:
		return shaken[messages.PrefixMsg](i.faults, of.Kind, &heeded{skin(tagged.prefix, a), i.model.prefix})
	case runtime.Actor[messages.ScraperMsg]:
		id := of.First.(messages.EndpointAssigned).Endpoint
		return shaken[messages.ScraperMsg](i.faults, of.Kind, i.ledger.counts(i.model, id, a))
	case runtime.Actor[messages.PoolMsg]:
		return shaken[messages.PoolMsg](i.faults, of.Kind, &listed{a, i.world})
	}
	return i.others(of, actor)
}

// others wraps the other actors. Of shards it is written down what they are told, of all of them when they end.
func (i intercept) others(of runtime.Birth, actor any) any {
	switch a := actor.(type) {
	case runtime.Actor[messages.ShardMsg]:
		heard := i.ledger.heard[of.First.(messages.ShardStarted).Shard]
		return shaken[messages.ShardMsg](i.faults, of.Kind, &hearing{a, heard})
	case runtime.Actor[messages.OutlierMsg]:
		return shaken(i.faults, of.Kind, a)
	case runtime.Actor[messages.MemoryMsg]:
		return shaken[messages.MemoryMsg](i.faults, of.Kind, &keeping{a, i.model.kept})
	case runtime.Actor[messages.CapacityMsg]:
		return shaken[messages.CapacityMsg](i.faults, of.Kind, &whimsical{
			Actor: a, faults: i.faults, lines: map[messages.RequestID]*whim{},
		})
	case runtime.Actor[messages.WindowMsg]:
		return shaken(i.faults, of.Kind, a)
	case runtime.Actor[messages.RecorderMsg]:
		return shaken(i.faults, of.Kind, a)
	}
	return actor
}

// Address wraps the addresses on which messages are lost or counted.
func (i intercept) Address(from, to string, sink any) any {
	switch from + " to " + to {
	case "cycle to prefix":
		return skin(tagged.release, sink.(messages.Sink[messages.PrefixMsg]))
	case "cycle to capacity":
		return mute{sink.(messages.Sink[messages.CapacityMsg]), i.faults}
	case "recorder to shard":
		return deaf{sink.(messages.Sink[messages.ShardMsg]), i.faults}
	}
	return sink
}

// listed is the pool actor, whose endpoints are written down.
type listed struct {
	runtime.Actor[messages.PoolMsg]
	*world
}

func (l *listed) Receive(ctx runtime.Context[messages.PoolMsg], m messages.PoolMsg) {
	l.Actor.Receive(ctx, m)
	for _, e := range l.pool.Snapshot().Endpoints {
		l.ledger.met(e)
	}
}

func (l *listed) Stopped(ctx runtime.Context[messages.PoolMsg]) { l.Actor.Stopped(ctx) }

// hearing is a shard. What it is told is counted, by the name of the message.
type hearing struct {
	runtime.Actor[messages.ShardMsg]
	heard map[string]int
}

func (h *hearing) Receive(ctx runtime.Context[messages.ShardMsg], m messages.ShardMsg) {
	h.heard[reflect.TypeOf(m).Name()]++
	h.Actor.Receive(ctx, m)
}

func (h *hearing) Stopped(ctx runtime.Context[messages.ShardMsg]) { h.Actor.Stopped(ctx) }
