package capacity_test

import (
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/evictions"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/reclaim"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

const settles = 10 * time.Millisecond

var (
	near = messages.EndpointID{Slot: 1, Generation: 1}
	far  = messages.EndpointID{Slot: 2, Generation: 1}
)

// reclaiming returns a scene in which running requests end for waiting ones.
func reclaiming(t *testing.T) *scene {
	s := newScene(t, flow.Limits{})
	s.settings.Settles = settles
	for _, name := range []string{"sheddable-eviction-filter", "priority-then-time-eviction-order-policy"} {
		policy := reclaim.Policy{Type: name, Eviction: evictions.Types[name]()}
		s.settings.Evictions = append(s.settings.Evictions, policy)
	}
	return s
}

// runs has a request run at an endpoint, since so many seconds.
func (s *scene) runs(id messages.RequestID, priority, since int, at messages.EndpointID) {
	s.cycles[id] = runtimetest.NewProbe[messages.CycleMsg](s.TB)
	s.actor.Tell(messages.ServingStarted{
		Request: id, Flow: messages.FlowKey{Fairness: "v", Priority: priority}, Endpoint: at,
		At: s.actor.Clock().Add(-time.Duration(since) * time.Second), Cycle: s.cycles[id],
	})
}

// fails has the turn of request 1 fail for want of room at the near endpoint.
func (s *scene) fails() {
	s.Helper()
	s.turn(1)
	s.actor.Tell(messages.TurnFailed{Request: 1, Cycle: s.cycles[1], Lacking: messages.ListOf(near)})
}

// revoked wants these to have been told to end since the last look, and none else.
func (s *scene) revoked(want ...messages.RequestID) {
	s.Helper()
	wanted := map[messages.RequestID]bool{}
	for _, id := range want {
		wanted[id] = true
	}
	for id, c := range s.cycles {
		for _, m := range c.Told() {
			r, ok := m.(messages.Revoked)
			if ok && (!wanted[id] || r.Reason != messages.Preempted || r.RetryAfter < time.Second) {
				s.Errorf("request %d is told %+v, want %v to end", id, r, want)
			}
			if ok {
				delete(wanted, id)
			}
		}
	}
	if len(wanted) > 0 {
		s.Errorf("%v were not told to end", wanted)
	}
}

func (s *scene) ends(id messages.RequestID, runsOn bool) {
	s.actor.Tell(messages.ServingEnded{Request: id, RunsOn: runsOn})
}

// counts wants this of the metrics: revocations issued, and how they ended.
func (s *scene) counts(issued, confirmed, refused, late float64) {
	s.Helper()
	const ended = "llm_d_epp_flow_control_revocations_total"
	for _, c := range []struct {
		name, outcome string
		want          float64
	}{
		{"llm_d_epp_flow_control_revocations_issued_total", "", issued}, {ended, "confirmed", confirmed},
		{ended, "refused", refused}, {ended, "timed_out", late},
	} {
		if got := s.counted(c.name, c.outcome); got != c.want {
			s.Errorf("%s %s: %v, want %v", c.name, c.outcome, got, c.want)
		}
	}
}

// counted returns the sum of a family's counters, of those with an outcome; "" = of all.
func (s *scene) counted(name, outcome string) (sum float64) {
	s.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (outcome == "" || strings.Contains(m.String(), `value:"`+outcome+`"`)) {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestVictimsAreTheLeastOfThoseThatHelp(t *testing.T) {
	s := reclaiming(t)
	s.runs(11, -1, 9, near)
	s.runs(12, -2, 9, near)
	s.runs(13, -2, 3, near)
	s.runs(14, -9, 1, far) // its room would not do
	s.runs(15, 0, 1, near) // it may not be ended
	s.asks(1, at(0), 0)
	s.asks(2, at(0), 0)
	s.asks(3, at(-2), 0)
	s.fails()
	s.revoked(13, 12) // two wait that matter more than -2, and 13 began later
	s.actor.Tell(messages.RoomChanged{})
	s.fails()
	s.revoked() // until these have ended
	s.ends(13, false)
	s.ends(12, false)
	s.counts(2, 2, 0, 0)
	s.actor.Tell(messages.RoomChanged{})
	s.fails()
	s.revoked() // until their room shows
	s.actor.Advance(settles)
	s.fails()
	s.revoked(11)
}

func TestNoMoreEndThanWait(t *testing.T) {
	s := reclaiming(t)
	s.runs(11, -1, 9, near)
	s.runs(12, -1, 9, near)
	s.asks(1, at(0), 0)
	s.fails()
	s.revoked(12)
}

func TestNoRequestEndsForItsEqual(t *testing.T) {
	s := reclaiming(t)
	s.runs(11, -1, 9, near)
	s.asks(1, at(-1), 0)
	s.fails()
	s.revoked()
	if s.actor.Timers() != 0 {
		t.Errorf("%d timers run", s.actor.Timers())
	}
}

// A request that cannot be ended says so, and the next one is told at once.
func TestVictimThatRunsOnIsPassedOver(t *testing.T) {
	s := reclaiming(t)
	s.runs(11, -1, 9, near)
	s.runs(12, -1, 3, near)
	s.asks(1, at(0), 0)
	s.fails()
	s.revoked(12)
	s.ends(12, true)
	s.fails()
	s.revoked(11)
	s.ends(11, false)
	s.counts(2, 1, 1, 0)
}

// What does not answer is waited for ten seconds.
func TestVictimThatDoesNotAnswerIsGivenUp(t *testing.T) {
	s := reclaiming(t)
	s.runs(11, -1, 9, near)
	s.runs(12, -1, 3, near)
	s.asks(1, at(0), 0)
	s.fails()
	s.revoked(12)
	s.actor.Advance(10*time.Second - 1)
	s.turn(0)
	s.actor.Advance(1)
	s.fails()
	s.revoked(11)
	s.counts(2, 0, 0, 1)
	s.ends(12, false) // after all
	s.counts(2, 0, 0, 1)
}

func TestNoRequestEndsWithoutNeed(t *testing.T) {
	for name, prepare := range map[string]func(*scene){
		"switched off":           func(s *scene) { s.settings.Evictions = nil },
		"it has ended":           func(s *scene) { s.ends(11, false) },
		"it is served elsewhere": func(s *scene) { s.runs(11, -1, 9, far) },
		"the end is near":        func(s *scene) { s.actor.Tell(messages.LineClosed{}) },
		"its cycle is gone":      func(s *scene) { s.cycles[11].Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := reclaiming(t)
			s.runs(11, -1, 9, near)
			prepare(s)
			s.asks(1, at(0), 0)
			s.fails()
			s.revoked()
			s.counts(0, 0, 0, 0)
		})
	}
}

// A policy that panics ends no request.
func TestEvictionThatPanics(t *testing.T) {
	s := reclaiming(t)
	s.settings.Evictions = append(s.settings.Evictions, reclaim.Policy{Type: "broken", Eviction: broken{}})
	s.runs(11, -1, 9, near)
	s.asks(1, at(0), 0)
	s.fails()
	s.revoked()
	if got := s.metric("signalbox_flow_policy_panics_total"); got != 1 {
		t.Errorf("%v panics were counted, want 1", got)
	}
	if len(s.panics) != 1 {
		t.Fatalf("%d panics were told, want 1", len(s.panics))
	}
	p := s.panics[0]
	if p.Policy != "eviction policy" || p.Type != "broken" || p.Value != "no" || p.Times != 1 ||
		!strings.Contains(string(p.Stack), "broken.Evictable") {
		t.Errorf("%s of type %s is told: %v, %d times\n%s", p.Policy, p.Type, p.Value, p.Times, p.Stack)
	}
}

type broken struct{}

func (broken) Evictable(*reclaim.Running) bool   { panic("no") }
func (broken) Compare(_, _ *reclaim.Running) int { return 0 }
