package window_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/window"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	learned "github.com/signalbox-epp/signalbox/engine/window"
	"github.com/signalbox-epp/signalbox/messages"
)

// scene is the window actor among a pool of two endpoints, and a line of waiting requests.
type scene struct {
	*testing.T
	pool     *endpoints.Published
	line     flow.LineWriter
	capacity *runtimetest.Probe[messages.CapacityMsg]
	registry *prometheus.Registry
	metrics  *window.Metrics
	actor    *runtimetest.Stage[messages.WindowMsg]
	a, b     *endpoints.Endpoint
	number   uint64 // of the newest set of endpoints
}

func newScene(t *testing.T) *scene {
	s := &scene{
		T: t, pool: endpoints.NewPublished(), line: flow.LineWriter{Line: new(flow.Line)},
		capacity: runtimetest.NewProbe[messages.CapacityMsg](t), actor: runtimetest.NewStage[messages.WindowMsg](t),
		registry: prometheus.NewRegistry(),
	}
	s.metrics = window.NewMetrics(s.registry)
	s.a = endpoints.New(messages.EndpointID{Slot: 0, Generation: 1}, messages.EndpointSpec{Address: "10.0.0.1:80"})
	s.b = endpoints.New(messages.EndpointID{Slot: 1, Generation: 1}, messages.EndpointSpec{Address: "10.0.0.2:80"})
	s.publish(s.a, s.b)
	s.play()
	for _, e := range []*endpoints.Endpoint{s.a, s.b} { // an endpoint has no window until a page tells of its work
		s.sample(e, 0, 0)
	}
	return s
}

// play puts a new incarnation on the stage.
func (s *scene) play() {
	s.actor.Play(window.New(s.pool, new(flow.Ceilings), flow.Bell{Line: s.line.Line, To: s.capacity}, s.metrics))
	s.actor.Tell(messages.WindowStarted{})
}

func (s *scene) publish(all ...*endpoints.Endpoint) {
	s.number++
	endpoints.Publisher{Published: s.pool}.Publish(endpoints.NewSnapshot(s.number, all), nil)
}

// load has so many requests be in flight at an endpoint.
func (s *scene) load(e *endpoints.Endpoint, n int) {
	for range n {
		endpoints.LoadWriter{Endpoint: e}.Add(endpoints.Work{Prompt: 10}, time.Time{})
	}
}

// sample has a page of an endpoint be in force, and tells of it.
func (s *scene) sample(e *endpoints.Endpoint, waiting, running int) {
	s.actor.Advance(time.Second)
	now := s.actor.Clock()
	endpoints.SampleWriter{Endpoint: e}.Publish(&endpoints.Sample{
		At: now, Interval: time.Second, Values: endpointstest.Load(waiting, running, float64(now.UnixMilli()%997)/1e4),
	})
	s.actor.Tell(messages.SampleTaken{Endpoint: e.ID})
}

func (s *scene) wants(e *endpoints.Endpoint, least, most int) {
	s.Helper()
	if room, _ := e.Window(); room.Requests < least || room.Requests > most {
		s.Errorf("the window is %d, want %d to %d", room.Requests, least, most)
	}
}

// changes returns how many changes of windows are counted by a cause.
func (s *scene) changes(cause string) (n float64) {
	families, err := s.registry.Gather()
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == cause {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// because checks what changed a window last, and how many requests the window before took.
func (s *scene) because(e *endpoints.Endpoint, cause learned.Cause, from int) {
	s.Helper()
	why := e.WindowReason()
	if why == nil || why.Cause != cause || why.From != from || !why.At.Equal(s.actor.Clock()) {
		s.Errorf("the reason is %+v, want %v now, from %d", why, cause, from)
	}
}

// A page moves the window of its endpoint alone. The line hears of one that has grown, and of no other.
func TestPagesMoveWindows(t *testing.T) {
	s := newScene(t)
	s.line.Set(1, 0)
	s.load(s.a, 16)
	s.sample(s.a, 0, 16)
	s.wants(s.a, 18, 24)
	s.because(s.a, learned.Page, endpoints.FirstWindow)
	s.capacity.Got(messages.RoomChanged{})
	s.load(s.a, 8)
	before, _ := s.a.Window()
	s.sample(s.a, 10, 14)
	s.sample(s.a, 10, 14)
	s.wants(s.a, 14, 17)
	s.because(s.a, learned.Page, before.Requests)
	if queue := s.a.WindowReason().Queue; queue < 9 || queue > 10 {
		t.Errorf("%v requests seem to have waited, want 10", queue)
	}
	s.wants(s.b, endpoints.FirstWindow, endpoints.FirstWindow)
	s.capacity.Got()
	if got := s.changes("page"); got < 2 {
		t.Errorf("%v changes by pages are counted", got)
	}
	s.line.Set(0, 0)
	s.load(s.b, 16)
	s.sample(s.b, 0, 16)
	s.wants(s.b, 18, 24)
	s.capacity.Got() // none waits
}

// First tokens move the window without a page, and requests that were refused too.
func TestRequestsMoveWindows(t *testing.T) {
	s := newScene(t)
	s.load(s.a, 16)
	for range 20 {
		s.actor.Advance(100 * time.Millisecond)
		s.actor.Tell(messages.FirstTokenTimed{
			Endpoint: s.a.ID, Picked: s.actor.Clock().Add(-50 * time.Millisecond), Took: 50 * time.Millisecond,
			Prompt: 100,
		})
	}
	s.wants(s.a, 18, 40)
	before, _ := s.a.Window()
	s.actor.Advance(time.Second)
	s.actor.Tell(messages.ServiceEnded{Endpoint: s.a.ID})
	s.wants(s.a, before.Requests, before.Requests)
	s.actor.Tell(messages.ServiceEnded{Endpoint: s.a.ID, Refused: true})
	s.wants(s.a, before.Requests, before.Requests) // it was refused with less in flight than the window allows
	s.load(s.a, before.Requests-16)
	s.actor.Tell(messages.ServiceEnded{Endpoint: s.a.ID, Refused: true})
	s.wants(s.a, 8, before.Requests-1)
	s.because(s.a, learned.Refusal, before.Requests)
}

// The window of an endpoint that is ejected begins anew, while requests run anywhere.
func TestWindowOfAnEjectedEndpointBeginsAnew(t *testing.T) {
	s := newScene(t)
	s.load(s.b, 1)
	s.load(s.a, 16)
	s.sample(s.a, 0, 16)
	before, _ := s.a.Window()
	degrade := func(ejected bool) {
		endpoints.OutlierWriter{Endpoint: s.a}.SetOutlier(&outlier.Status{Ejected: ejected})
		s.actor.Advance(time.Second)
	}
	degrade(false)
	s.wants(s.a, before.Requests, before.Requests)
	degrade(true)
	s.wants(s.a, endpoints.FirstWindow, endpoints.FirstWindow)
	s.because(s.a, learned.Begun, before.Requests)
	s.wants(s.b, endpoints.FirstWindow, endpoints.FirstWindow)
}

// An endpoint that has left, or never was there, is no matter, and what was known of it goes.
func TestEndpointsLeave(t *testing.T) {
	s := newScene(t)
	s.load(s.a, 16)
	s.sample(s.a, 0, 16)
	s.publish(s.b)
	s.sample(s.a, 0, 16)
	s.actor.Tell(messages.ServiceEnded{Endpoint: messages.EndpointID{Slot: 9, Generation: 9}, Refused: true})
	again := endpoints.New(messages.EndpointID{Slot: 0, Generation: 2}, s.a.Spec)
	s.publish(again, s.b)
	s.wants(again, 0, 0)
	s.sample(again, 0, 0)
	s.wants(again, endpoints.FirstWindow, endpoints.FirstWindow)
	s.because(again, learned.Begun, 0)
}

// An endpoint of which no page tells has no bound, whatever it works on, until first tokens come or it refuses
// requests.
func TestNothingKnownIsNoBound(t *testing.T) {
	s := newScene(t)
	again := endpoints.New(messages.EndpointID{Slot: 2, Generation: 1}, messages.EndpointSpec{Address: "10.0.0.3:80"})
	s.publish(again)
	s.load(again, 300)
	prompt := func(took time.Duration) {
		s.actor.Advance(100 * time.Millisecond)
		s.actor.Tell(messages.FirstTokenTimed{
			Endpoint: again.ID, Picked: s.actor.Clock().Add(-50 * time.Millisecond), Took: took, Prompt: 100,
		})
	}
	for range 20 {
		s.actor.Tell(messages.ServiceEnded{Endpoint: again.ID})
		s.actor.Tell(messages.ServiceEnded{Endpoint: again.ID, Served: true})
		s.sample(again, -1, -1) // a page of something else
	}
	s.wants(again, 0, 0)
	if why := again.WindowReason(); why != nil {
		t.Errorf("nothing was learned, and the reason is %+v", why)
	}
	prompt(50 * time.Millisecond)
	s.wants(again, 300, 300)
	s.because(again, learned.Begun, 0)
}

// A refusal bounds an endpoint that had no bound below what it works on. A page that tells of its work does so by that.
func TestWindowsBegin(t *testing.T) {
	s := newScene(t)
	for slot, told := range []func(e *endpoints.Endpoint){
		func(e *endpoints.Endpoint) {
			s.actor.Tell(messages.ServiceEnded{Endpoint: e.ID, Served: true})
			s.actor.Advance(time.Second)
			s.actor.Tell(messages.ServiceEnded{Endpoint: e.ID, Refused: true})
		},
		func(e *endpoints.Endpoint) {
			s.actor.Tell(messages.ServiceEnded{Endpoint: e.ID, Served: true})
			s.sample(e, 0, 300)
		},
	} {
		e := endpoints.New(messages.EndpointID{Slot: uint32(2 + slot), Generation: 1}, s.a.Spec)
		s.publish(e)
		s.load(e, 300)
		s.wants(e, 0, 0)
		told(e)
		s.wants(e, 250, 300)
	}
}

// A sample without what is read of it, or none at all, changes nothing.
func TestSamplesThatSayNothing(t *testing.T) {
	s := newScene(t)
	s.load(s.a, 16)
	s.actor.Tell(messages.SampleTaken{Endpoint: s.a.ID})
	s.sample(s.a, -1, -1)
	s.wants(s.a, endpoints.FirstWindow, endpoints.FirstWindow)
}

// A new incarnation goes on from the windows in force.
func TestRestartKeepsWindows(t *testing.T) {
	s := newScene(t)
	s.load(s.a, 16)
	s.sample(s.a, 0, 16)
	before, _ := s.a.Window()
	reason := s.a.WindowReason()
	s.play()
	s.sample(s.a, 1, 15)
	s.wants(s.a, before.Requests, before.Requests)
	if now := s.a.WindowReason(); now != reason {
		t.Errorf("the reason is %+v, want that of before the restart, %+v", now, reason)
	}
}

// An endpoint whose streams never end, and of which no page tells, is not bounded for ever by first tokens that came.
func TestEndpointThatTellsNothingAnyMore(t *testing.T) {
	s := newScene(t)
	blind := endpoints.New(messages.EndpointID{Slot: 2, Generation: 1}, messages.EndpointSpec{Address: "10.0.0.3:80"})
	s.publish(s.a, s.b, blind)
	s.line.Set(1, 0)
	s.load(blind, 100)
	for range 40 {
		s.actor.Tell(messages.FirstTokenTimed{
			Endpoint: blind.ID, Picked: s.actor.Clock(), Took: time.Second, Prompt: 10,
		})
	}
	if room, _ := blind.Window(); room.Requests == 0 {
		t.Fatal("first tokens of 100 requests bound nothing")
	}
	s.load(blind, 100) // by a configuration without windows, say
	s.actor.Advance(25 * time.Second)
	s.wants(blind, 0, 0)
}

// An endpoint of which no first token was seen has the mean rate of the others.
func TestUnmeasuredEndpointHasTheMeanRate(t *testing.T) {
	s := newScene(t)
	rates := func(a, b int) {
		t.Helper()
		for e, want := range map[*endpoints.Endpoint]int{s.a: a, s.b: b} {
			if room, _ := e.Window(); room.Rate != want ||
				room.Prompts != max(want*learned.Ahead, learned.StepTokens)*min(want, 1) {
				t.Errorf("%v computes %d tokens a second, and takes %d, want %d", e.ID, room.Rate, room.Prompts, want)
			}
		}
	}
	rates(0, 0)
	first := func(e *endpoints.Endpoint, prompt int) {
		s.actor.Tell(messages.FirstTokenTimed{
			Endpoint: e.ID, Picked: s.actor.Clock(), Took: time.Second, Prompt: prompt, Ahead: prompt,
		})
	}
	first(s.a, 2000)
	s.sample(s.b, 0, 0)
	rates(4000, 4000)
	first(s.b, 500)
	rates(4000, 1000)
}
