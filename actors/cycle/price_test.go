package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// pricing is a gate with windows, which leaves full endpoints to the scorers.
type pricing struct{ bounded }

func (pricing) Bounds(float64) endpoints.Room   { return endpoints.Room{Learned: true} }
func (pricing) Exclude(*schedule.Input, []bool) {}

// priced returns a scene whose requests wait for the endpoint that is picked, of which each has room for one.
func priced(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	s.queueing = &flow.Settings{Default: flow.BandSettings{TTL: turnLimit}, Without: emptyLimit}
	s.plan.HaveWait(pricing{bounded{s}}, schedule.Step{Name: "room"})
	for _, e := range s.pool.Snapshot().Endpoints {
		endpoints.WindowWriter{Endpoint: e}.SetWindow(endpoints.Room{Requests: 1})
	}
	s.play()
	return s
}

// holds expects the load of both endpoints that waits in the picker.
func (s *scene) holds(requests ...int) {
	s.Helper()
	for i, e := range s.pool.Snapshot().Endpoints {
		if c := e.Counters(); c.Held != requests[i] || c.HeldTokens != 12*requests[i] {
			s.Errorf("%d requests of %d tokens wait for endpoint %d, want %d", c.Held, c.HeldTokens, i, requests[i])
		}
	}
}

// A request waits for the endpoint that is picked for it though others have room, counts there as load, and waits for
// another one once that is picked.
func TestRequestWaitsForThePickedEndpoint(t *testing.T) {
	s := priced(t)
	s.ready(24 * time.Hour)
	all := s.pool.Snapshot().Endpoints
	taken := endpoints.LoadWriter{Endpoint: all[0]}
	pick := taken.Add(endpoints.Work{Prompt: 12}, time.Time{})
	s.arrive()
	ask := s.waits()
	ask.Wanted = first
	s.capacity.Got(ask)
	s.holds(1, 0)
	s.cycle.Tell(messages.Dispatched{})
	s.capacity.Got(messages.TurnFailed{Request: 7, Wanted: first, Cycle: s.cycle})
	s.holds(1, 0)

	endpoints.LoadWriter{Endpoint: all[1]}.Add(endpoints.Work{Prompt: 12}, time.Time{})
	s.plan.Profiles()[0].Picker.Picker = pickFunc(func() []int { return []int{1} })
	s.cycle.Tell(messages.Dispatched{})
	s.capacity.Got(messages.TurnFailed{Request: 7, Wanted: second, Cycle: s.cycle})
	s.holds(0, 1)

	taken.Remove(pick)
	s.plan.Profiles()[0].Picker.Picker = pickFunc(func() []int { return []int{0} })
	s.cycle.Tell(messages.Dispatched{})
	s.holds(0, 0)
	if c := all[0].Counters(); c.Inflight != 1 {
		t.Errorf("the load is %+v, want the request", c)
	}
}

// While others wait, a request says for which endpoint before it has had a turn.
func TestRequestSaysWhatItWaitsFor(t *testing.T) {
	s := priced(t)
	flow.LineWriter{Line: &s.line}.Set(1, 0)
	s.ready(24 * time.Hour)
	s.arrive()
	ask := s.waits()
	ask.Wanted = first
	s.capacity.Got(ask)
	s.holds(1, 0)
	s.cycle.Tell(messages.StreamGone{})
	s.holds(0, 0)
}

// A cycle that crashes holds nothing at the endpoint that it waited for.
func TestCrashReleasesWhatWaits(t *testing.T) {
	s := priced(t)
	flow.LineWriter{Line: &s.line}.Set(1, 0)
	s.ready(24 * time.Hour)
	s.arrive()
	s.holds(1, 0)
	s.cycle.Crash()
	s.holds(0, 0)
}
