package sim_test

import (
	"maps"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// whimsical is capacity, which does now and then what its messages allow and the actor has no reason to do: it has a
// request come late to the line, rejects it, evicts it, or has it end while it runs.
type whimsical struct {
	runtime.Actor[messages.CapacityMsg]
	*faults
	lines map[messages.RequestID]*whim
}

// whim is what comes of a request later.
type whim struct {
	kind  string
	asked messages.WaitRequested
	over  bool // the request waits no more
}

func (f *whimsical) Receive(ctx runtime.Context[messages.CapacityMsg], m messages.CapacityMsg) {
	if asked, ok := m.(messages.WaitRequested); ok {
		if w := f.lines[asked.Request]; w != nil {
			delete(f.lines, asked.Request)
			f.comes(ctx, w)
			return
		}
		f.onWaitRequested(ctx, asked)
		return
	}
	if ended, ok := m.(messages.WaitEnded); ok {
		if w := f.lines[ended.Request]; w != nil {
			w.over = true
		}
	}
	f.Actor.Receive(ctx, m)
}

func (f *whimsical) onWaitRequested(ctx runtime.Context[messages.CapacityMsg], m messages.WaitRequested) {
	p := f.dice.Float64()
	switch {
	case f.off || p > .16:
		f.Actor.Receive(ctx, m)
	case p < .03:
		f.drew(waitReject)
		m.Cycle.Tell(messages.Rejected{Reason: messages.NoCapacity, RetryAfter: time.Second})
	case p < .07:
		f.later(ctx, waitLate, limits.Queue*5/4, m)
	case p < .1:
		f.later(ctx, waitEvict, limits.Queue, m)
	default:
		f.Actor.Receive(ctx, m)
		f.later(ctx, waitRevoke, 3*time.Second, m)
	}
}

// later brings the request back within d: its own message is the timer.
func (f *whimsical) later(
	ctx runtime.Context[messages.CapacityMsg], kind string, d time.Duration, m messages.WaitRequested,
) {
	f.lines[m.Request] = &whim{kind: kind, asked: m}
	ctx.After(time.Duration(f.dice.Int64N(int64(d))), m)
}

func (f *whimsical) comes(ctx runtime.Context[messages.CapacityMsg], w *whim) {
	if w.over && w.kind != waitRevoke {
		return
	}
	f.drew(w.kind)
	switch w.kind {
	case waitLate:
		f.Actor.Receive(ctx, w.asked)
	case waitEvict:
		w.asked.Cycle.Tell(messages.Evicted{Reason: messages.TTLExpired, RetryAfter: time.Second})
	case waitRevoke:
		w.asked.Cycle.Tell(messages.Revoked{Reason: messages.NoCapacity, RetryAfter: time.Second})
	}
}

// Stopped answers requests that have not come to the line.
func (f *whimsical) Stopped(ctx runtime.Context[messages.CapacityMsg]) {
	f.Actor.Stopped(ctx)
	for _, id := range slices.Sorted(maps.Keys(f.lines)) {
		if w := f.lines[id]; !w.over && w.kind != waitRevoke {
			w.asked.Cycle.Tell(messages.Evicted{Reason: messages.Internal})
		}
	}
	f.lines = nil
}
