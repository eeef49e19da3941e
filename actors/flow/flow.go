// Package flow is the flow shard, one on each loop: it decides whether a request may try to be picked for at once, or
// waits its turn. Requests wait as soon as others do; until then all go at once, and nobody else is asked. The flow
// shard holds the places of the requests that asked it, and takes each back when it is told that the request has ended.
// It never picks an endpoint and never sees a stream.
package flow

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// Flow is one flow shard.
type Flow struct {
	bell    flow.Bell
	metrics *Metrics
	places  map[messages.RequestID]place // of requests that have not ended
}

// place is what a request holds at the flow shard.
type place struct {
	waits bool // it was sent to wait; otherwise it was dispatched
}

// New returns a flow shard that holds nothing. bell has the line of those who wait, and its owner.
func New(bell flow.Bell, m *Metrics) *Flow {
	return &Flow{bell, m, map[messages.RequestID]place{}}
}

// Receive admits requests and takes their places back.
func (f *Flow) Receive(_ runtime.Context[messages.FlowMsg], m messages.FlowMsg) {
	switch m := m.(type) {
	case messages.FlowStarted:
	case messages.AdmissionRequested:
		f.onAdmissionRequested(m)
	case messages.RequestEnded:
		f.onRequestEnded(m)
	}
}

func (f *Flow) onAdmissionRequested(m messages.AdmissionRequested) {
	id, cycle := m.Wait.Request, m.Wait.Cycle
	if m.Gated && f.bell.Line.Waits() {
		f.places[id] = place{waits: true}
		if !f.bell.To.Tell(m.Wait) { // its inbox is full
			delete(f.places, id)
			cycle.Tell(messages.Rejected{Reason: messages.Overloaded, RetryAfter: time.Second})
		}
		return
	}
	f.places[id] = place{}
	if !cycle.Tell(messages.Dispatched{}) {
		delete(f.places, id) // the cycle has ended since it asked
		return
	}
	f.metrics.dispatched.Inc()
	f.metrics.running.Inc()
}

func (f *Flow) onRequestEnded(m messages.RequestEnded) {
	p, ok := f.places[m.Request]
	switch delete(f.places, m.Request); {
	case !ok:
	case p.waits:
		f.bell.To.Tell(messages.WaitEnded{Request: m.Request})
	default:
		f.metrics.running.Dec()
	}
}

// Stopped forgets the places. The requests that hold them run on, and what they give back later is unknown to the next
// incarnation. Those that were sent to wait end with their deadline, if not before.
func (f *Flow) Stopped(runtime.Context[messages.FlowMsg]) {
	for _, p := range f.places {
		if !p.waits {
			f.metrics.running.Dec()
		}
	}
	f.places = nil
}
