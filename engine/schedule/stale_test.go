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
	"github.com/signalbox-epp/signalbox/messages"
)

func (s *scene) age(place int, d time.Duration) {
	sample := &endpoints.Sample{At: now.Add(-d), Interval: time.Second}
	endpoints.SampleWriter{Endpoint: s.snap.Endpoints[place]}.Publish(sample)
}

func TestStaleCandidatesAreDroppedWhileAFreshOneIsLeft(t *testing.T) {
	s := newScene(t, 3)
	s.age(0, 5*time.Second+1)
	s.age(1, 5*time.Second)
	s.ranked(s.run(), 0, 1, 2) // no plugin reads a sample: freshness does not count
	s.scorer("queue", 1, s.reads(attributes.QueuedRequests), fixed(0.5, 1))
	out := s.run()
	s.ranked(out, 2, 1)
	if out.Decision.Stale || s.counts.stale != 0 || out.Decision.Profiles.At(0).Totals.At(0) != -1 {
		t.Errorf("decision %+v, all stale %d times", out.Decision, s.counts.stale)
	}
	s.filter("stale ones", only(0)) // filters run first, on all
	s.ranked(s.run(), 0)
}

// A filter that reads samples sees no stale one as long as a fresh one is left, and is passed over if all are stale.
func TestFilterThatReadsSamplesSeesFreshOnes(t *testing.T) {
	s := newScene(t, 3)
	s.age(0, time.Minute)
	queued := s.number(attributes.QueuedRequests)
	var saw []float64
	look := filterFunc(func(in *schedule.Input, keep []bool) {
		saw = nil
		for i := range keep {
			saw = append(saw, in.Numbers(queued).At(i))
			keep[i] = i == 0
		}
	})
	s.filter("short queue", look)
	s.profiles[0].Filters[0].Reads = s.reads(attributes.QueuedRequests)
	s.scorer("queue", 1, s.reads(attributes.QueuedRequests), fixed(1))
	out := s.run()
	s.ranked(out, 1)
	if !reflect.DeepEqual(saw, []float64{1, 2}) || s.counts.stale != 0 {
		t.Errorf("saw %v, want the queues of the fresh ones; all stale told %d times", saw, s.counts.stale)
	}
	if kept := out.Decision.Profiles.At(0).Filters.At(0).Kept.Append(nil); !reflect.DeepEqual(kept,
		[]bool{false, true, false}) {
		t.Errorf("kept %v, want the second alone", kept)
	}
	s.age(1, time.Minute)
	s.age(2, time.Minute)
	saw = nil
	out = s.run()
	if s.ranked(out, 0, 1, 2); saw != nil || !out.Decision.Stale || s.counts.stale != 1 {
		t.Errorf("all are stale: the filter saw %v, all stale told %d times, want 1", saw, s.counts.stale)
	}
}

// Once the page of a server cannot be read, its last sample says little: other endpoints are preferred until the page
// can be read again.
func TestFailedScrapePassesACandidateBy(t *testing.T) {
	s := newScene(t, 3)
	for i := range s.snap.Endpoints {
		s.age(i, time.Second)
	}
	endpoints.SampleWriter{Endpoint: s.snap.Endpoints[1]}.ScrapeFailed()
	s.ranked(s.run(), 0, 1, 2) // no plugin reads a sample
	s.scorer("queue", 1, s.reads(attributes.QueuedRequests), fixed(0.2, 0.5, 1))
	s.ranked(s.run(), 2, 0)
	s.age(0, time.Minute)
	endpoints.SampleWriter{Endpoint: s.snap.Endpoints[2]}.ScrapeFailed()
	s.ranked(s.run(), 2, 1) // none is better: a sample still counts for as long as it is fresh
	if s.counts.stale != 0 {
		t.Errorf("all stale told %d times", s.counts.stale)
	}
}

// What an endpoint holds whose page cannot be read is not known: it is passed over where that counts, unless no
// page can be read, which is no concern of a plan that reads none.
func TestWhatIsHeldCountsWhereThePageCanBeRead(t *testing.T) {
	s := newScene(t, 3)
	s.scorer("prefix", 1, s.reads(attributes.PrefixBlocks), fixed(1, .5, .2))
	s.age(1, time.Second)
	s.age(0, time.Minute)
	s.ranked(s.run(), 1, 2) // the first page of the third may be on its way
	endpoints.SampleWriter{Endpoint: s.snap.Endpoints[2]}.ScrapeFailed()
	s.ranked(s.run(), 1)
	s.age(1, time.Minute)
	s.age(2, time.Minute)
	out := s.run()
	s.ranked(out, 0, 1, 2)
	if out.Decision.Stale || s.counts.stale != 0 {
		t.Errorf("decision %+v, all stale %d times", out.Decision, s.counts.stale)
	}
}

func TestWhenAllAreStaleInflightLoadStandsIn(t *testing.T) {
	s := newScene(t, 3)
	endpoints.SampleWriter{Endpoint: s.snap.Endpoints[2]}.Publish(nil)
	s.age(0, time.Minute)
	s.age(1, time.Minute)
	for i, n := range []int{4, 0, 1} {
		for range n {
			endpoints.LoadWriter{Endpoint: s.snap.Endpoints[i]}.Add(endpoints.Work{Prompt: 10}, time.Time{})
		}
	}
	asked := 0
	s.scorer("queue", 2, s.reads(attributes.QueuedRequests), func(*schedule.Input, []float32) { asked++ })
	s.scorer("lora", 1, s.reads(attributes.ActiveLoRAs), func(*schedule.Input, []float32) { asked++ })
	s.scorer("own", 1, nil, fixed(1, 0, 0))
	out := s.run()
	s.ranked(out, 1, 2, 0)
	if got := out.Decision.Profiles.At(0).Totals.Append(nil); !reflect.DeepEqual(got, []float32{1, 3, 2.25}) {
		t.Errorf("totals %v, want 1 3 2.25", got)
	}
	if asked != 0 || s.counts.stale != 1 || !out.Decision.Stale || s.counts.ran[12] != 1 {
		t.Errorf("scorers of samples ran %d times, all stale told %d times, want 0 and 1", asked, s.counts.stale)
	}
}

func TestWaitingIsSampledAndWhatWasPickedSince(t *testing.T) {
	s := newScene(t, 2)
	e := s.snap.Endpoints[1]
	known := endpoints.LoadWriter{Endpoint: e}.Add(endpoints.Work{Prompt: 1}, time.Time{})
	endpoints.SampleWriter{Endpoint: e}.SampleInForce(endpoints.SampleWriter{Endpoint: e}.BeginScrape())
	endpoints.LoadWriter{Endpoint: e}.Add(endpoints.Work{Prompt: 3}, time.Time{})
	var saw schedule.Seen
	reads := s.reads(attributes.QueuedRequests, attributes.InflightRequests, attributes.InflightTokens)
	s.scorer("queue", 1, reads, func(in *schedule.Input, _ []float32) { saw = in.Seen() })
	s.run()
	if want := [][]float64{{0, 2}, {0, 2}, {0, 4}}; !reflect.DeepEqual(saw.Numbers, want) {
		t.Errorf("queues, requests and tokens %v, want %v: 1 sampled and 1 since", saw.Numbers, want)
	}
	endpoints.LoadWriter{Endpoint: e}.Remove(known)
	s.run()
	if want := [][]float64{{0, 2}, {0, 1}, {0, 3}}; !reflect.DeepEqual(saw.Numbers, want) {
		t.Errorf("queues, requests and tokens %v, want %v: the sample knew the one that ended", saw.Numbers, want)
	}
}

func TestBurstBetweenTwoSamplesDoesNotHerd(t *testing.T) {
	s := newScene(t, 4)
	for _, e := range s.snap.Endpoints {
		endpoints.SampleWriter{Endpoint: e}.Publish(&endpoints.Sample{At: now, Interval: time.Second,
			Values: endpointstest.Load(0, 0, 0)})
	}
	queued := s.number(attributes.QueuedRequests)
	s.scorer("queue", 1, s.reads(attributes.QueuedRequests), func(in *schedule.Input, scores []float32) {
		for i := range scores {
			scores[i] = 1 / float32(1+in.Numbers(queued).At(i))
		}
	})
	for range 40 {
		endpoints.LoadWriter{Endpoint: s.run().Ranked[0]}.Add(endpoints.Work{Prompt: 1}, time.Time{})
	}
	for i, e := range s.snap.Endpoints {
		if n := e.Inflight(); n != 10 {
			t.Errorf("endpoint %d got %d of 40, want 10", i, n)
		}
	}
}

// first picks one without a buffer of its own.
func first(_ *schedule.Input, _ []float32, ranked []int) []int { return append(ranked, 0) }

func sized(t *testing.T, n int) *scene {
	s := newScene(t, n)
	s.filter("all", func(*schedule.Input, []bool) {})
	s.scorer("a", 1, s.reads(attributes.QueuedRequests), func(*schedule.Input, []float32) {})
	s.scorer("b", 1, nil, func(*schedule.Input, []float32) {})
	s.profiles[0].Picker = picker("first", first)
	return s
}

func TestAllocationsDoNotGrowWithEndpoints(t *testing.T) {
	var counts []float64
	for _, n := range []int{1, 10, 100, 1000} {
		s := sized(t, n)
		s.run()
		counts = append(counts, testing.AllocsPerRun(100, func() { s.run() }))
	}
	for _, n := range counts {
		if n != 4 {
			t.Errorf("allocations with 1, 10, 100 and 1000 endpoints: %v, want 4 each time", counts)
			break
		}
	}
}

func TestSchedulerHoldsNothingOfALargerPool(t *testing.T) {
	s := newScene(t, 9)
	s.scorer("a", 1, nil, fixed(0, 0, 0, 0, 0, 0, 0, 0, 1))
	s.ranked(s.run(), 8, 0, 1, 2, 3, 4, 5, 6, 7)
	s.snap = endpoints.NewSnapshot(6, s.snap.Endpoints[:2])
	out := s.run()
	s.ranked(out, 0, 1)
	if out.Decision.Endpoints.Len() != 2 || out.Decision.Profiles.At(0).Totals.Len() != 2 {
		t.Errorf("decision %+v", out.Decision)
	}
	s.req = messages.Request{ID: 2}
	s.ranked(s.run(), 0, 1)
}

func BenchmarkRun(b *testing.B) {
	for _, n := range []int{10, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := sized(new(testing.T), n)
			b.ReportAllocs()
			for b.Loop() {
				s.run()
			}
		})
	}
}
