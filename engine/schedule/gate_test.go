package schedule_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// gate has room at some endpoints, by their place in the pool.
type gate struct {
	room  map[int]bool
	asked int
}

func (*gate) Saturation(*schedule.Input) float64 { return 0 }
func (*gate) Bounds(float64) endpoints.Room      { return endpoints.Room{Requests: 3} }
func (g *gate) Room(in *schedule.Input, keep []bool) {
	g.asked++
	for i := range keep {
		keep[i] = g.room[int(in.Candidates().At(i).ID().Slot)]
	}
}

// guarded has the plan of a scene ask a gate, and returns it.
func (s *scene) guarded(places ...int) *gate {
	g := &gate{room: map[int]bool{}}
	for _, at := range places {
		g.room[at] = true
	}
	s.planned().HaveWait(g, schedule.Step{Name: "room", Meter: 3})
	return g
}

func TestPickKeepsToRoom(t *testing.T) {
	s := newScene(t, 3)
	s.guarded(2, 1)
	out := s.run()
	s.ranked(out, 1, 2)
	run := out.Decision.Profiles.At(0)
	if got := run.Filters.At(0); got.Plugin != "room" || got.Kept.At(0) || !got.Kept.At(1) || !got.Kept.At(2) {
		t.Errorf("the record says that the gate left %+v", got)
	}
	if s.counts.ran[3] != 1 {
		t.Errorf("the gate was timed %d times, want 1", s.counts.ran[3])
	}
}

func TestGateThatDropsNothingLeavesNoTrace(t *testing.T) {
	s := newScene(t, 2)
	s.guarded(0, 1)
	out := s.run()
	s.ranked(out, 0, 1)
	if n := out.Decision.Profiles.At(0).Filters.Len(); n != 0 {
		t.Errorf("%d filters in the record, want none", n)
	}
}

func TestRequestWithoutRoomIsToWait(t *testing.T) {
	s := newScene(t, 3)
	s.guarded()
	out := s.run()
	s.failed(out, messages.NoCapacity, "no endpoint that it may use has room")
	if !out.Full {
		t.Error("the outcome does not say that it is for want of room")
	}
	filters := out.Decision.Profiles.At(0).Filters
	if filters.Len() != 1 || filters.At(0).Plugin != "room" || filters.At(0).Kept.At(1) {
		t.Errorf("the record has the filters %+v, want that the gate left none", filters)
	}
}

// A request that filters leave nothing to is not to wait, though the one before was.
func TestWantOfRoomIsOfTheLastRun(t *testing.T) {
	s, kept := newScene(t, 1), true
	s.filter("only", func(_ *schedule.Input, keep []bool) { keep[0] = kept })
	s.guarded()
	if out := s.run(); !out.Full {
		t.Fatalf("outcome %+v, want one for want of room", out)
	}
	kept = false
	if out := s.run(); out.Full || out.Reason == messages.NoReason {
		t.Errorf("outcome %+v, want a refusal that is not for want of room", out)
	}
}

// What would do if it had room is what filters keep, and nothing in an empty pool.
func TestLackingIsWhatFiltersKeep(t *testing.T) {
	s := newScene(t, 3)
	s.filter("others", func(in *schedule.Input, keep []bool) {
		for i := range keep {
			keep[i] = in.Candidates().At(i).ID().Slot != 1
		}
	})
	s.guarded()
	if out := s.run(); !out.Full {
		t.Fatalf("outcome %+v, want one for want of room", out)
	}
	var places []uint32
	for _, id := range s.scheduler.Lacking().All() {
		places = append(places, id.Slot)
	}
	if len(places) != 2 || places[0] != 0 || places[1] != 2 {
		t.Errorf("endpoints %v lack room, want 0 and 2", places)
	}
}

// An endpoint that filters drop is no place to wait for, and one that they keep is, however many others have room.
func TestWaitIsForWhatFiltersKeep(t *testing.T) {
	for name, c := range map[string]struct {
		room []int
		keep int // the place that the filter keeps; -1 = none
		full bool
	}{
		"room elsewhere":     {[]int{0, 1}, 2, true},
		"room nowhere":       {nil, 2, true},
		"none is kept":       {[]int{0, 1}, -1, false},
		"none is kept, full": {nil, -1, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 3)
			s.filter("only", func(in *schedule.Input, keep []bool) {
				for i := range keep {
					keep[i] = int(in.Candidates().At(i).ID().Slot) == c.keep
				}
			})
			s.guarded(c.room...)
			out := s.run()
			if out.Full != c.full || out.Reason == messages.NoReason {
				t.Errorf("full %t, want %t; %v %s", out.Full, c.full, out.Reason, out.Detail)
			}
			if want := messages.NoEndpoints; !c.full && out.Reason != want {
				t.Errorf("reason %v, want %v", out.Reason, want)
			}
		})
	}
}

func TestEmptyPoolIsWaitedForBehindAGate(t *testing.T) {
	s := newScene(t, 0)
	if out := s.run(); out.Full {
		t.Error("without a gate a request is to wait for endpoints")
	}
	s.guarded()
	if out := s.run(); !out.Full || out.Reason != messages.NoEndpoints {
		t.Errorf("full %t, %v; want to wait", out.Full, out.Reason)
	}
	if n := s.scheduler.Lacking().Len(); n != 0 {
		t.Errorf("%d endpoints of an empty pool lack room", n)
	}
}

// A detector that only knows the whole pool makes it full as a whole.
func TestDetectorOfTheWholePoolIsAGate(t *testing.T) {
	s := newScene(t, 2)
	full := .9
	s.planned().HaveWait(detectFunc(func(*schedule.Input) float64 { return full }), schedule.Step{Name: "full"})
	s.ranked(s.run(), 0, 1)
	full = 1
	if out := s.run(); !out.Full {
		t.Error("it is not full")
	}
}

// What an earlier request found does not count for one that no profile ran for.
func TestWantOfRoomIsThatOfOneRequest(t *testing.T) {
	s := newScene(t, 2)
	s.guarded()
	if out := s.run(); !out.Full {
		t.Fatal("it is not full")
	}
	s.handler, s.plan = nowhere{}, nil
	s.guarded()
	if out := s.run(); out.Full || out.Reason != messages.Internal {
		t.Errorf("full %t, %v; want a fault of the handler", out.Full, out.Reason)
	}
}

// nowhere names a profile that is not there.
type nowhere struct{ once }

func (nowhere) Next(*schedule.Course) schedule.Run { return schedule.Run{Profile: 9} }

// A run that could be left out is waited for, too: without its stage the request would be all work of one endpoint.
func TestOptionalRunWaitsForRoom(t *testing.T) {
	s := newScene(t, 2)
	s.profiles = append(s.profiles, schedule.Profile{Name: "second", Picker: picker("best", byTotal)})
	s.handler = optionalFirst{}
	g := s.guarded()
	if out := s.run(); !out.Full || g.asked != 1 {
		t.Errorf("full %t after %d runs, want to wait after the first", out.Full, g.asked)
	}
	g.room[0] = true
	s.ranked(s.run(), 0)
}

// optionalFirst runs two profiles, of which the second serves.
type optionalFirst struct{}

func (optionalFirst) Next(c *schedule.Course) schedule.Run {
	if n := c.Results().Len(); n < 2 {
		return schedule.Run{Profile: n, Optional: n == 0}
	}
	return schedule.Run{Profile: -1}
}

func (optionalFirst) Primary(*schedule.Course) int { return 1 }

// Health and room of endpoints that filters drop are of no matter.
func TestFiltersDecideWhoseRoomIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		room []int // of 0, which is healthy, and 1, which is degraded
		keep int   // that the filter keeps
		full bool
	}{
		"the healthy one is another's, and full":  {[]int{1}, 1, false},
		"the healthy one is another's, with room": {[]int{0, 1}, 1, false},
		"the healthy one is kept, and full":       {[]int{1}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 2)
			s.degrade(1, messages.Overload, time.Hour)
			s.filter("only", only(c.keep))
			s.guarded(c.room...)
			out := s.run()
			if out.Full != c.full {
				t.Fatalf("full %v, want %v; %v %s", out.Full, c.full, out.Reason, out.Detail)
			}
			if !c.full && int(out.Ranked[0].ID.Slot) != c.keep {
				t.Errorf("ranked %v first, want %d", out.Ranked[0].ID, c.keep)
			}
		})
	}
}

// An ejected or degraded endpoint is no room to go to while others are there, whose room is waited for. One that is due
// for a probe needs no room, and if all are outliers the gate says where there is room.
func TestOutliersHaveNoRoom(t *testing.T) {
	for name, c := range map[string]struct {
		room           []int // of 0, which is healthy, 1, which is ejected, and 2, which is degraded
		due, unhealthy bool
		full           bool
		want           int // ranked first
	}{
		"only outliers have room":         {room: []int{1, 2}, full: true},
		"the healthy one has room":        {room: []int{0, 1}, want: 0},
		"one is due for a probe":          {room: []int{0}, due: true, want: 1},
		"one is due, and none has room":   {due: true, full: true},
		"all are outliers, one has room":  {room: []int{1}, unhealthy: true, want: 1},
		"all are outliers, none has room": {unhealthy: true, full: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 3)
			after := time.Hour
			if c.due {
				after = 0
			}
			s.eject(1, after)
			s.degrade(2, messages.Overload, time.Hour)
			if c.unhealthy {
				s.degrade(0, messages.Overload, time.Hour)
			}
			s.guarded(c.room...)
			out := s.run()
			if out.Full != c.full {
				t.Fatalf("full %v, want %v; %v %s", out.Full, c.full, out.Reason, out.Detail)
			}
			if c.full {
				return
			}
			if got := int(out.Ranked[0].ID.Slot); got != c.want || out.Probe != c.due {
				t.Errorf("ranked %d first, probe %v; want %d, %v", got, out.Probe, c.want, c.due)
			}
		})
	}
}

// Where nothing keeps requests from endpoints, what they reach is known without a run.
func TestReachOfAllNeedsNoRun(t *testing.T) {
	s, scored := newScene(t, 3), 0
	s.scorer("counts", 1, nil, func(*schedule.Input, []float32) { scored++ })
	s.guarded(0)
	reach := func() uint64 {
		name, refused := s.scheduler.Reach(s.planned(), &s.req, nil, s.snap, now)
		if refused.Reason != messages.NoReason {
			t.Errorf("a request is refused: %+v", refused)
		}
		return name
	}
	if all := reach(); scored > 0 || reach() != all {
		t.Errorf("scored %d times, want 0, and one name", scored)
	}
	s.filter("none", func(*schedule.Input, []bool) {})
	if reach(); scored != 1 {
		t.Errorf("scored %d times with a filter, want once", scored)
	}
}

// Requests for which filters keep the same endpoints have one name, whatever room there is.
func TestReachIsWhatFiltersKeep(t *testing.T) {
	s := newScene(t, 3)
	s.filter("named", func(in *schedule.Input, keep []bool) {
		for i := range keep {
			keep[i] = in.Request().Model() != "m" || in.Candidates().At(i).ID().Slot != 1
		}
	})
	gate := s.guarded(0)
	reach := func(model string) uint64 {
		s.req.Model = model
		name, refused := s.scheduler.Reach(s.planned(), &s.req, nil, s.snap, now)
		if refused.Reason != messages.NoReason {
			t.Errorf("a request for %s is refused: %+v", model, refused)
		}
		return name
	}
	some, all := reach("m"), reach("n")
	gate.room = map[int]bool{}
	if some == all || reach("m") != some || reach("o") != all {
		t.Errorf("reaches %x and %x, then %x and %x; want two names", some, all, reach("m"), reach("o"))
	}
	if gate.asked > 0 {
		t.Errorf("the gate was asked %d times", gate.asked)
	}
}
