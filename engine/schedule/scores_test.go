package schedule_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// What a filter dropped has no score, nor has an outlier that comes last. The candidates have theirs whether they are
// picked or not, by their own addresses.
func TestScoresAreThoseOfTheCandidates(t *testing.T) {
	s := newPair(t, 5, pair{finish: func(_ *schedule.Course, f *schedule.Final) {
		f.Destinations = f.Destinations[:1]
		f.Destinations[0].Sent = "10.9.9.9:8000"
	}})
	s.filter("not the first", only(1, 2, 3, 4))
	s.scorer("load", 2, nil, fixed(.25, 1, 0))
	for range 2 { // the sum is beyond what a float32 can hold
		s.scorer("much", math.MaxFloat32, nil, fixed(0, 1, 0))
	}
	s.degrade(2, messages.Overload, time.Second)
	out := s.run()
	s.ranked(out, 3)
	got := s.scheduler.Scores(&out.Decision)
	want := []messages.EndpointScore{
		{Address: address(1), Score: .5}, {Address: address(3), Score: math.MaxFloat32}, {Address: address(4)},
	}
	if !slices.Equal(got.Append(nil), want) {
		t.Errorf("scores %v, want %v", got, want)
	}
}
