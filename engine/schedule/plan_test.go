package schedule_test

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// What a page does not have is unknown, and not 0; an empty list is known.
func TestUnknownIsNotZero(t *testing.T) {
	s := newScene(t, 3)
	told := func(load float64, slots int, active ...string) endpointstest.Told {
		return endpointstest.Told{
			attributes.WaitingRequests: load, attributes.RunningRequests: load, attributes.KVCacheUsage: load,
			attributes.MaxLoRAs: slots, attributes.ActiveLoRAs: active, attributes.WaitingLoRAs: active,
		}
	}
	for i, page := range []endpointstest.Told{told(0, 0), {}, told(3, 2, "a")} {
		sample := &endpoints.Sample{At: now, Interval: time.Second, Values: page.Values()}
		endpoints.SampleWriter{Endpoint: s.snap.Endpoints[i]}.Publish(sample)
	}
	endpoints.LoadWriter{Endpoint: s.snap.Endpoints[1]}.Add(endpoints.Work{Prompt: 1}, time.Time{})
	reads := s.reads(attributes.QueuedRequests, attributes.RunningRequests, attributes.KVCacheUsage,
		attributes.MaxLoRAs, attributes.ActiveLoRAs, attributes.WaitingLoRAs)
	active, counts := s.binding.Reader("test").Names(attributes.ActiveLoRAs.Name, ""), []int{}
	var saw schedule.Seen
	s.scorer("look", 1, reads, func(in *schedule.Input, _ []float32) {
		saw = in.Seen()
		for i := range in.Candidates().Len() {
			counts = append(counts, in.Names(active).Count(i))
		}
		if !in.Names(active).Contains(2, "a") || in.Names(active).Contains(1, "a") {
			t.Error("the adapter is not where it is")
		}
	})
	s.run()
	for i, row := range saw.Numbers {
		for j, x := range row {
			if unknown := j == 1; math.IsNaN(x) != unknown {
				t.Errorf("attribute %d of endpoint %d is %v", i, j, x)
			}
		}
	}
	if !reflect.DeepEqual(counts, []int{0, -1, 1}) {
		t.Errorf("numbers of adapters %v, want 0, unknown, 1", counts)
	}
}

// Each plugin sees the columns of the candidates that the filters before have left. The next request sees all again.
func TestColumnsFollowTheCandidates(t *testing.T) {
	s := newScene(t, 5)
	queued := s.number(attributes.QueuedRequests)
	var saw [][]float64
	look := func(in *schedule.Input, _ []bool) {
		var column []float64
		for i := range in.Numbers(queued).Len() {
			column = append(column, in.Numbers(queued).At(i))
		}
		saw = append(saw, column)
	}
	s.filter("first", look)
	s.filter("some", only(1, 3, 4))
	s.filter("second", look)
	s.filter("fewer", only(3, 4))
	s.scorer("last", 1, s.reads(attributes.QueuedRequests), func(in *schedule.Input, _ []float32) { look(in, nil) })
	s.run()
	want := [][]float64{{0, 1, 2, 3, 4}, {1, 3, 4}, {3, 4}}
	if !reflect.DeepEqual(saw, want) {
		t.Errorf("saw %v, want %v", saw, want)
	}
	saw = nil
	s.run()
	if !reflect.DeepEqual(saw, want) {
		t.Errorf("the next request saw %v, want %v", saw, want)
	}
}

// The record has what the plugins read of the pick and of the runner-up, each once, and the ages of their samples.
func TestDecisionKeepsWhatWasRead(t *testing.T) {
	s := newScene(t, 3) // with queues of 0, 1 and 2
	for i, d := range []time.Duration{0, 400 * time.Millisecond, 800 * time.Millisecond} {
		sample := *s.snap.Endpoints[i].Sample()
		sample.At, sample.Values = now.Add(-d), endpointstest.Load(i, 0, -1)
		endpoints.SampleWriter{Endpoint: s.snap.Endpoints[i]}.Publish(&sample)
	}
	s.filter("look", func(*schedule.Input, []bool) {})
	s.profiles[0].Filters[0].Reads = s.reads(attributes.QueuedRequests)
	reads := s.reads(attributes.QueuedRequests, attributes.KVCacheUsage)
	s.scorer("longest", 1, reads, fixed(0, 0.5, 1))
	run := s.run().Decision.Profiles.At(0)
	if got := run.Reads.Append(nil); !reflect.DeepEqual(got, []string{"queued-requests", "kv-cache-usage"}) {
		t.Errorf("reads %v", got)
	}
	v := run.Values.Append(nil)
	if len(v) != 4 || v[0] != 2 || v[1] == v[1] || v[2] != 1 || v[3] == v[3] {
		t.Errorf("values %v, want queues 2 and 1, and unknown caches", v)
	}
	if run.Ages != [2]time.Duration{800 * time.Millisecond, 400 * time.Millisecond} {
		t.Errorf("ages %v", run.Ages)
	}
	s.eject(0, 0) // due for a probe: it comes first, and the best is the runner-up
	if run = s.run().Decision.Profiles.At(0); run.Ranked.At(0) != 0 || run.Values.At(0) != 0 || run.Values.At(2) != 2 ||
		run.Ages != [2]time.Duration{0, 800 * time.Millisecond} {
		t.Errorf("with a probe %+v", run)
	}
	s.snap = endpoints.NewSnapshot(6, s.snap.Endpoints[2:])
	if run = s.run().Decision.Profiles.At(0); run.Values.Len() != 2 || run.Ages[1] >= 0 {
		t.Errorf("of a pick alone: %d values, ages %v", run.Values.Len(), run.Ages)
	}
}
