package flow

import (
	"maps"
	"sync/atomic"

	"github.com/signalbox-epp/signalbox/engine/cow"
	"github.com/signalbox-epp/signalbox/messages"
)

// Line says how many requests wait, or have a turn that they have not answered. The actor that owns Queues writes it,
// by its LineWriter; any goroutine may read it.
//
// A reader that gives room back looks at the line after that, and the writer counts a request in before it looks for
// room: so one of them always sees the other, and no request waits while there is room.
//
// A request that comes asks nobody while none waits that goes before it, but takes room if there is any. So it may pass
// one that is on its way to the line.
//
// A line that is closed stays so: a request that finds no room is refused, for the process is about to end.
type Line struct {
	waiting atomic.Int64
	first   atomic.Int64 // the highest priority that is held up; it counts while requests wait
	closed  atomic.Bool
}

// Waits reports whether a request waits.
func (l *Line) Waits() bool { return l.waiting.Load() > 0 }

// HoldsUp reports whether a request waits that goes before one of a priority that comes now, which has to wait, too.
func (l *Line) HoldsUp(priority int) bool { return l.Waits() && int64(priority) <= l.first.Load() }

// Len returns how many do.
func (l *Line) Len() int { return int(l.waiting.Load()) }

// Closed reports whether no request may wait any more.
func (l *Line) Closed() bool { return l.closed.Load() }

// LineWriter is the handle by which the owner of Queues writes a line.
type LineWriter struct{ *Line }

// Set sets how many requests wait, and the highest priority whose requests wait behind them.
func (w LineWriter) Set(n int64, first int) {
	w.first.Store(int64(first))
	w.waiting.Store(n)
}

// Close closes the line.
func (w LineWriter) Close() { w.closed.Store(true) }

// Bell tells the owner of Queues that an endpoint may have room which had none. It is silent while nothing waits, and
// the zero Bell always.
type Bell struct {
	Line *Line
	To   messages.Sink[messages.CapacityMsg]
}

// Ring tells it. The caller has made the room first.
func (b Bell) Ring() { b.RingAt(messages.EndpointID{}) }

// RingAt tells it that this endpoint may have room.
func (b Bell) RingAt(e messages.EndpointID) {
	if b.Line != nil && b.Line.Waits() {
		b.To.Tell(messages.RoomChanged{Endpoint: e})
	}
}

// Traffic counts the requests of each priority, those included that never wait. Any goroutine may count and read. The
// zero Traffic is empty.
type Traffic struct {
	bands cow.Map[int, *BandTraffic]
	more  BandTraffic // of all priorities beyond those told apart
}

// trafficBands is how many priorities are told apart.
const trafficBands = 256

// BandTraffic counts the requests of one priority.
type BandTraffic struct{ arrived, dispatched, inflight atomic.Int64 }

// Counts are how many requests of a priority did what.
type Counts struct {
	Arrivals   int64 // that may have to wait for room; since the start
	Dispatches int64 // for which an endpoint was picked; since the start
	Inflight   int64 // that are part of the load of an endpoint
}

// Of returns the counter of a priority.
func (t *Traffic) Of(priority int) *BandTraffic {
	if b, known := t.bands.Get(priority); known {
		return b
	}
	b := &t.more
	t.bands.Change(func(now map[int]*BandTraffic) map[int]*BandTraffic {
		if known := now[priority]; known != nil {
			b = known
			return nil
		}
		if len(now) >= trafficBands {
			return nil
		}
		next := make(map[int]*BandTraffic, len(now)+1)
		maps.Copy(next, now)
		b = new(BandTraffic)
		next[priority] = b
		return next
	})
	return b
}

// Arrive counts a request that may have to wait.
func (b *BandTraffic) Arrive() { b.arrived.Add(1) }

// Dispatch counts a request for which an endpoint was picked.
func (b *BandTraffic) Dispatch() { b.dispatched.Add(1) }

// Enter counts a request that becomes part of the load of an endpoint. It must Leave once.
func (b *BandTraffic) Enter() { b.inflight.Add(1) }

// Leave takes back what Enter counted.
func (b *BandTraffic) Leave() { b.inflight.Add(-1) }

// Counts returns the counts as they are.
func (b *BandTraffic) Counts() Counts {
	return Counts{b.arrived.Load(), b.dispatched.Load(), b.inflight.Load()}
}
