package schedule_test

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

type detectFunc func(*schedule.Input) float64

func (f detectFunc) Saturation(in *schedule.Input) float64 { return f(in) }

// Only requests of negative priority are refused while the pool is saturated, after plugins have seen their headers and
// before any other point.
func TestDetectorShedsRequestsOfNegativePriority(t *testing.T) {
	for name, c := range map[string]struct {
		priority int
		full     float64
		refused  bool
	}{
		"room":            {-1, math.Nextafter(1, 0), false},
		"saturated":       {-1, 1, true},
		"fuller":          {-5, 7, true},
		"priority 0":      {0, 7, false},
		"a high priority": {3, 7, false},
		"it cannot say":   {-1, math.NaN(), false},
	} {
		t.Run(name, func(t *testing.T) {
			s, calls := visited(t, 2, &visitor{name: "a"})
			asked := 0
			s.planned().Detect(detectFunc(func(in *schedule.Input) float64 {
				if asked++; in.Candidates().Len() != 2 || len(*calls) != 1 {
					t.Errorf("it has %d candidates after %v, want 2 after the headers", in.Candidates().Len(), *calls)
				}
				return c.full
			}), schedule.Step{Name: "full", Meter: 3})
			s.req.Priority = c.priority
			out := s.served()
			if !c.refused {
				s.ranked(out, 0, 1)
			} else {
				s.failed(out, messages.NoCapacity, "the pool is saturated, and the request has a negative priority")
				if out.RetryAfter != time.Second || len(*calls) != 1 {
					t.Errorf("retry after %v, points %v; want 1s, and no point after the headers", out.RetryAfter,
						*calls)
				}
			}
			want := 0
			if c.priority < 0 {
				want = 1
			}
			if asked != want || s.counts.ran[3] != want {
				t.Errorf("asked %d times, timed %d times, want %d", asked, s.counts.ran[3], want)
			}
		})
	}
}

// A detector sees what may serve the request, of which the subset is part, whatever the age of their samples.
func TestDetectorSeesTheSubsetAndEveryAge(t *testing.T) {
	s := newScene(t, 3)
	s.age(0, time.Hour)
	endpoints.SampleWriter{Endpoint: s.snap.Endpoints[2]}.Publish(nil)
	s.req.Priority = -1
	s.req.Subset = messages.Subset{Given: true, Addresses: messages.ListOf(address(0), address(2))}
	queue, saw := s.number(attributes.QueuedRequests), ""
	s.planned().Detect(detectFunc(func(in *schedule.Input) float64 {
		saw = fmt.Sprint(in.Numbers(queue).Len(), in.Outdated(queue, 0, 2*time.Hour),
			in.Outdated(queue, 0, time.Minute),
			in.Outdated(queue, 1, 2*time.Hour))
		return 0
	}), schedule.Step{Name: "full", Reads: s.reads(attributes.QueuedRequests)})
	s.ranked(s.run(), 0, 2)
	if want := "2 false true true"; saw != want {
		t.Errorf("it saw %s, want %s", saw, want)
	}
}

func TestOutdatedGoesByTheSourceOfAnAttribute(t *testing.T) {
	s := newScene(t, 3)
	other := &attributes.Source{Name: "other", Select: map[string]string{}}
	s.binding.EmitFrom(other, "extractor", attributes.Attribute{Name: "example.com/watts"})
	watts := s.binding.Reader("test").Number("example.com/watts", "")
	queue := s.number(attributes.QueuedRequests)
	for i, age := range []time.Duration{30 * time.Second, 30*time.Second + 1} {
		endpoints.SampleWriter{Endpoint: s.snap.Endpoints[i]}.PublishPages(new(endpoints.Pages).With(
			endpoints.Page{Source: "other", At: now.Add(-age), Interval: 10 * time.Second}))
	}
	var saw, awaited []bool
	s.filter("look", func(in *schedule.Input, _ []bool) {
		for i := range 3 {
			saw = append(saw, in.Outdated(watts, i, time.Second), in.Outdated(queue, i, time.Second))
			awaited = append(awaited, in.Awaited(watts, i), in.Awaited(queue, i))
		}
	})
	endpoints.SampleWriter{Endpoint: s.snap.Endpoints[1]}.Publish(nil)
	endpoints.SampleWriter{Endpoint: s.snap.Endpoints[2]}.Publish(nil)
	endpoints.SampleWriter{Endpoint: s.snap.Endpoints[2]}.ScrapeFailed()
	s.run()
	if want := []bool{false, false, false, true, true, false}; !reflect.DeepEqual(awaited, want) {
		t.Errorf("awaited are watts and queue of each endpoint: %v, want %v", awaited, want)
	}
	if want := []bool{false, false, true, true, true, true}; !reflect.DeepEqual(saw, want) {
		t.Errorf("outdated are watts and queue of each endpoint: %v, want %v", saw, want)
	}
}
