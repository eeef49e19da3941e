package flow

import (
	"sync/atomic"

	"github.com/signalbox-epp/signalbox/messages"
)

// Line says how many requests wait, or have a turn that they have not answered. The actor that owns Queues writes it,
// by its LineWriter; everyone may read it.
//
// A reader that gives room back looks at the line after that, and the writer counts a request in before it looks for
// room: so one of them always sees the other, and no request waits while there is room.
//
// A line that is closed stays so: whoever finds no room is refused, for the process is about to end.
type Line struct {
	waiting atomic.Int64
	closed  atomic.Bool
}

// Waits reports whether a request waits.
func (l *Line) Waits() bool { return l.waiting.Load() > 0 }

// Len returns how many do.
func (l *Line) Len() int { return int(l.waiting.Load()) }

// Closed reports whether no request may wait any more.
func (l *Line) Closed() bool { return l.closed.Load() }

// LineWriter is the handle by which the owner of Queues writes a line.
type LineWriter struct{ *Line }

// Set sets how many requests wait.
func (w LineWriter) Set(n int64) { w.waiting.Store(n) }

// Close closes the line.
func (w LineWriter) Close() { w.closed.Store(true) }

// Bell tells the owner of Queues that an endpoint may have room which had none. It is silent while nothing waits, and
// the zero Bell always.
type Bell struct {
	Line *Line
	To   messages.Sink[messages.CapacityMsg]
}

// Ring tells it. Whoever rings has made the room first.
func (b Bell) Ring() { b.RingAt(messages.EndpointID{}) }

// RingAt tells it that this endpoint may have room.
func (b Bell) RingAt(e messages.EndpointID) {
	if b.Line != nil && b.Line.Waits() {
		b.To.Tell(messages.RoomChanged{Endpoint: e})
	}
}
