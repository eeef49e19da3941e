package admitters_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/admitters"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/messages"
)

// filled returns an endpoint with this queue, and this share of its KV cache in use; negative = it does not say.
func filled(queue int, cache float64) scheduletest.Endpoint {
	return scheduletest.Endpoint{Sample: endpoints.Sample{Values: endpointstest.Load(queue, 0, cache)}}
}

func TestProbabilisticRefusesByHowFullServersAre(t *testing.T) {
	const tries = 2_000
	one := func(p *admitters.Probabilistic) { p.Power, p.K = 1, 1 }
	for name, c := range map[string]struct {
		priority int
		change   func(*admitters.Probabilistic)
		all      []scheduletest.Endpoint
		want     float64 // share that is refused
	}{
		"idle":              {-1, nil, []scheduletest.Endpoint{filled(0, 0)}, 0},
		"full":              {-1, nil, []scheduletest.Endpoint{filled(5, 0)}, 1},
		"full cache":        {-1, nil, []scheduletest.Endpoint{filled(0, .8)}, 1},
		"priority 0":        {0, nil, []scheduletest.Endpoint{filled(50, 1)}, 0},
		"none says":         {-1, nil, []scheduletest.Endpoint{filled(-1, -1)}, 0},
		"half full":         {-1, one, []scheduletest.Endpoint{filled(0, .4)}, .5},
		"the larger one":    {-1, one, []scheduletest.Endpoint{filled(1, .4)}, .5},
		"mean":              {-1, one, []scheduletest.Endpoint{filled(1, 0), filled(2, 0)}, .3},
		"one does not say":  {-1, one, []scheduletest.Endpoint{filled(1, 0), filled(-1, -1)}, .2},
		"queue alone known": {-1, one, []scheduletest.Endpoint{filled(1, -1)}, .2},
		"by default":        {-1, nil, []scheduletest.Endpoint{filled(1, 0)}, 300 * math.Pow(.2, 5)},
	} {
		t.Run(name, func(t *testing.T) {
			p := admitters.Types["probabilistic-admitter"]().(*admitters.Probabilistic)
			if c.change != nil {
				c.change(p)
			}
			refused := 0
			req := scheduletest.Request()
			req.Priority = c.priority
			scheduletest.Show(t, p, req, func(in *schedule.Input) {
				for range tries {
					switch r := p.Admit(in); {
					case r.Reason == messages.NoCapacity && r.RetryAfter == time.Second:
						refused++
					case r != schedule.Refusal{}:
						t.Fatalf("refused as %+v", r)
					}
				}
			}, c.all...)
			if got := float64(refused) / tries; math.Abs(got-c.want) > .05 || c.want == 0 && got > 0 ||
				c.want == 1 && got < 1 {
				t.Errorf("%.3f were refused, want %.3f", got, c.want)
			}
		})
	}
}

func TestProbabilisticRefusesParameters(t *testing.T) {
	p := admitters.Probabilistic{KVCacheUtilThreshold: 1.5, Power: math.NaN(), K: -1}
	want := "queueDepthThreshold: got 0, want 1 or more\nkvCacheUtilThreshold: got 1.5, want above 0, at most 1\n" +
		"power: got NaN, want above 0\nk: got -1, want 0 or more"
	if err := p.Validate(); fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
