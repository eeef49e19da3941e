package detectors_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/detectors"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
)

// poolwide is a detector that knows no single server.
type poolwide float64

func (d poolwide) Saturation(*schedule.Input) float64 { return float64(d) }

// combined returns a detector of others, by name.
func combined(
	stages map[string][]string, others map[string]schedule.Detector, names ...string,
) *detectors.MaxSaturation {
	d := &detectors.MaxSaturation{Detectors: names, Stages: stages}
	d.Combine(func(_, name string) schedule.Detector { return others[name] })
	return d
}

func TestMaxSaturation(t *testing.T) {
	others := map[string]schedule.Detector{
		"concurrency": &detectors.Concurrency{MaxConcurrency: 4, ConcurrencyMode: "requests", MaxTokenConcurrency: 1},
		"queue":       detectors.Types["utilization-detector"](),
		"learned":     new(detectors.Learning),
		"pool":        poolwide(.7),
	}
	server := func(requests, queue int, role string) scheduletest.Endpoint {
		e := says(queue, 0)
		e.Inflight, e.Window = requests, endpoints.Room{Requests: 8, Tokens: 1e6}
		if role != "" {
			e.Labels = map[string]string{"llm-d.ai/role": role}
		}
		return e
	}
	both := []string{"concurrency", "queue"}
	for name, c := range map[string]struct {
		names   []string
		stages  map[string][]string
		ceiling float64
		all     []scheduletest.Endpoint
		full    float64
		room    []bool
		bounds  endpoints.Room
	}{
		"the fullest counts": {both, nil, 1, []scheduletest.Endpoint{server(1, 4, ""), server(1, 0, "")}, .4,
			[]bool{true, true}, endpoints.Room{Requests: 4, Waiting: 5}},
		"another one is": {both, nil, 1, []scheduletest.Endpoint{server(3, 4, ""), server(3, 0, "")}, .75,
			[]bool{true, true}, endpoints.Room{Requests: 4, Waiting: 5}},
		"room by all": {both, nil, 1, []scheduletest.Endpoint{server(4, 0, ""), server(0, 5, ""), server(3, 4, "")}, .6,
			[]bool{false, false, true}, endpoints.Room{Requests: 4, Waiting: 5}},
		"one alone": {[]string{"queue"}, nil, 1, []scheduletest.Endpoint{server(9, 1, "")}, .2, []bool{true},
			endpoints.Room{Waiting: 5}},
		"learned, too": {[]string{"learned", "concurrency"}, nil, 1,
			[]scheduletest.Endpoint{server(3, 0, ""), server(4, 0, "")}, 7. / 8, []bool{true, false},
			endpoints.Room{Requests: 4, Learned: true, Share: 1}},
		"below a ceiling": {both, nil, .5,
			[]scheduletest.Endpoint{server(1, 0, ""), server(2, 0, ""), server(0, 3, "")}, .25,
			[]bool{true, false, false}, endpoints.Room{Requests: 2, Waiting: 3}},
		"the whole pool": {[]string{"pool", "queue"}, nil, 1, []scheduletest.Endpoint{server(0, 0, "")}, .7,
			[]bool{true}, endpoints.Room{Waiting: 5}},
		"the whole pool, above its ceiling": {[]string{"pool", "queue"}, nil, .6,
			[]scheduletest.Endpoint{server(0, 0, "")}, .7, []bool{false}, endpoints.Room{Waiting: 3}},
		"stages": {both, map[string][]string{"queue": {"prefill"}, "concurrency": {"decode"}}, 1,
			[]scheduletest.Endpoint{
				server(9, 0, "prefill"), server(0, 9, "prefill"), server(9, 0, "decode"), server(0, 9, "decode"),
				server(9, 0, "both"), server(0, 9, "both"), server(9, 9, "encode"),
			}, 36. / 28, []bool{true, false, false, true, false, false, true}, endpoints.Room{}},
		"no server of the stage": {both, map[string][]string{"queue": {"prefill"}}, 1,
			[]scheduletest.Endpoint{server(1, 9, "decode")}, .25, []bool{true}, endpoints.Room{Requests: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			d := combined(c.stages, others, c.names...)
			if got := scheduletest.Saturation(t, d, c.all...); got != c.full {
				t.Errorf("saturation %v, want %v", got, c.full)
			}
			if got := scheduletest.Room(t, d, c.ceiling, c.all...); !reflect.DeepEqual(got, c.room) {
				t.Errorf("room %v, want %v", got, c.room)
			}
			if got := d.Bounds(c.ceiling); got != c.bounds {
				t.Errorf("bounds %+v, want %+v", got, c.bounds)
			}
		})
	}
}

func TestMaxSaturationKnowsWhatItsDetectorsDo(t *testing.T) {
	others := map[string]schedule.Detector{"queue": detectors.Types["utilization-detector"](), "pool": poolwide(0)}
	d := combined(nil, others, "pool", "queue")
	unknown := -1
	scheduletest.Show(t, d, scheduletest.Request(), func(in *schedule.Input) { unknown = d.Unknown(in) },
		says(-1, -1), says(0, 0))
	if unknown != 1 {
		t.Errorf("%d servers are unknown, want 1", unknown)
	}
	if n := len(combined(nil, map[string]schedule.Detector{"l": new(detectors.Learning)}, "l").Learns()); n != 3 {
		t.Errorf("it learns from %d attributes, want 3", n)
	}
}

func TestMaxSaturationRefusesParameters(t *testing.T) {
	for _, c := range []struct {
		d    detectors.MaxSaturation
		want string
	}{
		{detectors.MaxSaturation{}, "detectors: missing; name the detectors that count"},
		{detectors.MaxSaturation{Detectors: []string{"a", "a"}}, "detectors[1]: a stands twice"},
		{detectors.MaxSaturation{Detectors: []string{"a"}, Stages: map[string][]string{"b": {"decode"}, "a": {}}},
			"stages.a: no stage, want prefill or decode\nstages.b: no such detector is named by detectors"},
		{detectors.MaxSaturation{Detectors: []string{"a"}, Stages: map[string][]string{"a": {"decode", "encode"}}},
			"stages.a[1]: got \"encode\", want prefill or decode"},
	} {
		if err := c.d.Validate(); fmt.Sprint(err) != c.want {
			t.Errorf("got\n%v\nwant\n%s", err, c.want)
		}
	}
}
