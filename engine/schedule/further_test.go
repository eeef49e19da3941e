package schedule_test

import (
	"math"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// power adds a source that selects endpoints, and an attribute of it.
func (s *scene) power(labels map[string]string) attributes.Attribute {
	watts := attributes.Attribute{Name: "example.com/watts"}
	s.binding.EmitFrom(&attributes.Source{Name: "gpu", Select: labels}, "power", watts)
	return watts
}

// page publishes what a further source said of an endpoint, so long ago.
func (s *scene) page(place int, watts float64, age time.Duration) {
	to := endpoints.SampleWriter{Endpoint: s.snap.Endpoints[place]}
	to.PublishPages(to.Pages().With(endpoints.Page{
		Source: "gpu", At: now.Add(-age), Interval: time.Second,
		Values: endpoints.Values{Numbers: []messages.Extracted{
			{Attribute: "example.com/watts", Producer: "power", Value: watts},
		}},
	}))
}

// byNumber scores by an attribute, unknown as 0.
func byNumber(slot attributes.NumberSlot) scoreFunc {
	return func(in *schedule.Input, scores []float32) {
		for i := range scores {
			if x := in.Numbers(slot).At(i); x == x {
				scores[i] = float32(x)
			}
		}
	}
}

// Freshness is that of the source which the attribute comes from: an old sample is no reason against an endpoint whose
// watts are new, nor the other way round.
func TestFreshnessIsThatOfTheSource(t *testing.T) {
	s := newScene(t, 3)
	watts := s.power(nil)
	s.age(1, time.Minute)
	s.page(0, 0.2, time.Minute)
	s.page(1, 0.5, 0)
	s.page(2, 0.1, 0)
	s.scorer("power", 1, s.reads(watts), byNumber(s.number(watts)))
	out := s.run()
	s.ranked(out, 1, 2)
	if run := out.Decision.Profiles.At(0); run.Ages[0] != 0 || run.Ages[1] != 0 {
		t.Errorf("ages %v, want those of the watts", run.Ages)
	}
	to := endpoints.SampleWriter{Endpoint: s.snap.Endpoints[1]}
	failing := *to.Pages().Of("gpu")
	failing.Failing = true
	to.PublishPages(to.Pages().With(failing))
	s.ranked(s.run(), 2)

	s.scorer("queue", 1, s.reads(attributes.QueuedRequests), fixed(0, 0, 0))
	for i := range 3 {
		s.page(i, 0.5, time.Hour)
	}
	out = s.run() // the watts are all stale, two samples are not
	if s.ranked(out, 0, 2); !out.Decision.Stale || s.counts.stale != 1 {
		t.Errorf("decision %+v, all stale told %d times, want 1", out.Decision, s.counts.stale)
	}
	run := out.Decision.Profiles.At(0)
	if power, queue := run.Scorers.At(0).Scores, run.Scorers.At(1).Scores; power.At(0) != 1 || queue.At(0) != 0 {
		t.Errorf("scores %v and %v, want the stand-in for the watts alone", power, queue)
	}
	if run.Ages[0] != time.Hour {
		t.Errorf("age %v, want that of the older source", run.Ages[0])
	}
}

// The failed fetch of a source says nothing to a plugin that reads another one.
func TestFailedFetchIsOfItsSource(t *testing.T) {
	s := newScene(t, 2)
	watts := s.power(nil)
	s.page(0, 0.5, 0)
	s.page(1, 0.9, 0)
	to := endpoints.SampleWriter{Endpoint: s.snap.Endpoints[1]}
	failing := *to.Pages().Of("gpu")
	failing.Failing = true
	to.PublishPages(to.Pages().With(failing))
	seen := 0
	s.filter("short queue", func(in *schedule.Input, _ []bool) { seen = in.Candidates().Len() })
	s.profiles[0].Filters[0].Reads = s.reads(attributes.QueuedRequests)
	s.scorer("power", 1, s.reads(watts), byNumber(s.number(watts)))
	s.ranked(s.run(), 0)
	if seen != 2 {
		t.Errorf("the filter, which reads samples, saw %d endpoints, want 2", seen)
	}
}

// The age of a pick is that of what its profile reads, whatever other profiles read.
func TestAgeIsOfWhatTheProfileReads(t *testing.T) {
	s := newPair(t, 1, pair{})
	watts := s.power(nil)
	s.page(0, 0.5, time.Second)
	s.scorer("queue", 1, s.reads(attributes.QueuedRequests), fixed(1))
	s.profiles[1].Scorers = []schedule.ScorerStep{{
		Step: schedule.Step{Reads: s.reads(watts)}, Scorer: fixed(1), Weight: 1,
	}}
	runs := s.run().Decision.Profiles
	if queue, power := runs.At(0).Ages[0], runs.At(1).Ages[0]; queue != 0 || power != time.Second {
		t.Errorf("ages %v and %v, want 0 and 1s", queue, power)
	}
}

// Of an endpoint that a source does not select, the attribute is unknown, and never stale.
func TestEndpointsThatASourceDoesNotSelect(t *testing.T) {
	s := newScene(t, 3)
	watts := s.power(map[string]string{"gpu": "yes"})
	for i := range 2 {
		s.snap.Endpoints[i].Labels["gpu"] = "yes"
	}
	s.page(0, 0.5, time.Minute)
	s.page(1, 0.5, 0)
	s.page(2, 0.5, 0) // as an earlier configuration left it
	slot := s.number(watts)
	var saw []float64
	s.scorer("power", 1, s.reads(watts), func(in *schedule.Input, scores []float32) {
		for i := range scores {
			saw = append(saw, in.Numbers(slot).At(i))
		}
		byNumber(slot)(in, scores)
	})
	s.ranked(s.run(), 1, 2)
	if len(saw) != 2 || saw[0] != 0.5 || !math.IsNaN(saw[1]) {
		t.Errorf("saw %v, want 0.5 and unknown", saw)
	}
}

// A selection of the metrics page holds for what is built in, also of an endpoint that has a sample.
func TestEndpointsThatTheMetricsPageDoesNotSelect(t *testing.T) {
	s := newScene(t, 2)
	s.binding = attributes.Binding{}
	s.binding.EmitFrom(&attributes.Source{Select: map[string]string{"app": "vllm"}}, "core", attributes.BuiltIn()...)
	s.snap.Endpoints[1].Labels["app"] = "vllm"
	endpoints.SampleWriter{Endpoint: s.snap.Endpoints[0]}.ScrapeFailed()
	var saw schedule.Seen
	s.scorer("queue", 1, s.reads(attributes.QueuedRequests, attributes.MaxLoRAs),
		func(in *schedule.Input, scores []float32) { saw = in.Seen(); scores[1] = 1 })
	s.ranked(s.run(), 1, 0)
	if len(saw.Fresh) != 2 || !saw.Fresh[0] || !math.IsNaN(saw.Numbers[0][0]) || saw.Numbers[0][1] != 1 {
		t.Errorf("saw %+v, want the queue of the first unknown and fresh", saw)
	}
}
