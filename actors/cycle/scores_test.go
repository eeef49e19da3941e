package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestPickHasScoresIfTheyAreAskedFor(t *testing.T) {
	for scores, want := range map[bool]messages.List[messages.EndpointScore]{
		false: {},
		true: messages.ListOf(messages.EndpointScore{Address: addresses[first], Score: 3},
			messages.EndpointScore{Address: addresses[second], Score: 3}),
	} {
		s := newScene(t)
		s.scores = scores
		s.plan = schedule.NewPlan([]schedule.Profile{{
			Name: "default", Scorers: []schedule.ScorerStep{{Scorer: ones{}, Weight: 3}},
			Picker: schedule.PickerStep{Step: schedule.Step{Name: "all"}, Picker: inOrder{}},
		}}, nil, once{}, 0)
		s.play()
		s.ready(24 * time.Hour)
		s.arrive()
		s.stream.Got(messages.PickMade{Destinations: messages.ListOf(addresses[first], addresses[second]),
			Scores: want})
	}
}

type ones struct{}

func (ones) Score(_ *schedule.Input, scores []float32) {
	for i := range scores {
		scores[i] = 1
	}
}
