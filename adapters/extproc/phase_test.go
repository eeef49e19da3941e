package extproc

import (
	"context"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
)

// requestMoves are the pictures of requestPhase as tables, one for each class of body modes: where an event leads from
// a phase. "." is an event that is ignored, and so leads nowhere; the name of a protocol error one that is refused.
var requestMoves = map[string]string{
	"NONE STREAMED GRPC": `
		.         headers   headers-end chunk     last-chunk trailers pick-sent last-pick-sent room-denied upgrade-seen
		awaited   asking    asking      headless  headless   headless .         .              .           .
		asking    .         .           .         .          .        forwarded ended          unplaced    .
		unplaced  .         .           .         .          .        .         .              .           .
		forwarded .         .           forwarded ended      ended    .         .              .           .
		ended     .         .           .         .          .        .         .              .           .`,
	"BUFFERED BUFFERED_PARTIAL": `
		.         headers   headers-end chunk     last-chunk trailers pick-sent last-pick-sent room-denied upgrade-seen
		awaited   gathering asking      headless  headless   headless .         .              .           .
		gathering .         .           asking    asking     bodiless .         .              .           asking
		asking    .         .           .         .          .        forwarded ended          unplaced    .
		unplaced  .         .           .         .          .        .         .              .           .
		forwarded .         .           .         .          ended    .         .              .           .
		ended     .         .           .         .          .        .         .              .           .`,
	"FULL_DUPLEX_STREAMED": `
		.         headers   headers-end chunk     last-chunk trailers pick-sent last-pick-sent room-denied upgrade-seen
		awaited   gathering asking      headless  headless   headless .         .              .           .
		gathering .         .           gathering asking     asking   .         .              .           asking
		asking    .         .           .         .          .        forwarded ended          unplaced    .
		unplaced  .         .           .         .          .        .         .              .           .
		ended     .         .           .         .          .        .         .              .           .`,
}

// responseMoves are the same of responsePhase.
var responseMoves = map[string]string{
	"NONE": `
		.        headers headers-end chunk   last-chunk trailers chunk-answered end-answered bypass-begun override-sent
		awaited  last    last        visible last       last     .              .            .            .
		visible  .       .           visible last       last     visible        .            .            .
		last     .       .           .       .          .        .              ended        bypass       asked
		bypass   .       .           bypass  bypass     bypass   bypass         ended        .            .
		asked    .       .           visible last       asked    .              ended        .            .
		ended    .       .           .       .          .        .              .            .            .`,
	"STREAMED FULL_DUPLEX_STREAMED GRPC": `
		.        headers headers-end chunk   last-chunk trailers chunk-answered end-answered
		awaited  visible last        visible last       last     .              .
		visible  .       .           visible last       last     visible        .
		last     .       .           .       .          .        .              ended
		ended    .       .           .       .          .        .              .`,
	"BUFFERED BUFFERED_PARTIAL": `
		.        headers headers-end chunk    last-chunk trailers chunk-answered end-answered
		awaited  visible last        visible  last       last     .              .
		visible  .       .           visible  last       last     buffered       .
		buffered .       .           buffered last       last     buffered       .
		last     .       .           .        .          .        .              ended
		ended    .       .           .        .          .        .              .`,
}

var (
	requestPhaseNames  = [requestPhases]string{"awaited", "gathering", "asking", "unplaced", "forwarded", "ended"}
	responsePhaseNames = [responsePhases]string{"awaited", "visible", "buffered", "last", "bypass", "asked", "ended"}
	eventNames         = []string{
		"headers", "headers-end", "chunk", "last-chunk", "trailers", "pick-sent", "last-pick-sent", "room-denied",
		"upgrade-seen", "chunk-answered", "end-answered", "bypass-begun", "override-sent",
	}
)

// outcome names what after gives.
func outcome(next string, v verdict) string {
	switch v {
	case ignored:
		return "."
	case headless:
		return "headless"
	case bodiless:
		return "bodiless"
	}
	return next
}

// cells calls check for each cell of tables of moves.
func cells(
	t *testing.T, tables map[string]string, phases []string, check func(mode wire.BodyMode, p int, e event,
		want string),
) {
	t.Helper()
	for list, table := range tables {
		rows := strings.Split(strings.TrimSpace(table), "\n")
		events := strings.Fields(rows[0])
		for _, row := range rows[1:] {
			row := strings.Fields(row)
			p := named(t, phases, row[0])
			for i, want := range row[1:] {
				e := event(named(t, eventNames, events[i+1]))
				checkModes(list, func(mode wire.BodyMode) { check(mode, p, e, want) })
			}
		}
	}
}

// named is the number of a name.
func named(t *testing.T, names []string, name string) int {
	t.Helper()
	i := slices.Index(names, name)
	if i < 0 {
		t.Fatalf("%q is none of %q", name, names)
	}
	return i
}

// checkModes calls check for each of the body modes in a list.
func checkModes(list string, check func(wire.BodyMode)) {
	for name := range strings.FieldsSeq(list) {
		check(wire.BodyMode(bodyModes[name]))
	}
}

// TestPhasesMoveAsDrawn holds every move against the tables: every message in every phase that a body mode can reach.
func TestPhasesMoveAsDrawn(t *testing.T) {
	n := 0
	cells(t, requestMoves, requestPhaseNames[:], func(mode wire.BodyMode, p int, e event, want string) {
		next, v := requestPhase(p).after(e, mode)
		if got := outcome(requestPhaseNames[next], v); got != want || v != taken && next != requestPhase(p) {
			t.Errorf("request body mode %v, %s: %s leads to %s, want %s", mode, requestPhaseNames[p], eventNames[e],
				got, want)
		}
		n++
	})
	cells(t, responseMoves, responsePhaseNames[:], func(mode wire.BodyMode, p int, e event, want string) {
		next, v := responsePhase(p).after(e, mode)
		if got := outcome(responsePhaseNames[next], v); got != want || v != taken && next != responsePhase(p) {
			t.Errorf("response body mode %v, %s: %s leads to %s, want %s", mode, responsePhaseNames[p], eventNames[e],
				got, want)
		}
		n++
	})
	if want := 9*(3*5+2*6+1*5) + 9*6 + 3*7*4 + 2*7*5; n != want {
		t.Errorf("%d moves are in the tables, want %d", n, want)
	}
}

// TestWhatPhasesSay: what waits in which phase, and what is too late in which.
func TestWhatPhasesSay(t *testing.T) {
	for what, c := range map[string]struct{ got, want string }{
		"waits":        {that(requestPhaseNames[:], requestPhase.waits), "gathering asking"},
		"picked":       {that(requestPhaseNames[:], requestPhase.picked), "forwarded ended"},
		"beyondRecall": {that(responsePhaseNames[:], responsePhase.beyondRecall), "last bypass asked ended"},
		"completed":    {that(responsePhaseNames[:], responsePhase.completed), "buffered bypass asked ended"},
	} {
		if c.got != c.want {
			t.Errorf("%s in %q, want %q", what, c.got, c.want)
		}
	}
}

// that names the phases of which say is true.
func that[P ~uint8](names []string, say func(P) bool) string {
	var out []string
	for i, name := range names {
		if say(P(i)) {
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

// TestStreamsFollowTheirPhases shows streams any messages in any order: each moves as the pictures allow, and what is
// ignored or a protocol error is answered as such.
func TestStreamsFollowTheirPhases(t *testing.T) {
	frames := []*ask{
		qH(more), qH(last), qB("{", more), qB("}", last), qT(), rH(more), rH(last), rB("a", more), rB("b", last), rT(),
	}
	for _, m := range frames {
		m.ProtocolConfig = nil
	}
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(setup{})
		r.inForce.Parser = teaching
		r.srv.last.Store(overrideEvery - 1)
		p := &tape{ctx: context.Background(), half: true, sendOK: -1}
		st := newStream(r.srv, p)
		defer st.gone()
		st.modes.RequestBody = wire.BodyMode(rapid.IntRange(0, 5).Draw(t, "request body mode"))
		st.modes.ResponseBody = wire.BodyMode(rapid.IntRange(0, 5).Draw(t, "response body mode"))
		for over := false; !over && st.frames < 100; {
			i := rapid.IntRange(0, len(frames)-1).Draw(t, "message")
			p.frames, p.sent = append(p.frames, frames[i]), nil
			if !st.next() {
				t.Fatal("the message does not come")
			}
			request, response, modes := st.request.phase, st.response.phase, st.modes
			over = st.onMessage()
			var v verdict
			wantRequest, wantResponse := request, response
			if e := event(i); e < messageEvents {
				wantRequest, v = request.after(e, modes.RequestBody)
			} else {
				wantResponse, v = response.after(e-messageEvents, modes.ResponseBody)
			}
			if !st.request.phase.follows(wantRequest) || !st.response.phase.follows(wantResponse) ||
				!fits(v, over, p.sent, response) {
				t.Fatalf("message %d in request phase %s and response phase %s, %v: answered by %v, leads to %s and "+
					"%s, want %s and %s",
					i, requestPhaseNames[request], responsePhaseNames[response], modes, p.sent,
					requestPhaseNames[st.request.phase], responsePhaseNames[st.response.phase],
					requestPhaseNames[wantRequest], responsePhaseNames[wantResponse])
			}
		}
	})
}

// follows reports whether a stream is in p once it has served a message that led to next: in next, or, if that is a
// phase in which the stream works on the message, in one that it leaves that for.
func (p requestPhase) follows(next requestPhase) bool {
	if next == requestAsking {
		return p.picked()
	}
	return p == next
}

func (p responsePhase) follows(next responsePhase) bool {
	switch next {
	case responseVisible:
		return p == responseVisible || p == responseBuffered
	case responseLast:
		return p == responseBypass || p == responseAsked || p == responseEnded
	case responseBypass, responseAsked: // at their end, too, the phase is left only once that is answered
		return p == next || p == responseEnded
	}
	return p == next
}

// fits reports whether what a message did is in keeping with its verdict. A protocol error is refused unless that is
// too late, and ends the stream anyway.
func fits(v verdict, over bool, sent []*answer, response responsePhase) bool {
	refused := len(sent) == 1 && sent[0].GetImmediateResponse().GetStatus().GetCode() == 500
	switch v {
	case ignored:
		return len(sent) == 0
	case headless, bodiless:
		return over && (refused || len(sent) == 0 && response.beyondRecall())
	}
	return !refused
}

// TestClosedOnce: of the reasons to close a stream the first counts, but for a panic.
func TestClosedOnce(t *testing.T) {
	for first := closedNot; first < closeReasons; first++ {
		for later := closedObserved; later < closeReasons; later++ {
			want := first
			if first == closedNot || later == closedPanicked {
				want = later
			}
			if got := first.or(later); got != want {
				t.Errorf("closed for %d, then for %d: counts as %d, want %d", first, later, got, want)
			}
		}
	}
}
