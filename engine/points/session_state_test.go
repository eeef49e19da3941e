package points_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/points"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/messages"
)

// states is a series of requests that may have a session in a header.
type states struct{ *scheduletest.Series }

func newStates(t *testing.T, ttl float64) states {
	t.Helper()
	s := points.Types["session-state-producer"]().(*points.SessionState)
	s.EvictionTTLSeconds, s.Producer = ttl, "ids"
	if err := s.Refer(func(string, string) any { return &points.SessionID{HeaderName: "x-session"} }); err != nil {
		t.Fatal(err)
	}
	return states{scheduletest.NewSeries(t, s, scheduletest.Profile{Name: "default", Ranks: []int{0, 1}})}
}

func of(session string) *messages.Request {
	r := scheduletest.Request()
	r.Headers = messages.ListOf(messages.HeaderValue{Text: session, Given: session != ""})
	return r
}

// at schedules a request of a session, and returns it.
func (s states) at(session string, after time.Duration) schedule.Outcome {
	s.Helper()
	s.Now = s.Now.Add(after)
	return s.Pick(of(session), make([]scheduletest.Endpoint, 2)...)
}

// shows looks at what is emitted of a session, by a request that is counted, too.
func (s states) shows(session string, want map[string]float64) {
	s.Helper()
	for _, name := range new(points.SessionState).Emits() {
		w, given := want[name[len("llm-d.ai/session-"):]]
		if !given {
			continue
		}
		got := s.Produced(of(session), name, make([]scheduletest.Endpoint, 2)...)
		if fmt.Sprint(got) != fmt.Sprint([]float64{w, w}) {
			s.Errorf("session %q: %s is %v, want %v twice", session, name, got, w)
		}
	}
}

func TestSessionState(t *testing.T) {
	const minute = time.Minute
	answered := func(in, out int) *messages.Record {
		return &messages.Record{Status: 200, Usage: messages.Usage{PromptTokens: in, OutputTokens: out}}
	}
	for name, c := range map[string]struct {
		ttl  float64
		play func(s states)
		want map[string]float64 // one attribute, for each look is a request
	}{
		"new: turns":    {3600, func(states) {}, map[string]float64{"turns": 0}},
		"new: duration": {3600, func(states) {}, map[string]float64{"duration-seconds": 0}},
		"turns": {3600, func(s states) { s.at("a", 0); s.at("b", minute); s.at("a", minute) },
			map[string]float64{"turns": 2}},
		"duration": {3600, func(s states) { s.at("a", 0); s.at("a", minute); s.Now = s.Now.Add(minute) },
			map[string]float64{"duration-seconds": 120}},
		"idle": {3600, func(s states) { s.at("a", 0); s.at("a", minute); s.Now = s.Now.Add(minute / 2) },
			map[string]float64{"idle-seconds": 30}},
		"in flight": {3600, func(s states) {
			one := s.at("a", 0)
			s.at("a", 0)
			s.End(of("a"), &one, answered(0, 0))
		}, map[string]float64{"inflight-requests": 1}},
		"completed": {3600, func(s states) { // an error is a whole answer; one that the client left is none
			left := &messages.Record{Status: 200, Reason: messages.ClientGone}
			for _, r := range []*messages.Record{answered(7, 3), {Status: 500}, left} {
				one := s.at("a", 0)
				s.End(of("a"), &one, r)
			}
		}, map[string]float64{"completed-requests": 2}},
		"input tokens": {3600, func(s states) {
			for _, r := range []*messages.Record{answered(7, 3), answered(5, 2)} {
				one := s.at("a", 0)
				s.End(of("a"), &one, r)
			}
		}, map[string]float64{"input-tokens": 12}},
		"output tokens": {3600, func(s states) {
			one, two := s.at("a", 0), s.at("a", 0)
			s.End(of("a"), &one, answered(7, 3))
			left := answered(7, 100)
			left.Reason = messages.ClientGone
			s.End(of("a"), &two, left)
		}, map[string]float64{"output-tokens": 3}},
		"no session": {3600, func(s states) { s.at("", 0) }, nil},
		"expired": {60, func(s states) {
			one := s.at("a", 0)
			s.End(of("a"), &one, answered(1, 1))
			s.Now = s.Now.Add(minute + 1)
		}, map[string]float64{"turns": 0}},
		"one that runs does not expire": {60, func(s states) { s.at("a", 0); s.Now = s.Now.Add(2 * minute) },
			map[string]float64{"turns": 1}},
		"it expires after its end": {60, func(s states) {
			one := s.at("a", 0)
			s.Now = s.Now.Add(2 * minute)
			s.End(of("a"), &one, answered(1, 1))
		}, map[string]float64{"turns": 0}},
		"never expires": {0, func(s states) {
			one := s.at("a", 0)
			s.End(of("a"), &one, answered(1, 1))
			s.Now = s.Now.Add(1000 * time.Hour)
		}, map[string]float64{"turns": 1}},
		"an end after a restart": {3600, func(s states) {
			one := s.at("a", 0)
			s.Tables.Reset()
			s.End(of("a"), &one, answered(1, 1))
		}, map[string]float64{"inflight-requests": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStates(t, c.ttl)
			c.play(s)
			s.shows("a", c.want)
			if c.want == nil {
				s.shows("", map[string]float64{"turns": math.NaN()})
			}
		})
	}
}

func TestSessionStateNeedsAFinder(t *testing.T) {
	s := points.Types["session-state-producer"]().(*points.SessionState)
	var asked string
	err := s.Refer(func(parameter, name string) any {
		asked = parameter + " " + name
		return new(points.LabelProducer)
	})
	const want = "producer: agent-identity finds no sessions, want an agent-identity or a session-id-producer"
	if asked != "producer agent-identity" || err == nil || err.Error() != want {
		t.Errorf("asked for %q, got %v, want %s", asked, err, want)
	}
	if s.EvictionTTLSeconds = -1; s.Validate() == nil {
		t.Error("a negative time is taken")
	}
}

// A pick allocates as much with any number of endpoints.
func TestSessionStateDoesNotAllocateForEachEndpoint(t *testing.T) {
	s := newStates(t, 3600)
	s.at("a", 0)
	few := s.Allocs(of("a"), make([]scheduletest.Endpoint, 2)...)
	if many := s.Allocs(of("a"), make([]scheduletest.Endpoint, 200)...); many != few {
		t.Errorf("%v allocations with 200 endpoints, want %v as with 2", many, few)
	}
}
