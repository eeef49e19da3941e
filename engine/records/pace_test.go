package records_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/messages"
)

// A gap counts in the first bucket that reaches as far.
func TestPace(t *testing.T) {
	var got messages.Pace
	for _, gap := range []time.Duration{
		0, time.Millisecond, time.Millisecond + 1, 20 * time.Millisecond, 2 * time.Second, 2*time.Second + 1, time.Hour,
	} {
		records.AddPace(&got, gap)
	}
	want := messages.Pace{
		Events: [messages.PaceBuckets]uint32{0: 2, 1: 1, 3: 1, 14: 1, 15: 2},
		Sum:    time.Hour + 4*time.Second + 22*time.Millisecond + 2,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if n := testing.AllocsPerRun(100, func() { records.AddPace(&got, time.Second) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
