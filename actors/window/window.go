// Package window learns how much work each endpoint takes, from what requests and samples show, and puts the bound in
// force at the endpoint. The line of waiting requests hears of a window that has become larger.
//
// It never takes or gives room (cycles do, at the load of an endpoint), and never decides which request is next.
package window

import (
	"cmp"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/window"
	"github.com/signalbox-epp/signalbox/messages"
)

// Window is the actor of the whole pool.
type Window struct {
	pool     *endpoints.Published
	ceilings *flow.Ceilings
	bell     flow.Bell // of the line of requests that wait for room, and its owner
	metrics  *Metrics
	version  uint64 // of the snapshot by which known was last cleared
	known    map[messages.EndpointID]*endpoint
	timer    bool // one runs
	rates    rates
}

// endpoint is what is known of one endpoint of the pool.
type endpoint struct {
	*endpoints.Endpoint
	window *window.Window
	rate   int // as it counts in rates
}

// rates sums up what endpoints compute in a second, as far as first tokens have said so.
type rates struct{ sum, count int }

// set has an endpoint count with a rate; 0 = it does not count.
func (r *rates) set(e *endpoint, rate int) {
	if e.rate > 0 {
		r.sum, r.count = r.sum-e.rate, r.count-1
	}
	if e.rate = rate; rate > 0 {
		r.sum, r.count = r.sum+rate, r.count+1
	}
}

// mean returns the rate of an endpoint in the mean; 0 = nothing is known of any.
func (r *rates) mean() int { return r.sum / max(r.count, 1) }

// New returns an actor that knows of endpoints only the windows that are in force.
func New(pool *endpoints.Published, ceilings *flow.Ceilings, bell flow.Bell, metrics *Metrics) *Window {
	known := map[messages.EndpointID]*endpoint{}
	return &Window{pool: pool, ceilings: ceilings, bell: bell, metrics: metrics, known: known}
}

// Receive learns from each message.
func (a *Window) Receive(ctx runtime.Context[messages.WindowMsg], m messages.WindowMsg) {
	switch m := m.(type) {
	case messages.WindowStarted:
	case messages.FirstTokenTimed:
		a.learn(ctx, m.Endpoint, func(e *endpoint) {
			first := window.First{Picked: m.Picked, Took: m.Took, Prompt: m.Prompt, Ahead: m.Ahead, Before: m.Before}
			e.window.FirstToken(ctx.Now(), first, a.load(e, ctx.Now()))
		})
	case messages.ServiceEnded:
		a.learn(ctx, m.Endpoint, func(e *endpoint) {
			switch {
			case m.Refused:
				e.window.Refused(ctx.Now(), a.load(e, ctx.Now()))
			case m.Served:
				e.window.Ended(ctx.Now(), a.load(e, ctx.Now()))
			}
		})
	case messages.SampleTaken:
		a.learn(ctx, m.Endpoint, func(e *endpoint) {
			if s, ok := e.sample(); ok {
				e.window.Sampled(ctx.Now(), s, a.load(e, ctx.Now()))
			}
		})
	case messages.WindowsDue:
		a.onWindowsDue(ctx)
	}
}

// onWindowsDue looks for endpoints that tell nothing any more, or are ejected, of which no message would come.
func (a *Window) onWindowsDue(ctx runtime.Context[messages.WindowMsg]) {
	a.timer = false
	for _, e := range a.pool.Snapshot().Endpoints {
		if a.known[e.ID] == nil {
			continue
		}
		a.learn(ctx, e.ID, func(e *endpoint) {
			if status := e.Outlier(); status != nil && status.Ejected {
				e.window.Lost(ctx.Now())
				return
			}
			e.window.Passed(ctx.Now(), a.load(e, ctx.Now()))
		})
	}
}

// arm has the actor look at endpoints again in a second.
func (a *Window) arm(ctx runtime.Context[messages.WindowMsg], e *endpoint) {
	if !a.timer && e.Inflight() > 0 {
		a.timer = true
		ctx.After(time.Second, messages.WindowsDue{})
	}
}

// learn has the window of an endpoint learn something, and puts it in force. An endpoint that has left is no matter.
func (a *Window) learn(ctx runtime.Context[messages.WindowMsg], id messages.EndpointID, something func(*endpoint)) {
	e := a.endpoint(ctx, id)
	if e == nil {
		return
	}
	a.arm(ctx, e)
	before := e.window.Limits()
	something(e)
	limits := e.window.Limits()
	w, why := endpoints.WindowWriter{Endpoint: e.Endpoint}, e.window.Why()
	a.rates.set(e, limits.Pace.Rate)
	limits.Pace.Rate = cmp.Or(limits.Pace.Rate, a.rates.mean()) // as the others, if it has said nothing
	w.SetPace(limits.Pace)
	before.Pace = limits.Pace
	if _, learned := e.Window(); limits == before && (learned || limits.Requests == 0) {
		return
	}
	w.SetWindow(endpoints.Room{Requests: limits.Requests, Tokens: limits.Tokens, Found: limits.Found})
	w.Explain(why)
	a.metrics.changed(why.Cause)
	if limits.Requests == 0 || limits.Requests > before.Requests || limits.Tokens > before.Tokens {
		a.bell.Ring()
	}
}

// endpoint returns what is known of an endpoint; nil = the pool does not have it.
func (a *Window) endpoint(ctx runtime.Context[messages.WindowMsg], id messages.EndpointID) *endpoint {
	snapshot := a.pool.Snapshot()
	if a.version != snapshot.Version {
		a.version = snapshot.Version
		a.forget(snapshot)
	}
	if e := a.known[id]; e != nil {
		return e
	}
	e := snapshot.ByID(id)
	if e == nil {
		return nil
	}
	room, learned := e.Window()
	inForce := window.Limits{Requests: room.Requests, Tokens: room.Tokens, Found: room.Found}
	inForce.Pace = e.Pace()
	if !learned && room.Requests > 0 { // what it works on already is no less than it takes
		inForce.Requests = max(endpoints.FirstWindow, e.Inflight())
	}
	known := &endpoint{Endpoint: e, window: window.New(ctx.Now(), inForce)}
	a.known[id] = known
	return known
}

// forget drops what is known of endpoints that have left the pool.
func (a *Window) forget(now *endpoints.Snapshot) {
	present := make(map[messages.EndpointID]bool, len(now.Endpoints))
	for _, e := range now.Endpoints {
		present[e.ID] = true
	}
	for id, e := range a.known {
		if !present[id] {
			a.rates.set(e, 0)
			delete(a.known, id)
		}
	}
}

func (a *Window) load(e *endpoint, now time.Time) window.Load {
	c := e.Counters()
	load := window.Load{
		Requests: c.Inflight, Tokens: c.Tokens, Prompts: e.Backlog(now), Held: a.bell.Line.Waits(),
	}
	if all := a.ceilings.All(); len(all) > 0 {
		load.Part = all[len(all)-1].Share
	}
	return load
}

func (e *endpoint) sample() (window.Sample, bool) {
	s := e.Sample()
	if s == nil {
		return window.Sample{}, false
	}
	return window.Sample{
		Began: s.At, Interval: s.Interval, Waiting: s.BuiltIn(attributes.WaitingRequests),
		Running: s.BuiltIn(attributes.RunningRequests), CacheUsed: s.BuiltIn(attributes.KVCacheUsage),
	}, true
}

// Stopped leaves the windows in force.
func (a *Window) Stopped(runtime.Context[messages.WindowMsg]) {}
