package schedule_test

import (
	"testing"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// byPriority has ceilings by priority.
type byPriority map[int]float64

func (c byPriority) Of(priority int) float64 { return c[priority] }

// half is a gate of a pool of which one half is in use. It notes the ceilings that it is shown.
type half struct{ seen []float64 }

func (*half) Saturation(*schedule.Input) float64 { return .5 }
func (*half) Bounds(ceiling float64) endpoints.Room {
	return endpoints.Room{Requests: int(10 * ceiling)}
}
func (h *half) Room(in *schedule.Input, keep []bool) {
	h.seen = append(h.seen, in.Ceiling())
	for i := range keep {
		keep[i] = in.Ceiling() > .5
	}
}

func TestGateIsShownTheCeilingOfTheRequest(t *testing.T) {
	s := newScene(t, 2)
	s.tools.Ceilings = byPriority{1: .9, 0: .4}
	s.scheduler = schedule.NewScheduler(s.tools)
	g := &half{}
	s.planned().HaveWait(g, schedule.Step{Name: "half"})
	s.req.Priority = 1
	out := s.run()
	s.ranked(out, 0, 1)
	if out.Ceiling != .9 || s.plan.Bounds(out.Ceiling).Requests != 9 {
		t.Errorf("ceiling %v, want 0.9", out.Ceiling)
	}
	s.req.Priority = 0
	if out := s.run(); !out.Full || out.Ceiling != .4 {
		t.Errorf("full %t, ceiling %v; a half-used pool has room for a ceiling of 0.4", out.Full, out.Ceiling)
	}
	if len(g.seen) != 2 || g.seen[0] != .9 || g.seen[1] != .4 {
		t.Errorf("it was shown %v", g.seen)
	}
}

// A detector that only knows the whole pool has room as far as the ceiling goes.
func TestCeilingOfTheWholePool(t *testing.T) {
	s := newScene(t, 2)
	s.tools.Ceilings = byPriority{1: .6, 0: .5}
	s.scheduler = schedule.NewScheduler(s.tools)
	s.planned().HaveWait(detectFunc(func(*schedule.Input) float64 { return .5 }), schedule.Step{Name: "full"})
	s.req.Priority = 1
	s.ranked(s.run(), 0, 1)
	s.req.Priority = 0
	if out := s.run(); !out.Full {
		t.Error("it has room up to its ceiling, and at it")
	}
}

// Without a gate there are no ceilings: a detector that is a filter of a profile keeps to its own limits.
func TestNoCeilingWithoutAGate(t *testing.T) {
	s := newScene(t, 2)
	s.tools.Ceilings = byPriority{0: .1}
	s.scheduler = schedule.NewScheduler(s.tools)
	s.planned().HaveWait(&half{}, schedule.Step{Name: "half"})
	s.run()
	s.plan = nil
	s.filter("looks", func(in *schedule.Input, _ []bool) {
		if in.Ceiling() != 1 {
			t.Errorf("ceiling %v, want 1", in.Ceiling())
		}
	})
	s.ranked(s.run(), 0, 1)
}

func TestOutcomeTellsSaturationIfItIsAsked(t *testing.T) {
	s := newScene(t, 2)
	s.planned().TellSaturation()
	if s.plan.TellsSaturation() {
		t.Error("a plan without a gate tells how full it finds the endpoints")
	}
	s.ranked(s.run(), 0, 1)
	s.plan = nil
	s.planned().HaveWait(&half{}, schedule.Step{Name: "half", Meter: 3})
	if out := s.run(); out.Saturation != 0 || s.counts.ran[3] != 1 {
		t.Errorf("saturation %v, the gate ran %d times; nobody asks", out.Saturation, s.counts.ran[3])
	}
	s.plan.TellSaturation()
	if out := s.run(); out.Saturation != .5 || s.counts.ran[3] != 3 {
		t.Errorf("saturation %v, the gate ran %d times; want 0.5 and twice more", out.Saturation, s.counts.ran[3])
	}
	s.tools.Ceilings = byPriority{0: .1}
	s.scheduler = schedule.NewScheduler(s.tools)
	if out := s.run(); !out.Full || out.Saturation != .5 || out.Reason != messages.NoCapacity {
		t.Errorf("%v, saturation %v of a request that has to wait, want 0.5", out.Reason, out.Saturation)
	}
}
