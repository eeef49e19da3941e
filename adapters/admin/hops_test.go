package admin

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// TestHopsOfOneRequest shows a request with what rings still have of it: its cycle and its stream, and no other actor
// that has the same number.
func TestHopsOfOneRequest(t *testing.T) {
	at := time.Hour
	number := uint64(served().Request)
	rec := answering(served())
	rec.rings = messages.RingsAnswered{Loops: 2, Rings: messages.ListOf(
		messages.Ring{Loop: 0, Read: at, Events: messages.ListOf(
			messages.RingEvent{Begin: at - 4*time.Millisecond, Took: 9000, Actor: number, ActorKind: 3, Message: 1},
		)},
		messages.Ring{Loop: 1, Read: at, Events: messages.ListOf(
			messages.RingEvent{Begin: at - 3*time.Millisecond, Took: 8000, Actor: number + 1, ActorKind: 1, Message: 1},
			messages.RingEvent{Begin: at - 2*time.Millisecond, Waited: 1200, Took: 34 * time.Microsecond, Actor: number,
				ActorKind: 1, Message: 1},
			messages.RingEvent{Begin: at - time.Millisecond, Actor: number, ActorKind: 2, Message: 2},
			messages.RingEvent{Begin: at - 500, Took: 400, Panicked: true, Actor: number, ActorKind: 1, Message: 1},
		)},
	)}
	cfg := config(rec)
	cfg.MessageName = func(k uint16) string { return []string{"", "Dispatched", "PickMade"}[k] }
	cfg.ActorName = func(k uint16) string { return []string{"", "cycle", "stream", "flow"}[k] }
	transcript(t, "hops", get(cfg, "/debug/requests/x"))
	transcript(t, "hops-json", get(cfg, "/debug/requests/x?format=json"))
}
