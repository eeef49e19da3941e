package capacity

import (
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// A request that waits for one endpoint is asked again, without room there, where it costs the least by now. Those that
// are the first of their endpoints are asked every priceEvery, and less often if they are more than priceMost: then
// asking takes no more time of a loop than before.
const (
	priceEvery = 50 * time.Millisecond
	priceMost  = 64
)

// prices are the classes of requests that wait for one endpoint each.
type prices struct {
	full  map[flow.Class]failure // as Capacity.full has it, of these classes
	timer runtime.Timer          // until they are asked again
}

// fails notes that a turn has failed.
func (a *Capacity) fails(e *flow.Entry, f failure) {
	if e.Class == flow.ClassAt(e.Wanted) {
		a.prices.full[e.Class] = f
	} else {
		a.full[e.Class] = f
	}
}

// failure returns the newest turn of a class that has failed since room changed for it.
func (a *Capacity) failure(of flow.Class) (f failure, full bool) {
	if f, full = a.full[of]; !full {
		f, full = a.prices.full[of]
	}
	return f, full
}

// onRoomChanged has turns tried again that may find room at an endpoint; zero = at any.
func (a *Capacity) onRoomChanged(at messages.EndpointID) {
	a.turn.changes(at)
	for class := range a.full {
		a.queues.Open(class)
	}
	clear(a.full)
	if at == (messages.EndpointID{}) {
		clear(a.prices.full)
		a.queues.OpenAll()
		return
	}
	delete(a.prices.full, flow.ClassAt(at))
	a.queues.Open(flow.ClassAt(at))
}

// onPricesDue has the first request of each endpoint ask again.
func (a *Capacity) onPricesDue() {
	a.prices.timer = nil
	clear(a.prices.full)
	a.queues.OpenAll()
}

// clear forgets all, because none waits.
func (p *prices) clear() {
	clear(p.full)
	if p.timer != nil {
		p.timer.Cancel()
		p.timer = nil
	}
}

// price arms the timer by which requests that wait for one endpoint ask again.
func (a *Capacity) price(ctx runtime.Context[messages.CapacityMsg]) {
	if n := len(a.prices.full); n > 0 && a.prices.timer == nil {
		a.prices.timer = ctx.After(priceEvery*time.Duration(1+(n-1)/priceMost), messages.PricesDue{})
	}
}

// mostChanges is how many endpoints are told apart that make room within one turn.
const mostChanges = 16

// changes notes that room has changed at an endpoint since the turn began; zero = anywhere.
func (t *turn) changes(at messages.EndpointID) {
	switch {
	case t.entry == nil || slices.Contains(t.changed, at):
	case len(t.changed) == mostChanges:
		t.changed = append(t.changed[:0], messages.EndpointID{})
	default:
		t.changed = append(t.changed, at)
	}
}

// hasChanged reports whether room has changed since the turn began where a request waits for it.
func (t *turn) hasChanged(e *flow.Entry) bool {
	if e.Wanted == (messages.EndpointID{}) {
		return len(t.changed) > 0
	}
	return slices.Contains(t.changed, e.Wanted) || slices.Contains(t.changed, messages.EndpointID{})
}
