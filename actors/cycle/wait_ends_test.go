package cycle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// counted returns the number of observations, or the value, of the series of a family that has these label values.
func (s *scene) counted(family string, values ...string) float64 {
	s.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		s.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var has []string
			for _, l := range m.GetLabel() {
				has = append(has, l.GetValue())
			}
			missing := slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(has, v) })
			if f.GetName() == "llm_d_epp_flow_control_"+family && !missing {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// evicted has a request that waits be told so.
func evicted(why messages.Reason) func(*scene) {
	return func(s *scene) { s.cycle.Tell(messages.Evicted{Reason: why}) }
}

// Each way in which a wait ends has its outcome, in the record and in the metrics, with the wait's length.
func TestOutcomesOfWaits(t *testing.T) {
	const waited = 3 * time.Second
	line := func(t *testing.T) *scene {
		s, release := queuedUp(t)
		release()
		s.cycle.Advance(waited)
		return s
	}
	asked := func(t *testing.T) *scene { // capacity has not answered
		s := gated(t)
		release := s.fill()
		s.arrive()
		s.capacity.Got(s.lacks())
		release()
		s.cycle.Advance(waited)
		return s
	}
	for name, c := range map[string]struct {
		begin func(*testing.T) *scene
		end   func(*scene)
		why   messages.Reason
		want  messages.Outcome
	}{
		"displaced": {line, evicted(messages.Displaced), messages.Displaced, messages.OutcomeEvictedPriority},
		"made way": {line, evicted(messages.QueuePressure), messages.QueuePressure,
			messages.OutcomeEvictedQueuePressure},
		"capacity died": {line, evicted(messages.Internal), messages.Internal, messages.OutcomeEvictedOther},
		"client left": {line, func(s *scene) { s.cycle.Tell(messages.StreamGone{}) }, messages.ClientGone,
			messages.OutcomeEvictedContextCancelled},
		"client left early": {asked, func(s *scene) { s.cycle.Tell(messages.StreamGone{}) }, messages.ClientGone,
			messages.OutcomeEvictedContextCancelled},
		"we end": {line, func(s *scene) { s.cycle.Tell(messages.StreamGone{Answered: messages.ShuttingDown}) },
			messages.ShuttingDown, messages.OutcomeEvictedOther},
		"line is full": {asked, func(s *scene) { s.cycle.Tell(messages.Rejected{Reason: messages.NoCapacity}) },
			messages.NoCapacity, messages.OutcomeRejectedCapacity},
		"inbox is full": {asked, func(s *scene) { s.cycle.Tell(messages.Rejected{Reason: messages.Overloaded}) },
			messages.Overloaded, messages.OutcomeRejectedOther},
		"crash": {line, func(s *scene) { s.cycle.Crash() }, messages.Internal, messages.OutcomeEvictedOther},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.begin(t)
			in := s.counted("queue_size")
			c.end(s)
			r := s.over(c.why)
			if r.Wait.Outcome != c.want || r.QueueWait != waited {
				t.Errorf("%v after %v, want %v after %v", r.Wait.Outcome, r.QueueWait, c.want, waited)
			}
			how := c.want.String()
			total, took := s.counted("requests_total", how), s.counted("request_queue_duration_seconds", how)
			if total != 1 || took != 1 || s.counted("requests_total", "Dispatched") != 0 {
				t.Errorf("counted %v times, and its wait %v times, want once each as %s", total, took, how)
			}
			left := s.counted("queue_size") + s.counted("queue_bytes")
			if left != 0 || (in == 1) != (r.Wait.Ahead == 2) {
				t.Errorf("%v waited, %v are left on the gauges", in, left)
			}
		})
	}
}

// The time of a wait makes the difference between an empty pool and a full one.
func TestOutcomeOfATimeThatIsOver(t *testing.T) {
	s, release := queuedUp(t)
	release()
	s.cycle.Advance(turnLimit)
	s.waited(s.over(messages.TTLExpired), turnLimit, messages.Wait{
		Outcome: messages.OutcomeEvictedTTL, Cause: messages.NoRoom, Ahead: 2,
	})
	s = gated(t)
	endpoints.Publisher{Published: s.pool}.Publish(endpoints.NewSnapshot(4, nil), nil)
	s.arrive()
	s.cycle.Tell(messages.Queued{})
	s.cycle.Advance(turnLimit)
	s.stream.Told()
	if r := s.ended[0]; r.Wait != (messages.Wait{
		Outcome: messages.OutcomeEvictedNoEndpoints, Cause: messages.NoneInPool,
	}) {
		t.Errorf("record %+v, want EvictedNoEndpoints because the pool was empty", r.Wait)
	}
}

// A request that comes while others wait does not look for room.
func TestRequestThatFindsOthersWaiting(t *testing.T) {
	s := waiting(t)
	s.cycle.Advance(time.Millisecond)
	s.cycle.Tell(messages.Queued{Ahead: 5})
	if n, bytes := s.counted("queue_size", "m"), s.counted("queue_bytes", "m"); n != 1 || bytes != 100 {
		t.Errorf("%v requests of %v bytes wait, want 1 of 100", n, bytes)
	}
	if n := s.counted("request_enqueue_duration_seconds", "NotYetFinalized"); n != 1 {
		t.Errorf("%v requests were let into the line, want 1", n)
	}
	admin := runtimetest.NewProbe[messages.RecorderMsg](t)
	s.cycle.Advance(time.Second)
	s.cycle.Tell(messages.CycleQueried{Query: 1, Recorder: admin})
	running := admin.Told()[0].(messages.RecordsFound).Records.At(0)
	s.waited(running, time.Second+time.Millisecond, messages.Wait{
		Outcome: messages.OutcomeNotYetFinalized, Cause: messages.OthersWaited, Ahead: 5,
	})
	s.cycle.Tell(messages.Dispatched{Waited: 4 * time.Second})
	s.cycle.Tell(messages.StreamGone{})
	s.waited(s.over(messages.ClientGone), 4*time.Second, messages.Wait{
		Outcome: messages.OutcomeDispatched, Cause: messages.OthersWaited, Ahead: 5,
	})
	if n := s.counted("queue_size"); n != 0 {
		t.Errorf("%v requests wait, want none", n)
	}
}

// However often a turn fails, the record has room for what comes after.
func TestTurnsInVainTakeNoRoomInTheRecord(t *testing.T) {
	s, release := queuedUp(t)
	for range 50 {
		s.cycle.Tell(messages.Dispatched{})
	}
	release()
	s.cycle.Tell(messages.Dispatched{Waited: time.Second})
	s.cycle.Tell(messages.StreamGone{})
	r := s.ended[0]
	var names []string
	for _, e := range r.Events.All() {
		names = append(names, e.Name)
	}
	want := []string{
		"RequestArrived", "WaitRequested", "Queued", "AnswerDue", "Dispatched", "TurnFailed", "Dispatched",
		"PromptPlaced", "WaitEnded", "PickMade", "StreamGone", "PromptEnded",
	}
	if fmt.Sprint(names) != fmt.Sprint(want) || r.Dropped != 0 || r.Wait.Failed != 50 {
		t.Errorf("the record has %v and dropped %d, after %d turns in vain; want %v", names, r.Dropped, r.Wait.Failed,
			want)
	}
}
