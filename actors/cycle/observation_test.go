package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// windowed is a gate by windows.
type windowed struct{}

func (windowed) Saturation(*schedule.Input) float64 { return 0 }
func (windowed) Room(*schedule.Input, []bool)       {}
func (windowed) Bounds(float64) endpoints.Room      { return endpoints.Room{Learned: true} }

// picked returns a scene whose request was picked for under a plan with windows, or without a gate.
func picked(t *testing.T, windows, stream bool) *scene {
	t.Helper()
	s := newScene(t)
	s.asked.Stream = stream
	if windows {
		s.queueing = &flow.Settings{Default: flow.BandSettings{TTL: turnLimit}}
		s.plan.HaveWait(windowed{}, schedule.Step{Name: "windows"})
	}
	s.play()
	s.ready(24 * time.Hour)
	s.arrive()
	return s
}

// What a request shows of how much its endpoint takes is told once, whatever it shows first.
func TestServiceIsTold(t *testing.T) {
	const after = 70 * time.Millisecond
	started := messages.ResponseStarted{Status: 200}
	timed := messages.FirstTokenTimed{Endpoint: first, Took: after, Prompt: hello.PromptTokens}
	ended, whole := messages.ServiceEnded{Endpoint: first}, messages.ServiceEnded{Endpoint: first, Served: true}
	for name, c := range map[string]struct {
		windows, stream bool
		headers         messages.ResponseStarted // the zero one = the client leaves before they come
		token           bool                     // the first one comes
		want            messages.WindowMsg       // nil = none
	}{
		"a first token":      {true, true, started, true, timed},
		"a whole answer":     {true, false, started, true, whole},
		"a refusal":          {true, true, messages.ResponseStarted{Status: 503}, true, refused(first)},
		"an error":           {true, true, messages.ResponseStarted{Status: 500}, false, ended},
		"the proxy's answer": {true, true, messages.ResponseStarted{Status: 503, Local: "overload"}, false, nil},
		"a client that left": {true, true, messages.ResponseStarted{}, false, ended},
		"no windows":         {false, true, started, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := picked(t, c.windows, c.stream)
			at := s.cycle.Clock()
			s.cycle.Advance(after)
			if c.headers.Status > 0 {
				s.cycle.Tell(c.headers)
			}
			if c.token {
				s.cycle.Tell(messages.FirstTokenSeen{At: s.cycle.Clock()})
			}
			if c.headers.Status > 0 {
				s.cycle.Tell(messages.ResponseEnded{ResponseBytes: 900})
			}
			s.cycle.Tell(messages.StreamGone{Completed: c.headers.Status > 0})
			if token, ok := c.want.(messages.FirstTokenTimed); ok {
				token.Picked = at
				c.want = token
			}
			if c.want == nil {
				s.window.Got()
				return
			}
			s.window.Got(c.want)
		})
	}
}

func refused(by messages.EndpointID) messages.WindowMsg {
	return messages.ServiceEnded{Endpoint: by, Refused: true}
}

// The access log tells when the first token of a bypassing answer came, counted from the request's beginning.
func TestServiceIsToldByTheLog(t *testing.T) {
	s := picked(t, true, true)
	at := s.cycle.Clock()
	s.cycle.Tell(messages.ResponseStarted{Status: 200, Bypasses: true})
	s.cycle.Tell(messages.StreamGone{Logged: true, Log: messages.LogSeen})
	s.cycle.Advance(time.Second)
	s.window.Got()
	s.cycle.Tell(messages.ResponseEnded{
		ResponseBytes: 900,
		Logged:        messages.Logged{Status: 200, Served: addresses[first], FirstToken: 80 * time.Millisecond},
	})
	decided := s.ended[0].Decided
	s.window.Got(messages.FirstTokenTimed{
		Endpoint: first, Picked: at, Took: 80*time.Millisecond - decided, Prompt: hello.PromptTokens,
	})
}

// The bound of an endpoint is its window, and a request beyond it waits.
func TestWindowBoundsLoad(t *testing.T) {
	s := newScene(t)
	s.queueing = &flow.Settings{Default: flow.BandSettings{TTL: turnLimit}}
	s.plan.HaveWait(windowed{}, schedule.Step{Name: "windows"})
	for _, e := range s.pool.Snapshot().Endpoints {
		endpoints.WindowWriter{Endpoint: e}.SetWindow(endpoints.Room{Requests: 1})
	}
	release := s.fill()
	s.play()
	s.ready(24 * time.Hour)
	s.arrive()
	if told := s.capacity.Told(); len(told) != 1 {
		t.Errorf("capacity was told %v, want one request that waits", told)
	}
	release()
	s.cycle.Tell(messages.Dispatched{})
	if told := s.stream.Told(); len(told) == 0 {
		t.Error("the stream has no pick once there is room")
	}
}
