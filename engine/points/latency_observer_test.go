package points_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/points"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
)

// seen is a request that takes so long to its first token while others run; the server is the first one.
type seen struct {
	after    time.Duration
	took     time.Duration
	inflight int
}

const ms = time.Millisecond

func TestLatencyObserver(t *testing.T) {
	nan := math.NaN()
	rising := []seen{{0, 300 * ms, 4}, {0, 100 * ms, 0}, {0, 400 * ms, 6}, {0, 200 * ms, 2}}
	for name, c := range map[string]struct {
		seen []seen
		then time.Duration
		want [5]float64 // floor, low, typical, and the requests at low and typical
	}{
		"nothing":   {nil, 0, [5]float64{nan, nan, nan, nan, nan}},
		"too few":   {rising[:3], 0, [5]float64{nan, nan, nan, nan, nan}},
		"just four": {rising, 0, [5]float64{.1, .1, .2, 1, 3}}, // (0+2)/2 and (2+4)/2 requests are near
		"older ones do not count": {rising, 3*time.Minute + 1,
			[5]float64{.1, nan, nan, nan, nan}},
		"the newest eight": { // 1 s is forgotten: 100, 110, ... 170 ms; 120 and 130 are the percentiles
			append([]seen{{0, time.Second, 9}}, run(8, func(i int) seen {
				return seen{0, 100*ms + time.Duration(i)*10*ms, i}
			})...),
			// 15 to 35 % are the 2nd and 3rd of 8, 40 to 60 % the 4th and 5th
			0, [5]float64{.1, .11, .13, 1.5, 3.5}},
		"the floor is of buckets": { // the least of three minutes, of which the third is not over
			[]seen{{0, 500 * ms, 0}, {0, 600 * ms, 0}, {time.Minute, 300 * ms, 0}, {time.Minute, 900 * ms, 0}},
			0, [5]float64{.3, .3, .5, 0, 0}},
		"buckets with the least times stay": { // 500, 300 and 400 ms, of which two count
			[]seen{{0, 500 * ms, 0}, {time.Minute, 300 * ms, 0}, {time.Minute, 400 * ms, 0},
				{time.Minute, 900 * ms, 0}},
			0, [5]float64{.3, .3, .4, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			o := points.Types["latency-observer-producer-hub"]().(*points.LatencyObserver)
			o.MinRequests, o.MaxRequests, o.BucketHistorySize = 4, 8, 2
			if err := o.Validate(); err != nil {
				t.Fatal(err)
			}
			s := scheduletest.NewSeries(t, o, scheduletest.Profile{Name: "default", Ranks: []int{0, 1}})
			for _, one := range c.seen {
				s.Now = s.Now.Add(one.after)
				busy := scheduletest.Endpoint{Inflight: one.inflight}
				out := s.Pick(scheduletest.Request(), busy, scheduletest.Endpoint{})
				s.First(&out, one.took)
			}
			s.Now = s.Now.Add(c.then)
			for i, name := range o.Emits() {
				got := s.Produced(scheduletest.Request(), name, make([]scheduletest.Endpoint, 2)...)
				if !same(got[0], c.want[i]) || !math.IsNaN(got[1]) {
					t.Errorf("%s is %v, want %v of the first endpoint alone", name, got, c.want[i])
				}
			}
		})
	}
}

func run(n int, of func(i int) seen) (all []seen) {
	for i := range n {
		all = append(all, of(i))
	}
	return all
}

func same(a, b float64) bool { return math.Abs(a-b) < 1e-9 || math.IsNaN(a) && math.IsNaN(b) }

// Another incarnation of an endpoint has shown nothing.
func TestLatencyObserverKnowsIncarnations(t *testing.T) {
	o := points.Types["latency-observer-producer-hub"]().(*points.LatencyObserver)
	o.MinRequests = 1
	s := scheduletest.NewSeries(t, o, scheduletest.Profile{Name: "default", Ranks: []int{0}})
	out := s.Pick(scheduletest.Request(), scheduletest.Endpoint{})
	s.First(&out, 100*ms)
	floor := attributes.FirstTokenFloor.Name
	before := s.Produced(scheduletest.Request(), floor, scheduletest.Endpoint{})
	after := s.Produced(scheduletest.Request(), floor, scheduletest.Endpoint{Restarts: 1})
	if before[0] != .1 || !math.IsNaN(after[0]) {
		t.Errorf("the floor is %v, of the next incarnation %v; want 0.1 and NaN", before, after)
	}
	few := s.Allocs(scheduletest.Request(), make([]scheduletest.Endpoint, 2)...)
	if many := s.Allocs(scheduletest.Request(), make([]scheduletest.Endpoint, 200)...); many != few {
		t.Errorf("%v allocations with 200 endpoints, want %v as with 2", many, few)
	}
}

func TestLatencyObserverRefuses(t *testing.T) {
	for want, change := range map[string]func(o *points.LatencyObserver){
		"maxObservationAge: got 0s, want more than 0\nbucketDuration: got 1m0s, want more than 0, at most " +
			"maxObservationAge": func(o *points.LatencyObserver) { o.MaxObservationAge = 0 },
		"maxRequests: got 1001, want 1 to 1000":       func(o *points.LatencyObserver) { o.MaxRequests = 1001 },
		"minRequests: got 101, want 1 to maxRequests": func(o *points.LatencyObserver) { o.MinRequests = 101 },
		"lowPercentile: got 50, want 1 or more, less than typicalPercentile": func(o *points.LatencyObserver) {
			o.LowPercentile = 50
		},
		"typicalPercentile: got 100, want below 100": func(o *points.LatencyObserver) { o.TypicalPercentile = 100 },
		"bucketHistorySize: got 1, want 2 to 10000":  func(o *points.LatencyObserver) { o.BucketHistorySize = 1 },
	} {
		o := points.Types["latency-observer-producer-hub"]().(*points.LatencyObserver)
		if change(o); fmt.Sprint(o.Validate()) != want {
			t.Errorf("got %v, want %s", o.Validate(), want)
		}
	}
	names := new(points.LatencyObserver).Emits()
	if once := slices.Compact(slices.Sorted(slices.Values(names))); len(once) != len(names) {
		t.Errorf("names %v stand twice", names)
	}
}
