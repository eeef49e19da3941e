// Package flow is the flow shard: it decides when a request may run. At present it dispatches every request at once. It
// holds the places of the requests that run, and takes each back when it is told that the request has ended. It never
// picks an endpoint and never sees a stream.
package flow

import (
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// Flow is one flow shard.
type Flow struct {
	metrics *Metrics
	places  map[messages.RequestID]struct{} // requests that were dispatched and have not ended
}

// New returns a flow shard that holds nothing.
func New(m *Metrics) *Flow {
	return &Flow{metrics: m, places: map[messages.RequestID]struct{}{}}
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
	f.places[m.Request] = struct{}{}
	if !m.Cycle.Tell(messages.Dispatched{}) {
		delete(f.places, m.Request) // the cycle has ended since it asked
		return
	}
	f.metrics.dispatched.Inc()
	f.metrics.running.Inc()
}

func (f *Flow) onRequestEnded(m messages.RequestEnded) {
	if _, ok := f.places[m.Request]; ok {
		delete(f.places, m.Request)
		f.metrics.running.Dec()
	}
}

// Stopped forgets the places. The requests that hold them run on, and what they give back later is unknown to the next
// incarnation.
func (f *Flow) Stopped(runtime.Context[messages.FlowMsg]) {
	f.metrics.running.Sub(float64(len(f.places)))
	f.places = nil
}
