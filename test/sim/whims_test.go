package sim_test

import (
	"maps"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// whimsical is a flow shard that does now and then what its messages allow and the flow actor has no reason to do: it
// lets a request wait, rejects it, evicts it, or takes back what it gave.
type whimsical struct {
	runtime.Actor[messages.FlowMsg]
	*faults
	model *model
	shard int
	seed  uint64 // of the flows' shards
	lines map[messages.RequestID]*whim
	waits func() bool // requests wait for room
}

// whim is what comes of a request later.
type whim struct {
	kind  string
	asked messages.AdmissionRequested
	over  bool // the request has ended meanwhile
}

func (f *whimsical) Receive(ctx runtime.Context[messages.FlowMsg], m messages.FlowMsg) {
	switch m := m.(type) {
	case messages.AdmissionRequested:
		if want := shardOf(m.Wait.Flow, f.seed); want != f.shard {
			f.ledger.broken("request %d of flow %v came to flow shard %d, want %d", m.Wait.Request, m.Wait.Flow,
				f.shard, want)
		}
		if w := f.lines[m.Wait.Request]; w != nil {
			delete(f.lines, m.Wait.Request)
			f.comes(ctx, w)
			return
		}
		f.onAdmissionRequested(ctx, m)
	case messages.RequestEnded:
		if w := f.lines[m.Request]; w != nil {
			w.over = true
		}
		f.Actor.Receive(ctx, m)
		delete(f.model.places, m.Request)
	default:
		f.Actor.Receive(ctx, m)
	}
}

func (f *whimsical) onAdmissionRequested(ctx runtime.Context[messages.FlowMsg], m messages.AdmissionRequested) {
	p := f.dice.Float64()
	switch {
	case f.off || p > .08:
		f.admit(ctx, m)
	case p < .015:
		f.drew(flowReject)
		m.Wait.Cycle.Tell(messages.Rejected{Reason: messages.NoCapacity, RetryAfter: time.Second})
	case p < .035:
		f.later(ctx, flowWait, limits.Queue*5/4, m)
	case p < .05:
		f.later(ctx, flowEvict, limits.Queue, m)
	default:
		f.admit(ctx, m)
		f.later(ctx, flowRevoke, 3*time.Second, m)
	}
}

// later brings the request back within d: its own message is the timer.
func (f *whimsical) later(ctx runtime.Context[messages.FlowMsg], kind string, d time.Duration,
	m messages.AdmissionRequested) {
	f.lines[m.Wait.Request] = &whim{kind: kind, asked: m}
	ctx.After(time.Duration(f.dice.Int64N(int64(d))), m)
}

func (f *whimsical) comes(ctx runtime.Context[messages.FlowMsg], w *whim) {
	if w.over {
		return
	}
	f.drew(w.kind)
	switch w.kind {
	case flowWait:
		f.admit(ctx, w.asked)
	case flowEvict:
		w.asked.Wait.Cycle.Tell(messages.Evicted{Reason: messages.TTLExpired, RetryAfter: time.Second})
	case flowRevoke:
		w.asked.Wait.Cycle.Tell(messages.Revoked{Reason: messages.NoCapacity, RetryAfter: time.Second})
	}
}

// admit writes down the place that the flow actor gives to a cycle that is there to take it.
func (f *whimsical) admit(ctx runtime.Context[messages.FlowMsg], m messages.AdmissionRequested) {
	alive := m.Wait.Cycle.(runtime.Target).Alive() && (!m.Gated || !f.waits())
	f.Actor.Receive(ctx, m)
	if alive {
		f.model.places[m.Wait.Request] = f.shard
	}
}

// Stopped answers requests that wait. One that holds a place keeps running without it.
func (f *whimsical) Stopped(ctx runtime.Context[messages.FlowMsg]) {
	f.Actor.Stopped(ctx)
	maps.DeleteFunc(f.model.places, func(_ messages.RequestID, shard int) bool { return shard == f.shard })
	for _, id := range slices.Sorted(maps.Keys(f.lines)) {
		if w := f.lines[id]; !w.over && w.kind != flowRevoke {
			w.asked.Wait.Cycle.Tell(messages.Evicted{Reason: messages.Internal})
		}
	}
	f.lines = nil
}
