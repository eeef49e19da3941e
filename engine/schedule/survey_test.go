package schedule_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// reading is a gate that reads samples: how full endpoints are is the mean of their queues, those whose queue is below
// 2 have room, and those whose sample is old are unknown.
type reading struct {
	queue attributes.NumberSlot
	room  endpoints.Room
}

func (r *reading) Saturation(in *schedule.Input) float64 {
	sum := 0.0
	for i := range in.Candidates().Len() {
		sum += in.Numbers(r.queue).At(i)
	}
	return sum / float64(in.Candidates().Len())
}

func (r *reading) Room(in *schedule.Input, keep []bool) {
	for i := range keep {
		keep[i] = in.Numbers(r.queue).At(i) < 2
	}
}

func (r *reading) Bounds(float64) endpoints.Room { return r.room }

func (r *reading) Unknown(in *schedule.Input) (n int) {
	for i := range in.Candidates().Len() {
		if in.Outdated(r.queue, i, time.Second) {
			n++
		}
	}
	return n
}

// surveyed returns a survey of four endpoints with the queues 0 to 3, of which the last one's sample is old.
func surveyed(t *testing.T, detect func(*schedule.Plan, *reading)) (*scene, *schedule.Survey) {
	t.Helper()
	s := newScene(t, 4)
	endpoints.SampleWriter{Endpoint: s.snap.Endpoints[3]}.Publish(&endpoints.Sample{
		At: now.Add(-time.Hour), Interval: time.Second, Values: endpointstest.Load(3, 0, 0),
	})
	d := &reading{queue: s.number(attributes.QueuedRequests)}
	detect(s.planned(), d)
	return s, schedule.NewSurvey(s.plan, s.snap, s.tools.Clock, now)
}

func TestSurveySaysWhatTheDetectorDoes(t *testing.T) {
	step := schedule.Step{Name: "full", Type: "reading"}
	s, survey := surveyed(t, func(p *schedule.Plan, d *reading) { p.HaveWait(d, step) })
	first := filterFunc(func(_ *schedule.Input, keep []bool) { keep[2], keep[3] = false, false })
	none := filterFunc(func(_ *schedule.Input, keep []bool) { clear(keep) })
	for range 2 { // each question is about all endpoints, whatever was asked before
		for of, want := range map[*filterFunc]string{nil: "1.5 true", &first: "0.5 true", &none: "0 false"} {
			var by schedule.Filter
			if of != nil {
				by = *of
			}
			if full, known := survey.Saturation(by); fmt.Sprint(full, known) != want {
				t.Errorf("saturation %v, %t; want %s", full, known, want)
			}
		}
		if n, known := survey.Outdated(); n != 1 || !known {
			t.Errorf("%d are unknown, %t; want 1", n, known)
		}
		if room, want := survey.Room(), []bool{true, true, false, false}; !reflect.DeepEqual(room, want) {
			t.Errorf("room %v, want %v", room, want)
		}
	}
	if s.counts.ran[0] != 0 {
		t.Error("the detector's time was counted as a request's")
	}
	s.ranked(s.run(), 0, 1)
}

// Without a gate nothing has or lacks room, and what a detector says is known all the same.
func TestSurveyOfADetectorAlone(t *testing.T) {
	step := schedule.Step{Name: "full", Type: "reading"}
	_, survey := surveyed(t, func(p *schedule.Plan, d *reading) { p.Detect(detectFunc(d.Saturation), step) })
	full, known := survey.Saturation(nil)
	if n, reads := survey.Outdated(); full != 1.5 || !known || n != 0 || reads || survey.Room() != nil {
		t.Errorf("saturation %v, %t, unknown %d, %t, room %v; want 1.5 alone", full, known, n, reads, survey.Room())
	}
}

// A detector that knows the pool alone makes a gate too.
func TestSurveyOfAPoolsGate(t *testing.T) {
	_, survey := surveyed(t, func(p *schedule.Plan, d *reading) {
		p.HaveWait(struct{ schedule.SampleReader }{d}, schedule.Step{Name: "full"})
	})
	if n, known := survey.Outdated(); n != 1 || !known {
		t.Errorf("%d are unknown, %t; want 1", n, known)
	}
	if room, want := survey.Room(), []bool{false, false, false, false}; !reflect.DeepEqual(room, want) {
		t.Errorf("room %v, want %v: the pool is full", room, want)
	}
}

func TestThereIsNothingToSurvey(t *testing.T) {
	s := newScene(t, 2)
	if schedule.NewSurvey(s.planned(), s.snap, s.tools.Clock, now) != nil {
		t.Error("a survey without a detector")
	}
	s.guarded(0)
	if schedule.NewSurvey(s.plan, endpoints.NewSnapshot(6, nil), s.tools.Clock, now) != nil {
		t.Error("a survey without endpoints")
	}
}
