package chaos

import (
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// intercept has faults hit every actor of the picker, and notes which endpoints the pool had.
type intercept struct{ *rig }

// Incarnation wraps an actor of the picker. The outermost skin is a fault's.
func (i intercept) Incarnation(of runtime.Birth, actor any) any {
	switch a := actor.(type) {
	case runtime.Actor[messages.CycleMsg]:
		if n, ours := numberOf(of.First.(messages.RequestArrived).Request.ClientID); ours {
			return &frail{a, i.faults, diceOf(i.faults.seed, "cycle", uint64(n))}
		}
	case runtime.Actor[messages.PoolMsg]:
		return shaken[messages.PoolMsg](i.faults, of.Kind, &listed{a, i.rig})
	case runtime.Actor[messages.ShardMsg]:
		return shaken(i.faults, of.Kind, a)
	case runtime.Actor[messages.PrefixMsg]:
		return shaken(i.faults, of.Kind, a)
	case runtime.Actor[messages.MemoryMsg]:
		return shaken(i.faults, of.Kind, a)
	case runtime.Actor[messages.OutlierMsg]:
		return shaken(i.faults, of.Kind, a)
	case runtime.Actor[messages.CapacityMsg]:
		return shaken(i.faults, of.Kind, a)
	case runtime.Actor[messages.RecorderMsg]:
		return shaken(i.faults, of.Kind, a)
	case runtime.Actor[messages.ScraperMsg]:
		return shaken(i.faults, of.Kind, a)
	}
	return actor
}

// Address changes nothing: no message is lost between actors.
func (intercept) Address(_, _ string, sink any) any { return sink }

// listed is the pool actor, whose endpoints are noted when there are new ones.
type listed struct {
	runtime.Actor[messages.PoolMsg]
	*rig
}

func (l *listed) Receive(ctx runtime.Context[messages.PoolMsg], m messages.PoolMsg) {
	l.Actor.Receive(ctx, m)
	_, told := m.(messages.EndpointsDiscovered)
	_, restarted := m.(messages.EndpointRestarted)
	if told || restarted {
		l.ledger.met(l.picker.Pool().Snapshot())
	}
}

func (l *listed) Stopped(ctx runtime.Context[messages.PoolMsg]) { l.Actor.Stopped(ctx) }
