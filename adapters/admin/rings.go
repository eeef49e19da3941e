package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// ringsPage is the JSON form of the messages that loops handled last.
type ringsPage struct {
	Rings   []ringView `json:"rings"`
	Partial bool       `json:"partial"` // a loop did not answer in time
}

// ringView holds the messages that one loop handled last: the JSON form, and all that the text is made of.
type ringView struct {
	Loop        int         `json:"loop"`
	Total       uint64      `json:"total"`        // messages since the start, with those that are not kept
	ReadSeconds seconds     `json:"read_seconds"` // when the ring was read, since the start of the process
	Events      []eventView `json:"events"`       // oldest first
}

// eventView is one message. A message to a stream has no inbox: it neither waits nor takes time.
type eventView struct {
	BeginSeconds  seconds `json:"begin_seconds"` // since the start of the process
	Actor         string  `json:"actor"`         // kind
	Number        uint64  `json:"number"`        // of the actor; of a cycle and of a stream, that of their request
	Message       string  `json:"message"`
	WaitedSeconds seconds `json:"waited_seconds"`
	TookSeconds   seconds `json:"took_seconds"`
	Panicked      bool    `json:"panicked"`
}

// eventsShown says how many messages of each loop are shown. The runtime keeps 4 096 unless it is configured otherwise.
var eventsShown = limits{usual: 100, most: 1 << 16}

func (h *handler) rings(w http.ResponseWriter, r *http.Request) {
	n, ok := howMany(w, r, eventsShown, "newest")
	if !ok {
		return
	}
	loop := -1
	if text := r.URL.Query().Get("loop"); text != "" {
		i, err := strconv.Atoi(text)
		if err != nil || i < 0 {
			fail(w, http.StatusBadRequest, "bad-number", "loop must be 0 or more")
			return
		}
		loop = i
	}
	a := make(answer, 1)
	m, ok := h.query(w, r, a, messages.RingsQueried{Loop: loop, Newest: n, Admin: a})
	if !ok {
		return
	}
	got := m.(messages.RingsAnswered)
	switch {
	case loop >= got.Loops:
		fail(w, http.StatusNotFound, "not-found", fmt.Sprintf("there is no loop %d; there are %d, numbered from 0",
			loop, got.Loops))
	case got.Rings.Len() == 0:
		fail(w, http.StatusServiceUnavailable, "partial", "no loop answered in time; ask again")
	case wantsJSON(r):
		writeJSON(w, http.StatusOK, h.ringsPage(got))
	default:
		plain(w, http.StatusOK, ringsText(h.ringsPage(got)))
	}
}

func (h *handler) ringsPage(got messages.RingsAnswered) ringsPage {
	p := ringsPage{Rings: make([]ringView, 0, got.Rings.Len()), Partial: got.Partial}
	for _, ring := range got.Rings.All() {
		v := ringView{
			Loop: ring.Loop, Total: ring.Total, ReadSeconds: seconds(ring.Read),
			Events: make([]eventView, 0, ring.Events.Len()),
		}
		for _, e := range ring.Events.All() {
			v.Events = append(v.Events, h.event(&e))
		}
		p.Rings = append(p.Rings, v)
	}
	return p
}

func (h *handler) event(e *messages.RingEvent) eventView {
	return eventView{
		BeginSeconds: seconds(e.Begin), Actor: h.ActorName(e.ActorKind), Number: e.Actor,
		Message:       h.MessageName(e.Message),
		WaitedSeconds: seconds(e.Waited), TookSeconds: seconds(e.Took), Panicked: e.Panicked,
	}
}

func (e *eventView) mark() string {
	if e.Panicked {
		return "panicked"
	}
	return ""
}

func ringsText(p ringsPage) string {
	var b strings.Builder
	for i := range p.Rings {
		if i > 0 {
			b.WriteByte('\n')
		}
		ringText(&b, &p.Rings[i])
	}
	if p.Partial {
		b.WriteString("\nincomplete: a loop did not answer in time\n")
	}
	return b.String()
}

func ringText(b *strings.Builder, v *ringView) {
	fmt.Fprintf(b, "loop %d: the last %d of %d messages, oldest first\n", v.Loop, len(v.Events), v.Total)
	rows := [][]string{{"age", "actor", "message", "waited", "took", ""}}
	for _, e := range v.Events {
		rows = append(rows, []string{
			short(time.Duration(v.ReadSeconds - e.BeginSeconds)), e.Actor + "/" + strconv.FormatUint(e.Number, 10),
			e.Message,
			short(time.Duration(e.WaitedSeconds)), short(time.Duration(e.TookSeconds)), e.mark(),
		})
	}
	table(b, "  ", "rllrrl", rows)
}

// hopView is one message of a request as the ring of its loop still has it.
type hopView struct {
	Loop       int     `json:"loop"`
	AgeSeconds seconds `json:"age_seconds"` // when the ring was read
	eventView
}

// hops returns the messages of a request's cycle and stream that the rings still have, oldest first. It returns nil if
// no ring has any, or the loops did not answer in time: the record is shown without them.
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

// numberedByRequest holds the actors whose number in rings is their request's.
var numberedByRequest = []string{"cycle", "stream"}

// hopping writes what the rings have of a request.
func hopping(b *strings.Builder, hops []hopView) {
	if len(hops) == 0 {
		return
	}
	b.WriteString("\nin the rings of the loops, which keep the newest messages of all requests\n")
	rows := [][]string{{"age", "loop", "actor", "message", "waited", "took", ""}}
	for i := range hops {
		hop := &hops[i]
		rows = append(rows, []string{
			hop.AgeSeconds.text(), strconv.Itoa(hop.Loop), hop.Actor, hop.Message, hop.WaitedSeconds.text(),
			hop.TookSeconds.text(),
			hop.mark(),
		})
	}
	table(b, "  ", "rrllrrl", rows)
}
