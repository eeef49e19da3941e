// Package outlier is the actor of outlier detection: from the failures and successes of requests it has endpoints
// ejected and returned. It owns one state machine of engine/outlier for each endpoint that ever failed, and publishes
// their statuses. It never decides (the machine does), never looks at a request, and never connects to anything itself.
package outlier

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// Checker connects to an endpoint.
type Checker interface {
	// Check begins to connect and posts EndpointChecked to the port exactly once. It returns false if the checker is
	// full or closed, and then posts nothing.
	Check(id messages.EndpointID, at messages.Address, to messages.Port[messages.OutlierMsg]) bool
}

// Config holds the settings. The zero Config ejects and degrades nothing.
type Config struct {
	// MaxEjectionPercent is how much of the pool may be ejected at a time, 0 to 100; 0 = failures are only counted.
	MaxEjectionPercent float64
	outlier.Config
}

// Outlier is the actor of the whole pool.
type Outlier struct {
	cfg       Config
	pool      *endpoints.Published
	checker   Checker
	bell      flow.Bell // of the line of those who wait for room, and its owner
	metrics   *Metrics
	endpoints map[messages.EndpointID]*endpoint // those that ever failed; some may have left the pool
}

// endpoint is what is known of one endpoint.
type endpoint struct {
	machine  outlier.Machine
	checked  time.Time // when the newest check began
	checking bool      // a check runs
	leaves   outlier.Leaves
}

const checkEvery = time.Second // least time between the starts of two checks of an endpoint

// New returns an outlier actor to which every endpoint is healthy.
func New(cfg Config, pool *endpoints.Published, checker Checker, bell flow.Bell, metrics *Metrics) *Outlier {
	known := map[messages.EndpointID]*endpoint{}
	return &Outlier{cfg: cfg, pool: pool, checker: checker, bell: bell, metrics: metrics, endpoints: known}
}

// Receive turns each message into an event of its endpoint's machine.
func (o *Outlier) Receive(ctx runtime.Context[messages.OutlierMsg], m messages.OutlierMsg) {
	switch m := m.(type) {
	case messages.OutlierStarted: // this incarnation would never end an earlier one's statuses
		o.clear()
	case messages.FailureReported:
		if m.Kind == messages.ClientsLeft && !o.counts(ctx.Now(), &m) {
			return
		}
		o.metrics.failed(m.Kind)
		o.step(ctx, m.Endpoint, outlier.Event{What: outlier.FailureSeen, Kind: m.Kind, Pick: m.Pick})
	case messages.SuccessReported:
		o.step(ctx, m.Endpoint, outlier.Event{What: outlier.SuccessSeen, Pick: messages.Pick{Incident: m.Incident}})
	case messages.ProbeAbandoned:
		o.step(ctx, m.Endpoint, outlier.Event{What: outlier.ProbeAbandoned, Pick: messages.Pick{Incident: m.Incident}})
	case messages.EndpointChecked:
		o.onEndpointChecked(ctx, m)
	}
}

// step gives an event to the machine of an endpoint, and carries out the effect.
func (o *Outlier) step(ctx runtime.Context[messages.OutlierMsg], id messages.EndpointID, event outlier.Event) {
	e := o.pool.Snapshot().ByID(id)
	if e == nil || o.cfg.MaxEjectionPercent == 0 {
		return // the endpoint has left the pool, or failures are only counted
	}
	known := o.endpoint(e)
	status := e.Outlier()
	event.Answers, event.Room, event.Probing = e.Answers(), o.room, status != nil && status.Probing()
	effect := known.machine.Step(ctx.Now(), event)
	if effect.Changed {
		endpoints.OutlierWriter{Endpoint: e}.SetOutlier(known.machine.Status())
		o.bell.Ring()
	}
	if effect.Ejected {
		o.metrics.ejected(event.Kind)
	}
	if effect.Recovered {
		o.metrics.recovered.Inc()
	}
	if effect.Check {
		o.check(ctx, e, known)
	}
}

// counts reports whether clients that left are a failure of their endpoint. If the endpoint is ejected, and the
// request was picked when a probe was due, the leave is the probe's result, and gets its incident.
func (o *Outlier) counts(now time.Time, m *messages.FailureReported) bool {
	s := o.pool.Snapshot()
	e := s.ByID(m.Endpoint)
	if e == nil || o.cfg.MaxEjectionPercent == 0 {
		return false
	}
	var elsewhere time.Time // the newest pick that another endpoint answered well, with a prompt as long
	for _, other := range s.Endpoints {
		known := o.endpoints[other.ID]
		switch proved := other.ProvedBy(m.Prompt); {
		case other == e:
		case m.Client != "" && known != nil && known.leaves.Of(m.Client, now): // it leaves everywhere
			return false
		case proved.After(elsewhere):
			elsewhere = proved
		}
	}
	leave := outlier.Leave{Client: m.Client, Picked: m.Pick.At, Left: now}
	if !leave.Counts(e.LastToken(), elsewhere) {
		return false
	}
	failure := o.endpoint(e).leaves.Add(leave, e.LastToken())
	if status := e.Outlier(); status != nil && status.Ejected && !m.Pick.At.Before(status.Until) {
		m.Pick.Incident = status.Incident
		return true
	}
	return failure
}

// room reports whether one more endpoint may be ejected.
func (o *Outlier) room() bool {
	all, ejected := o.pool.Snapshot().Endpoints, 0
	for _, e := range all {
		if s := e.Outlier(); s != nil && s.Ejected {
			ejected++
		}
	}
	return 100*float64(ejected+1) <= o.cfg.MaxEjectionPercent*float64(len(all))
}

// check has the checker connect to an endpoint, at most once every checkEvery.
func (o *Outlier) check(ctx runtime.Context[messages.OutlierMsg], e *endpoints.Endpoint, known *endpoint) {
	if known.checking || ctx.Now().Sub(known.checked) < checkEvery {
		return
	}
	if o.checker.Check(e.ID, e.Spec.Address, ctx.Port()) {
		known.checking, known.checked = true, ctx.Now()
	}
}

func (o *Outlier) onEndpointChecked(ctx runtime.Context[messages.OutlierMsg], m messages.EndpointChecked) {
	known := o.endpoints[m.Endpoint]
	if known == nil {
		return
	}
	known.checking = false
	if !m.Connected {
		o.metrics.failed(messages.ConnectFailed)
		o.step(ctx, m.Endpoint, outlier.Event{What: outlier.ConnectRefused, Kind: messages.ConnectFailed})
	}
}

// endpoint returns what is known of an endpoint. Before it adds one, it drops endpoints that have left the pool, if
// they may be most of those known. One that was dropped, and came back, begins as healthy: no machine would end the
// status that it had.
func (o *Outlier) endpoint(e *endpoints.Endpoint) *endpoint {
	if known := o.endpoints[e.ID]; known != nil {
		return known
	}
	if s := o.pool.Snapshot(); len(o.endpoints) > 2*len(s.Endpoints) {
		for id := range o.endpoints {
			if s.ByID(id) == nil {
				delete(o.endpoints, id)
			}
		}
	}
	known := &endpoint{machine: outlier.Machine{Config: o.cfg.Config}}
	o.endpoints[e.ID] = known
	if e.Outlier() != nil {
		endpoints.OutlierWriter{Endpoint: e}.SetOutlier(nil)
	}
	return known
}

// clear makes all endpoints of the pool healthy.
func (o *Outlier) clear() {
	for _, e := range o.pool.Snapshot().Endpoints {
		endpoints.OutlierWriter{Endpoint: e}.SetOutlier(nil)
	}
}

// Stopped makes all endpoints healthy, for without this actor nothing would return them.
func (o *Outlier) Stopped(runtime.Context[messages.OutlierMsg]) { o.clear() }
