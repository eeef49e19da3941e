package admin

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// hopView is one message of a request as the ring of its loop still has it.
type hopView struct {
	Loop       int     `json:"loop"`
	AgeSeconds seconds `json:"age_seconds"` // when the ring was read
	eventView
}

// hops returns the messages of a request's cycle and stream that rings still have, oldest first. They are nil if no ring has any, or
// the loops did not answer in time: the record stands without them.
func (h *handler) hops(ctx context.Context, id messages.RequestID) []hopView {
	a := make(answer, 1)
	if !h.Recorder.Post(messages.RingsQueried{Loop: -1, Newest: eventsShown.most, Admin: a}) {
		return nil
	}
	patience := time.NewTimer(h.AnswerWithin)
	defer patience.Stop()
	var got messages.RingsAnswered
	select {
	case m := <-a:
		got = m.(messages.RingsAnswered)
	case <-patience.C:
		return nil
	case <-ctx.Done():
		return nil
	}
	var hops []hopView
	for _, ring := range got.Rings.All() {
		for _, e := range ring.Events.All() {
			if e.Actor != uint64(id) || !slices.Contains(numberedByRequest, h.ActorName(e.ActorKind)) {
				continue
			}
			hops = append(hops, hopView{ring.Loop, seconds(ring.Read - e.Begin), h.event(&e)})
		}
	}
	slices.SortStableFunc(hops, func(a, b hopView) int { return cmp.Compare(a.BeginSeconds, b.BeginSeconds) })
	return hops
}

// numberedByRequest are the actors whose number in rings is their request's.
var numberedByRequest = []string{"cycle", "stream"}

// hopping shows what rings have of a request.
func hopping(b *strings.Builder, hops []hopView) {
	if len(hops) == 0 {
		return
	}
	b.WriteString("\nin the rings of the loops, which keep the newest messages of all requests\n")
	rows := [][]string{{"age", "loop", "actor", "message", "waited", "took", ""}}
	for i := range hops {
		hop := &hops[i]
		rows = append(rows, []string{
			hop.AgeSeconds.text(), strconv.Itoa(hop.Loop), hop.Actor, hop.Message, hop.WaitedSeconds.text(), hop.TookSeconds.text(),
			hop.mark(),
		})
	}
	table(b, "  ", "rrllrrl", rows)
}
