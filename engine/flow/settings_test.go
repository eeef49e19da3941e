package flow_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/displacements"
	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/orderings"
	"github.com/signalbox-epp/signalbox/engine/queues"
)

func builtIn() flow.Policies {
	return flow.Policies{
		Ordering: new(orderings.FCFS), Queue: new(queues.ListQueue), Fairness: new(fairness.GlobalStrict),
		Displacement: new(displacements.LongestFlow),
	}
}

// What the client says can only shorten a wait, and no wait is longer than a day.
func TestPatience(t *testing.T) {
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	s := flow.Settings{
		Bands:    map[int]flow.BandSettings{1: {TTL: time.Minute}, 2: {TTL: 200 * year}},
		Default:  flow.BandSettings{TTL: 5 * time.Second},
		Negative: flow.BandSettings{TTL: time.Second}, Without: 10 * time.Second,
	}
	for _, c := range []struct {
		priority            int
		told, turn, without time.Duration
	}{
		{0, 0, 5 * time.Second, 10 * time.Second},
		{0, time.Hour, 5 * time.Second, 10 * time.Second},
		{0, 7 * time.Second, 5 * time.Second, 7 * time.Second},
		{0, 1, 1, 1},
		{1, 0, time.Minute, 10 * time.Second},
		{-7, 0, time.Second, 10 * time.Second},
		{2, 0, day, 10 * time.Second},
		{2, 100 * year, day, 10 * time.Second},
	} {
		if turn, without := s.Patience(c.priority, c.told); turn != c.turn || without != c.without {
			t.Errorf("priority %d, told %v: %v and %v, want %v and %v", c.priority, c.told, turn, without, c.turn,
				c.without)
		}
	}
	s.Without = 0
	if _, without := s.Patience(0, 0); without != day {
		t.Errorf("a wait without an end takes %v, want a day", without)
	}
}
