package scorers

import (
	"fmt"
	"math"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
)

// anchor is a time to the first token, in seconds, at so many requests in flight.
type anchor struct{ seconds, at float64 }

// observed is an endpoint with what was observed of it, and requests in flight.
func observed(inflight int, floor float64, low, typical anchor) scheduletest.Endpoint {
	return scheduletest.Endpoint{Inflight: inflight, Produced: map[string]float64{
		attributes.FirstTokenFloor.Name: floor, attributes.FirstTokenLow.Name: low.seconds,
		attributes.FirstTokenLowLoad.Name: low.at, attributes.FirstTokenTypical.Name: typical.seconds,
		attributes.FirstTokenTypicalLoad.Name: typical.at,
	}}
}

func TestLatencyObservation(t *testing.T) {
	nan := math.NaN()
	// The curve of one server: 0.1 s idle, 0.2 s at 4 requests, 0.6 s at 8.
	curve := func(inflight int) scheduletest.Endpoint { return observed(inflight, .1, anchor{.2, 4}, anchor{.6, 8}) }
	seed, cold := observed(3, .2, anchor{nan, nan}, anchor{nan, nan}), scheduletest.Endpoint{}
	for name, c := range map[string]struct {
		scorer LatencyObservation
		all    []scheduletest.Endpoint
		want   []float64 // predictions, in seconds; NaN = none
		scores []float32
	}{
		// 0.1 + 2*0.1/4 = 0.15; at the anchors 0.2 and 0.6; 0.2 + 8*0.4/4 = 1 beyond
		"curve": {LatencyObservation{MinInflightGap: 2},
			[]scheduletest.Endpoint{curve(2), curve(4), curve(8), curve(12)},
			[]float64{.15, .2, .6, 1}, []float32{1, .8 / .85, .4 / .85, 0}},
		// the low anchor is 1.5 requests from the typical one: 0.1 + 4*0.5/5.5
		"anchors too near": {LatencyObservation{MinInflightGap: 2},
			[]scheduletest.Endpoint{observed(4, .1, anchor{.2, 4}, anchor{.6, 5.5}), curve(0)},
			[]float64{.1 + 2./5.5, .1}, []float32{0, 1}},
		"low below the floor": {LatencyObservation{MinInflightGap: 2}, // 0.3 + 4*0.3/8
			[]scheduletest.Endpoint{observed(4, .3, anchor{.2, 4}, anchor{.6, 8}), curve(0)},
			[]float64{.45, .1}, []float32{0, 1}},
		"low at no load": {LatencyObservation{MinInflightGap: 2}, // 0.1 + 4*0.5/8
			[]scheduletest.Endpoint{observed(4, .1, anchor{.2, 0}, anchor{.6, 8}), curve(0)},
			[]float64{.35, .1}, []float32{0, 1}},
		"rounded to equal": {LatencyObservation{MinInflightGap: 2, RoundTTFTStep: .1},
			[]scheduletest.Endpoint{curve(3), curve(4)}, []float64{.2, .2}, []float32{1, 1}},
		"nothing is known": {LatencyObservation{MinInflightGap: 2, ExplorationRate: 1},
			[]scheduletest.Endpoint{cold, cold}, []float64{nan, nan}, []float32{1, 1}},
		"floors alone": {LatencyObservation{MinInflightGap: 2, ExplorationRate: .5},
			[]scheduletest.Endpoint{seed, observed(0, .4, anchor{nan, nan}, anchor{nan, nan}), cold},
			[]float64{.2, .4, nan},
			[]float32{1, 0, 1}},
		"no exploration": {LatencyObservation{MinInflightGap: 2},
			[]scheduletest.Endpoint{curve(4), curve(8), seed, cold}, []float64{.2, .6, .2, nan}, []float32{1, 0, 1, 1}},
		"always explored": {LatencyObservation{MinInflightGap: 2, ExplorationRate: 1},
			[]scheduletest.Endpoint{curve(4), curve(8), seed, cold}, []float64{.2, .6, .2, nan}, []float32{1, 0, 1, 1}},
		"typical at the floor": {LatencyObservation{MinInflightGap: 2}, // says nothing of load
			[]scheduletest.Endpoint{observed(9, .2, anchor{.2, 4}, anchor{.2, 8}), curve(8)},
			[]float64{.2, .6}, []float32{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			scores := make([]float32, len(c.all))
			scheduletest.Show(t, &c.scorer, request, func(in *schedule.Input) {
				for i, want := range c.want {
					if got, _ := c.scorer.predict(in, i); math.Abs(got-want) > 1e-9 || (got != got) != (want != want) {
						t.Errorf("endpoint %d is predicted %v, want %v", i, got, want)
					}
				}
				c.scorer.Score(in, scores)
			}, c.all...)
			for i, want := range c.scores {
				if math.Abs(float64(scores[i]-want)) > 1e-6 {
					t.Errorf("scores %v, want %v", scores, c.scores)
				}
			}
		})
	}
}

// A server that was not observed gets its share of requests beside one that was, and no more.
func TestLatencyObservationExplores(t *testing.T) {
	s, tried := LatencyObservation{ExplorationRate: .1, MinInflightGap: 2}, 0
	scheduletest.Show(t, &s, request, func(in *schedule.Input) {
		scores := make([]float32, 2)
		for range 10_000 {
			s.Score(in, scores)
			tried += int(scores[1])
		}
	}, observed(4, .1, anchor{.2, 4}, anchor{.6, 8}), scheduletest.Endpoint{})
	if tried < 900 || tried > 1100 {
		t.Errorf("%d of 10000 requests try it, want 1000", tried)
	}
}

func TestLatencyObservationRefuses(t *testing.T) {
	s := LatencyObservation{ExplorationRate: 1.5, MinInflightGap: 0, RoundTTFTStep: -1}
	const want = "explorationRate: got 1.5, want 0 to 1\nminInflightGap: got 0, want more than 0\n" +
		"roundTTFTStep: got -1, want 0 or more"
	if got := fmt.Sprint(s.Validate()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
