package schedule_test

import (
	"reflect"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/pickers"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// shadowed returns a scene of a live profile that picks by its scores, and of a shadow profile that picks by others.
func shadowed(t *testing.T, live, shadow []float32) *scene {
	s := newScene(t, len(live))
	s.scorer("live", 1, nil, fixed(live...))
	s.profiles = append([]schedule.Profile{{
		Name: "tried", Shadow: true, Picker: picker("best", byTotal),
		Scorers: []schedule.ScorerStep{{Step: schedule.Step{Name: "shadow"}, Scorer: fixed(shadow...), Weight: 1}},
	}}, s.profiles...)
	return s
}

// runWithShadows schedules the request, and runs the shadow profiles.
func (s *scene) runWithShadows() schedule.Outcome {
	out := s.run()
	s.scheduler.Shadow(s.planned(), &s.req, &out.Decision, now)
	return out
}

func TestShadowsAreComparedWithThePick(t *testing.T) {
	for name, c := range map[string]struct {
		shadow []float32
		pick   uint32
		want   string
	}{
		"agrees":    {[]float32{.1, .9}, 1, "tried true"},
		"disagrees": {[]float32{.9, .1}, 0, "tried false"},
	} {
		t.Run(name, func(t *testing.T) {
			s := shadowed(t, []float32{.2, .8}, c.shadow)
			out := s.runWithShadows()
			s.ranked(out, 1, 0)
			d := out.Decision
			run := d.Profiles.At(1)
			if d.Primary != 0 || d.Profiles.Len() != 2 || !run.Shadow || run.Profile != "tried" ||
				run.Ranked.At(0) != c.pick {
				t.Errorf("primary %d of %d; shadow %t %q picked %d", d.Primary, d.Profiles.Len(), run.Shadow,
					run.Profile,
					run.Ranked.At(0))
			}
			if !reflect.DeepEqual(s.counts.shadows, []string{c.want}) {
				t.Errorf("counted %q, want %q", s.counts.shadows, c.want)
			}
		})
	}
}

// A plugin that breaks a shadow run fails that run alone, and the next ones go on.
func TestShadowThatFailsHarmsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(*schedule.Profile)
		want   string
	}{
		"panics": {func(p *schedule.Profile) {
			p.Scorers[0].Scorer = scoreFunc(func(*schedule.Input, []float32) { panic("plugin") })
		}, "internal: panic: plugin"},
		"leaves nothing": {func(p *schedule.Profile) {
			p.Filters = []schedule.FilterStep{{Step: schedule.Step{Name: "f"}, Filter: only()}}
		}, "rejected-no-endpoints: filter f left no endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			s := shadowed(t, []float32{.2, .8}, []float32{.2, .8})
			c.breaks(&s.profiles[0])
			s.profiles = append(s.profiles, schedule.Profile{Name: "next", Shadow: true,
				Picker: picker("best", byTotal)})
			out := s.runWithShadows()
			s.ranked(out, 1, 0)
			if run := out.Decision.Profiles.At(1); run.Failed != c.want || run.Ranked.Len() != 0 {
				t.Errorf("failed %q, want %q", run.Failed, c.want)
			}
			if out.Decision.Profiles.At(2).Ranked.Len() != 2 || len(s.counts.failed) != 1 ||
				!reflect.DeepEqual(s.counts.shadows, []string{"next false"}) {
				t.Errorf("the next shadow ranked %d; counted %q and %q", out.Decision.Profiles.At(2).Ranked.Len(),
					s.counts.failed, s.counts.shadows)
			}
			s.ranked(s.runWithShadows(), 1, 0)
		})
	}
}

// Shadows draw random numbers of their own, and see what the pick saw, also after it became load.
func TestShadowsChangeNothing(t *testing.T) {
	play := func(with bool) (picks []uint32) {
		s := newScene(t, 5)
		s.profiles[0].Picker.Picker = &pickers.Random{}
		s.profiles = append(s.profiles, schedule.Profile{Name: "tried", Shadow: true,
			Picker: schedule.PickerStep{Picker: &pickers.Random{}}})
		for range 50 {
			out := s.run()
			picks = append(picks, out.Ranked[0].ID.Slot)
			if with {
				s.scheduler.Shadow(s.planned(), &s.req, &out.Decision, now)
			}
		}
		return picks
	}
	if with, without := play(true), play(false); !reflect.DeepEqual(with, without) {
		t.Errorf("picks with shadows %v, without %v", with, without)
	}
}

func TestHandlersDoNotKnowShadows(t *testing.T) {
	s := shadowed(t, []float32{.2, .8}, []float32{.2, .8})
	s.handler = handler{func(n int) int { return n }, 0}
	s.failed(s.run(), messages.Internal, "the profile handler named profile 1 of 1")
}

func TestShadowsReadWhatTheyDeclare(t *testing.T) {
	s := shadowed(t, []float32{.2, .8}, []float32{.2, .8})
	queue := s.number(attributes.QueuedRequests)
	var saw []float64
	s.profiles[0].Scorers[0].Reads = s.reads(attributes.QueuedRequests)
	s.profiles[0].Scorers[0].Scorer = scoreFunc(func(in *schedule.Input, _ []float32) {
		saw = append(saw, in.Numbers(queue).At(0), in.Numbers(queue).At(1))
	})
	s.runWithShadows()
	if !reflect.DeepEqual(saw, []float64{0, 1}) {
		t.Errorf("saw queues %v, want 0 and 1", saw)
	}
}
