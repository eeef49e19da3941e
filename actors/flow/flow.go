// Package flow is the flow shard: it decides when a request may run. It has one band, first come first served, and
// dispatches at once. It holds the places of the requests that run, and takes each back when it is told that the
// request has ended. It never picks an endpoint and never sees a stream.
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
		delete(f.places, m.Request) // it died on the way here
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

// Stopped gives the places up: what holds one runs on, and its end finds nothing to give back.
func (f *Flow) Stopped(runtime.Context[messages.FlowMsg]) {
	f.metrics.running.Sub(float64(len(f.places)))
	f.places = nil
}
