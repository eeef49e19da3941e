package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/evictions"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/reclaim"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// evictable returns a gated scene whose configuration ends running requests for waiting ones, and a request of a
// priority that is about to come.
func evictable(t *testing.T, priority int) *scene {
	t.Helper()
	s := newScene(t)
	s.queueing = &flow.Settings{
		Default: flow.BandSettings{TTL: turnLimit}, Negative: flow.BandSettings{TTL: turnLimit},
		Evictions: []reclaim.Policy{{Eviction: new(evictions.Sheddable)}},
	}
	s.plan.HaveWait(bounded{s}, schedule.Step{Name: "room"})
	s.play()
	s.began = s.cycle.Clock()
	s.coming = messages.RequestArrived{
		Request: s.asked, Flow: messages.FlowKey{Fairness: "f", Priority: priority}, ArrivedAt: s.began,
		Deadline: s.began.Add(24 * time.Hour), Stream: s.stream,
	}
	return s
}

func (s *scene) started(at messages.EndpointID) messages.ServingStarted {
	return messages.ServingStarted{
		Request: 7, Flow: messages.FlowKey{Fairness: "f", Priority: -1}, Endpoint: at, At: s.cycle.Clock(),
		Cycle: s.cycle,
	}
}

// What capacity is told of a request that it may end: where it is served, and when it cannot be ended any more.
func TestRequestIsOfferedWhileItCanBeEnded(t *testing.T) {
	ended := messages.ServingEnded{Request: 7}
	runsOn := messages.ServingEnded{Request: 7, RunsOn: true}
	for name, c := range map[string]struct {
		then []messages.CycleMsg
		want []messages.CapacityMsg
	}{
		"it ends": {[]messages.CycleMsg{messages.ResponseStarted{Status: 200}, messages.ResponseEnded{}},
			[]messages.CapacityMsg{ended}},
		"its client leaves": {[]messages.CycleMsg{messages.StreamGone{}}, []messages.CapacityMsg{ended}},
		"its response bypasses us": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 200, Bypasses: true}},
			[]messages.CapacityMsg{runsOn},
		},
		"told too late": {
			[]messages.CycleMsg{
				messages.ResponseStarted{Status: 200, Bypasses: true}, messages.Revoked{Reason: messages.Preempted},
			}, []messages.CapacityMsg{runsOn},
		},
		"the proxy shows the response after all": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 200, Bypasses: true}, messages.FirstTokenSeen{}},
			[]messages.CapacityMsg{runsOn, messages.ServingStarted{}},
		},
		"served elsewhere": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 200, Served: addresses[second]}},
			[]messages.CapacityMsg{messages.ServingStarted{Endpoint: second}},
		},
		"served by a stranger": {
			[]messages.CycleMsg{messages.ResponseStarted{Status: 200, Served: "10.9.9.9:1"}},
			[]messages.CapacityMsg{runsOn},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := evictable(t, -1)
			s.arrive()
			s.capacity.Got(s.started(first))
			s.stream.Told()
			for _, m := range c.then {
				s.cycle.Tell(m)
			}
			for i, m := range c.want {
				if started, ok := m.(messages.ServingStarted); ok {
					at := started.Endpoint
					if at == (messages.EndpointID{}) {
						at = first
					}
					c.want[i] = s.started(at)
				}
			}
			s.capacity.Got(c.want...)
		})
	}
}

// A request that is ended has its stream end it, and has ended once that has.
func TestRevokedRequestEndsWithItsStream(t *testing.T) {
	s := evictable(t, -1)
	s.arrive()
	s.capacity.Told()
	s.stream.Told()
	s.cycle.Tell(messages.Revoked{Reason: messages.Preempted, RetryAfter: 2 * time.Second})
	s.stream.Got(messages.ServingRevoked{Reason: messages.Preempted, RetryAfter: 2 * time.Second})
	s.capacity.Got()
	s.load(1, 0)
	flow.LineWriter{Line: &s.line}.Set(1, 0)
	s.cycle.Tell(messages.StreamGone{Answered: messages.Preempted})
	// The room is there by the time that capacity hears of the end.
	s.capacity.Got(messages.RoomChanged{Endpoint: first}, messages.ServingEnded{Request: 7})
	s.outlier.Got() // it is no failure of the server
	s.load(0, 0)
	if r := s.ended[0]; r.Reason != messages.Preempted || r.Status != status(messages.Preempted) {
		t.Errorf("reason %v, status %d by its record", r.Reason, r.Status)
	}
}

func TestRequestsOfOtherPrioritiesAreNotOffered(t *testing.T) {
	s := evictable(t, 0)
	s.arrive()
	s.cycle.Tell(messages.ResponseStarted{Status: 200})
	s.cycle.Tell(messages.ResponseEnded{})
	s.capacity.Got()
}

// A request without room says where it would have done.
func TestTurnThatFailsSaysWhatWouldDo(t *testing.T) {
	s := evictable(t, 0)
	release := s.fill()
	s.arrive()
	s.capacity.Told()
	s.cycle.Tell(messages.Dispatched{})
	s.capacity.Got(messages.TurnFailed{
		Request: 7, Class: s.class(), Cycle: s.cycle, Lacking: messages.ListOf(first, second),
	})
	release()
	s.plan.Profiles()[0].Picker.Picker = racing{s} // another one takes the last place
	s.cycle.Tell(messages.Dispatched{})
	s.capacity.Got(messages.TurnFailed{Request: 7, Class: s.class(), Cycle: s.cycle, Lacking: messages.ListOf(first)})
}
