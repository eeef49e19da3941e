package schedule_test

import (
	"reflect"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// A request that is tried to be picked for again and again comes to each point before the profiles once, and keeps what
// plugins said there: headers, what they have screened out, and what they keep of the request.
func TestRequestThatWaitsIsSeenOnce(t *testing.T) {
	v := &visitor{name: "a", drops: []int{1}, sets: map[string]string{"headers 3": "x-a=1"}}
	s, calls := visited(t, 3, v)
	g := s.guarded()
	before := s.plan.NewIntake()
	try := func() schedule.Outcome { return s.scheduler.Run(s.plan, &s.req, before, s.snap, now) }
	name, refused := s.scheduler.Reach(s.plan, &s.req, before, s.snap, now)
	if refused.Reason != messages.NoReason {
		t.Fatal(refused)
	}
	for range 3 {
		if out := try(); !out.Full {
			t.Fatalf("outcome %+v, want one for want of room", out)
		}
	}
	if again, _ := s.scheduler.Reach(s.plan, &s.req, before, s.snap, now); again != name {
		t.Errorf("it reaches %d, before %d", again, name)
	}
	g.room[1], g.room[2] = true, true
	out := try()
	s.ranked(out, 2)
	s.scheduler.Prepare(s.plan, &s.req, &out)
	want := []string{
		"a headers 3", "a screen 3", "a admit 2", "a pre-request 10.0.0.2:80 10.0.0.2:80 of 1, kept 1",
		"a respond 10.0.0.2:80",
	}
	if !reflect.DeepEqual(*calls, want) {
		t.Errorf("calls %q, want %q", *calls, want)
	}
	if got := out.Decision.Headers; got.Len() != 1 || got.At(0).Name != "x-a" {
		t.Errorf("headers %v, want x-a", got)
	}
	if kept := out.Decision.Profiles.At(0).Filters.At(0).Kept; !kept.At(0) || kept.At(1) || !kept.At(2) {
		t.Errorf("the record says that the screener left %v, want the places 0 and 2", kept)
	}
}

// Of endpoints that join while the request waits screeners are asked, and of no others again.
func TestScreenersSeeEndpointsThatJoin(t *testing.T) {
	v := &visitor{name: "a", drops: []int{1, 3}}
	s, calls := visited(t, 5, v)
	s.guarded(1, 3, 4)
	all := s.snap.Endpoints
	before := s.plan.NewIntake()
	for _, members := range [][]*endpoints.Endpoint{all[:3], all[1:4], {all[0], all[1], all[3], all[4]}} {
		s.snap = endpoints.NewSnapshot(s.snap.Version+1, members)
		out := s.scheduler.Run(s.plan, &s.req, before, s.snap, now)
		if (out.Reason == messages.NoReason) != (len(members) == 4) {
			t.Fatalf("of %d endpoints: %v %s", len(members), out.Reason, out.Detail)
		}
		if out.Reason == messages.NoReason && out.Ranked[0] != all[4] {
			t.Errorf("picked %s, want the one that joined", out.Ranked[0].Spec.Address)
		}
	}
	want := []string{"a headers 3", "a screen 3", "a admit 2", "a screen 1", "a screen 2"}
	if !reflect.DeepEqual(*calls, want) {
		t.Errorf("calls %q, want %q", *calls, want)
	}
}

// A plan under which no request waits, or whose plugins say nothing before the profiles, keeps nothing.
func TestNothingIsKeptInVain(t *testing.T) {
	s, _ := visited(t, 1, &visitor{name: "a"})
	if s.plan.NewIntake() != nil {
		t.Error("no request waits, and what plugins say is kept")
	}
	bare := newScene(t, 1)
	bare.guarded(0)
	if bare.plan.NewIntake() != nil {
		t.Error("no plugin says anything, and that is kept")
	}
}
