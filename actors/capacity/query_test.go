package capacity_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// queried returns the answer to a query for the longest flow of each band.
func (s *scene) queried() messages.FlowsAnswered {
	s.Helper()
	admin := runtimetest.NewProbe[messages.AdminMsg](s.TB)
	s.actor.Tell(messages.FlowsQueried{Most: 1, Admin: admin})
	told := admin.Told()
	if len(told) != 1 {
		s.Fatalf("told %+v, want one answer", told)
	}
	return told[0].(messages.FlowsAnswered)
}

func TestWhatWaitsCanBeQueried(t *testing.T) {
	s := newScene(t, flow.Limits{Requests: 9})
	if got := s.queried(); got.Waiting != (messages.Held{}) || got.Bands.Len() != 0 || got.Rate != 0 {
		t.Errorf("got %+v, want that nothing waits", got)
	}
	for id := messages.RequestID(1); id <= 4; id++ {
		s.asks(id, tenant("a"), uint64(id%2))
	}
	s.turn(1)
	s.actor.Tell(messages.TurnFailed{Request: 1, Cycle: s.cycles[1]})
	s.turn(2)
	s.actor.Advance(time.Second)
	got := s.queried()
	want := messages.FlowsAnswered{
		Waiting: messages.Held{Requests: 3, Bytes: 30}, Limits: messages.Held{Requests: 9},
		Trying: messages.Trying{Request: 2, Flow: tenant("a"), Waited: time.Second},
		Full:   messages.ListOf(messages.ClassState{Class: 1, Waiting: 2, Next: 1}), Bands: got.Bands,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(messages.List[messages.ClassState]{},
		messages.List[messages.BandState]{}, messages.List[messages.FlowState]{})); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	b := got.Bands.At(0)
	if f := b.Flows.At(0); b.Next != (messages.NextTurn{Request: 4, Flow: "a"}) || f.Waiting.Requests != 3 ||
		f.Oldest != time.Second || b.Ceiling != 1 {
		t.Errorf("band %+v", b)
	}
	s.turn(0) // to be asked gives no turn
	s.actor.Tell(messages.WaitEnded{Request: 2})
	s.turn(4)
}
