package cycle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// visitor is a plugin that acts on picks and learns how requests end.
type visitor struct {
	refusal schedule.Refusal
	panics  bool // as the request ends
	ends    []string
	loads   func() []endpoints.Counters
}

func (v *visitor) PreRequest(_ *schedule.Picked, set *schedule.Headers) schedule.Refusal {
	set.Set("x-picked", "yes")
	return v.refusal
}

func (v *visitor) ResponseHeaders(_ *schedule.Picked, destination int, set *schedule.Headers) {
	set.Set("x-served", fmt.Sprint(destination))
}

func (v *visitor) ResponseEnd(e *schedule.Ended) {
	r := e.Record()
	v.ends = append(v.ends, fmt.Sprintf("%d at %d%s: %d %v, load %d", e.Request().ID(), r.Served.Generation,
		r.Elsewhere, r.Status, r.Reason, v.loads()[0].Inflight))
	if v.panics {
		panic("plugin")
	}
}

// visited returns a scene whose request is about to come, and the plugin that its plan has.
func visited(t *testing.T, v *visitor) *scene {
	t.Helper()
	s := newScene(t)
	v.loads = func() (all []endpoints.Counters) {
		for _, e := range s.pool.Snapshot().Endpoints {
			all = append(all, e.Counters())
		}
		return all
	}
	s.plan = schedule.NewPlan([]schedule.Profile{{
		Name: "default", Picker: schedule.PickerStep{Step: schedule.Step{Name: "all"}, Picker: inOrder{}},
	}}, nil, once{}, 0)
	s.plan.Serve(schedule.PointStep{Step: schedule.Step{Name: "v"}, Plugin: v})
	s.play()
	s.ready(24 * time.Hour)
	return s
}

// A plugin learns once how a request ended that was picked for, with nothing held any more, however it ends.
func TestPluginsLearnHowRequestsEnd(t *testing.T) {
	started := messages.ResponseStarted{Status: 200, Served: addresses[second]}
	for name, c := range map[string]struct {
		told []messages.CycleMsg
		want string // "" = it was not picked for
	}{
		"D106 whole": {[]messages.CycleMsg{started, messages.ResponseEnded{}},
			"7 at 2: 200 , load 0"},
		"D105 client gone": {[]messages.CycleMsg{messages.StreamGone{}},
			"7 at 1: 0 rejected-context-cancelled, load 0"},
		"no pool endpoint": {[]messages.CycleMsg{
			messages.ResponseStarted{Status: 200, Served: "10.9.9.9:80"}, messages.ResponseEnded{}},
			"7 at 010.9.9.9:80: 200 , load 0"},
		"D104 revoked": {[]messages.CycleMsg{messages.Revoked{Reason: messages.Overloaded},
			messages.StreamGone{Answered: messages.Overloaded}},
			"7 at 1: 713 overloaded, load 0"},
		"bypassed": {[]messages.CycleMsg{messages.ResponseStarted{Status: 200, Bypasses: true},
			messages.StreamGone{Logged: true, Log: messages.LogAwaited}, messages.ResponseEnded{}},
			"7 at 1: 200 , load 0"},
		"refused": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := new(visitor)
			s := visited(t, v)
			if c.told == nil {
				endpoints.Publisher{Published: s.pool}.Publish(endpoints.NewSnapshot(4, nil), nil)
			}
			s.arrive()
			for _, m := range c.told {
				s.cycle.Tell(m)
			}
			if got := fmt.Sprint(v.ends); got != "["+c.want+"]" || !s.cycle.Ended() {
				t.Errorf("told %s, want [%s]", got, c.want)
			}
		})
	}
}

func TestPluginThatPanicsAtTheEndHoldsNothing(t *testing.T) {
	v := &visitor{panics: true}
	s := visited(t, v)
	s.arrive()
	func() {
		defer func() { _ = recover() }()
		s.cycle.Tell(messages.StreamGone{})
	}()
	s.load(0, 0)
	if len(v.ends) != 1 || s.book.Live() != 0 || len(s.ended) != 1 || s.metric("llm_d_epp_running_requests") != 0 {
		t.Errorf("told %v; live %d, %d records", v.ends, s.book.Live(), len(s.ended))
	}
}

func TestStreamIsToldWhatPluginsSet(t *testing.T) {
	s := visited(t, new(visitor))
	s.arrive()
	one := func(name, value string) messages.List[messages.Header] {
		return messages.ListOf(messages.Header{Name: name, Value: value})
	}
	s.stream.Got(messages.PickMade{
		Destinations: messages.ListOf(addresses[first], addresses[second]), Headers: one("x-picked", "yes"),
		Responses: messages.ListOf(one("x-served", "0"), one("x-served", "1")),
	})
}

// A pick that a plugin refuses leaves nothing behind. Its probe is given back, and the record has the pick.
func TestRefusedPickLeavesNothing(t *testing.T) {
	v := &visitor{refusal: schedule.Refusal{Reason: messages.NoCapacity, Detail: "full", RetryAfter: time.Minute}}
	s := visited(t, v)
	s.arrive()
	s.stream.Got(messages.PickFailed{Reason: messages.NoCapacity, Detail: "full", RetryAfter: time.Minute})
	r := s.over(messages.NoCapacity)
	if len(v.ends) != 0 || r.Decision.Profiles.Len() != 1 || r.Served != (messages.EndpointID{}) {
		t.Errorf("told %v; served by %v, %d runs", v.ends, r.Served, r.Decision.Profiles.Len())
	}
}

// keeper is a plugin that keeps the endpoint of a session.
type keeper struct {
	sessions memory.Sessions
	refusal  schedule.Refusal
}

func (k *keeper) PreRequest(p *schedule.Picked, _ *schedule.Headers) schedule.Refusal {
	endpoint, _ := p.Destination(0)
	k.sessions.Keep(p.Notes(), "s", endpoint.ID(), time.Minute)
	return k.refusal
}

// What plugins keep of a pick is told once, and again if another endpoint serves. Nothing is told of a check or of a
// pick that was refused.
func TestMemoryIsToldWhatPluginsKeep(t *testing.T) {
	for name, c := range map[string]struct {
		check   bool
		refusal schedule.Refusal
		served  messages.Address
		want    []messages.EndpointID
	}{
		"served":    {served: addresses[first], want: []messages.EndpointID{first}},
		"elsewhere": {served: addresses[second], want: []messages.EndpointID{first, second}},
		"stranger":  {served: "10.9.9.9:80", want: []messages.EndpointID{first}},
		"check":     {check: true, served: addresses[second]},
		"refused":   {refusal: schedule.Refusal{Reason: messages.NoCapacity}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.plan.Serve(schedule.PointStep{Plugin: &keeper{refusal: c.refusal}})
			s.play()
			s.cycle.Tell(messages.RequestArrived{
				Request: s.asked, Flow: line, ArrivedAt: s.cycle.Clock(), Deadline: s.cycle.Clock().Add(time.Hour),
				Stream: s.stream, Check: c.check,
			})
			if c.served != "" {
				s.cycle.Tell(messages.ResponseStarted{Status: 200, Served: c.served})
			}
			var got []messages.EndpointID
			for _, m := range s.memory.Told() {
				kept, ok := m.(messages.PickKept)
				if !ok || kept.Request != 7 || kept.Kept.Len() != 1 || kept.Kept.At(0).For != time.Minute {
					t.Fatalf("memory was told %+v, want where request 7 went", m)
				}
				got = append(got, kept.Kept.At(0).Endpoint)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("the session was kept at %v, want %v", got, c.want)
			}
		})
	}
}

// observer is a plugin that keeps an endpoint at a request's first token, and at its end.
type observer struct{ uses memory.Uses }

func (o *observer) FirstToken(b *schedule.Begun) {
	o.uses.Keep(b.Notes(), messages.EndpointID{Slot: b.Served().Slot, Generation: uint32(b.Took() / time.Millisecond)})
}

func (o *observer) ResponseEnd(e *schedule.Ended) {
	o.uses.Keep(e.Notes(), messages.EndpointID{Slot: uint32(e.Record().Status)})
}

// A plugin learns once when the first token came, if that says how long the picked endpoint takes, also from the access
// log; and what it keeps then, and of the end, is told.
func TestPluginsLearnWhenTheFirstTokenComes(t *testing.T) {
	const ms = time.Millisecond
	began, end := messages.ResponseStarted{Status: 200}, messages.ResponseEnded{}
	token := func(s *scene) { s.cycle.Tell(messages.FirstTokenSeen{At: s.cycle.Clock().Add(70 * ms)}) }
	tell := func(list ...messages.CycleMsg) func(*scene) {
		return func(s *scene) {
			for _, m := range list {
				s.cycle.Tell(m)
			}
		}
	}
	for name, c := range map[string]struct {
		whole, check bool // the answer is not streamed; a checker asks
		told         []func(*scene)
		want         []uint32 // milliseconds, and the status at the end
	}{
		"streamed":     {told: []func(*scene){tell(began), token, tell(end)}, want: []uint32{70, 200}},
		"not streamed": {whole: true, told: []func(*scene){tell(began), token, tell(end)}, want: []uint32{200}},
		"an error": {told: []func(*scene){tell(messages.ResponseStarted{Status: 404}), token, tell(end)},
			want: []uint32{404}},
		"another endpoint": {told: []func(*scene){
			tell(messages.ResponseStarted{Status: 200, Served: addresses[second]}), token, tell(end),
		}, want: []uint32{200}},
		"no token": {told: []func(*scene){tell(began, end)}, want: []uint32{200}},
		"from the log": {told: []func(*scene){tell(messages.ResponseStarted{Status: 200, Bypasses: true},
			messages.ResponseEnded{Logged: messages.Logged{Status: 200, Headers: ms, FirstToken: 90*ms + 1}})},
			want: []uint32{90, 200}},
		"a check": {check: true, told: []func(*scene){tell(began), token, tell(end)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.plan.Serve(schedule.PointStep{Plugin: new(observer)})
			s.asked.Stream = !c.whole
			s.play()
			s.cycle.Tell(messages.RequestArrived{
				Request: s.asked, Flow: line, ArrivedAt: s.cycle.Clock(), Deadline: s.cycle.Clock().Add(time.Hour),
				Stream: s.stream, Check: c.check,
			})
			for _, told := range c.told {
				told(s)
			}
			var got []uint32
			for _, m := range s.memory.Told() {
				kept := m.(messages.PickKept).Kept.At(0).Endpoint
				got = append(got, max(kept.Generation, kept.Slot))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("kept %v, want %v", got, c.want)
			}
		})
	}
}
