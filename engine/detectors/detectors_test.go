package detectors_test

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/detectors"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
)

// says returns a server with this queue, and this share of its KV cache in use; negative = it does not say.
func says(queue int, cache float64) scheduletest.Endpoint {
	return scheduletest.Endpoint{Sample: endpoints.Sample{Values: endpointstest.Load(queue, 0, cache)}}
}

// aged returns a server that said so some time ago.
func aged(e scheduletest.Endpoint, age, interval time.Duration) scheduletest.Endpoint {
	e.Age, e.Sample.Interval = age, interval
	return e
}

func works(requests int) scheduletest.Endpoint {
	return scheduletest.Endpoint{Inflight: requests, InflightTokens: 100 * requests}
}

// seen is what a detector makes of servers.
func seen(t *testing.T, d schedule.Detector, all []scheduletest.Endpoint) (full float64, kept []bool) {
	t.Helper()
	scheduletest.Show(t, d, scheduletest.Request(), func(in *schedule.Input) {
		full = d.Saturation(in)
		kept = make([]bool, in.Candidates().Len())
		for i := range kept {
			kept[i] = true
		}
		d.(schedule.Filter).Filter(in, kept)
	}, all...)
	return full, kept
}

func TestUtilization(t *testing.T) {
	const fresh = 200 * time.Millisecond
	for name, c := range map[string]struct {
		change func(*detectors.Utilization)
		all    []scheduletest.Endpoint
		want   float64
		kept   []bool // nil = all
	}{
		"idle":        {nil, []scheduletest.Endpoint{says(0, 0)}, 0, nil},
		"queue below": {nil, []scheduletest.Endpoint{says(4, 0)}, .8, nil},
		"queue full":  {nil, []scheduletest.Endpoint{says(5, 0), says(5, 0)}, 1, nil},
		"queue above": {nil, []scheduletest.Endpoint{says(10, 0), says(0, 0)}, 1, []bool{false, true}},
		"cache below": {nil, []scheduletest.Endpoint{says(0, .4)}, .5, nil},
		"cache full": {nil, []scheduletest.Endpoint{says(0, .8), says(0, .79)}, (1 + .79/.8) / 2,
			[]bool{false, true}},
		"the larger one": {nil, []scheduletest.Endpoint{says(1, .6)}, .6 / .8, nil},
		"mean":           {nil, []scheduletest.Endpoint{says(5, 0), says(0, 0)}, .5, []bool{false, true}},
		"queue alone":    {nil, []scheduletest.Endpoint{says(2, -1), says(6, -1)}, .8, []bool{true, false}},
		"cache alone": {nil, []scheduletest.Endpoint{says(-1, .2), says(-1, .9)}, (.25 + .9/.8) / 2,
			[]bool{true, false}},
		"neither is known": {nil, []scheduletest.Endpoint{says(-1, -1), says(0, 0)}, .5, []bool{false, true}},
		"none says":        {nil, []scheduletest.Endpoint{says(-1, -1)}, 1, nil},
		"just fresh":       {nil, []scheduletest.Endpoint{aged(says(0, 0), fresh, 0)}, 0, nil},
		"too old": {nil, []scheduletest.Endpoint{aged(says(0, 0), fresh+1, 0), says(0, 0)}, .5,
			[]bool{false, true}},
		"three intervals": {nil, []scheduletest.Endpoint{aged(says(0, 0), 600*time.Millisecond, fresh), says(5, 0)},
			.5, []bool{true, false}},
		"older than three": {nil, []scheduletest.Endpoint{aged(says(0, 0), 600*time.Millisecond+1, fresh), says(4, 0)},
			.9, []bool{false, true}},
		"a long threshold": {func(d *detectors.Utilization) { d.MetricsStalenessThreshold = 2 * fresh },
			[]scheduletest.Endpoint{aged(says(0, 0), 2*fresh, 0)}, 0, nil},
		"a high queue": {func(d *detectors.Utilization) { d.QueueDepthThreshold = 50 },
			[]scheduletest.Endpoint{says(5, 0)}, .1, nil},
		"a high cache": {func(d *detectors.Utilization) { d.KVCacheUtilThreshold = 1 },
			[]scheduletest.Endpoint{says(0, .8)}, .8, nil},
		"headroom": {func(d *detectors.Utilization) { d.Headroom = .2 },
			[]scheduletest.Endpoint{says(5, 0), says(6, 0), says(0, .9), says(0, .97)},
			(1 + 1.2 + .9/.8 + .97/.8) / 4, []bool{true, false, true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			d := detectors.Types["utilization-detector"]().(*detectors.Utilization)
			if c.change != nil {
				c.change(d)
			}
			full, kept := seen(t, d, c.all)
			check(t, full, c.want, kept, c.kept)
		})
	}
}

func check(t *testing.T, full, want float64, kept, wantKept []bool) {
	t.Helper()
	if math.Abs(full-want) > 1e-9 || want == 1 && full < 1 {
		t.Errorf("saturation %v, want %v", full, want)
	}
	if wantKept == nil {
		wantKept = make([]bool, len(kept))
		for i := range wantKept {
			wantKept[i] = true
		}
	}
	if !reflect.DeepEqual(kept, wantKept) {
		t.Errorf("keeps %v, want %v", kept, wantKept)
	}
}

// For the saturation of the pool the queue counts that a server has told. For room at the server what was picked for it
// since counts, too: only as many as it takes at once, and as may wait.
func TestUtilizationCountsPicksForRoom(t *testing.T) {
	picked := func(waiting, running, since int) scheduletest.Endpoint {
		e := works(waiting + running)
		e.Sample.Values, e.PickedSince = endpointstest.Load(waiting, running, 0), since
		return e
	}
	d := detectors.Types["utilization-detector"]()
	full, kept := seen(t, d, servers{picked(1, 20, 3), picked(1, 20, 4), picked(5, 20, 0), picked(0, 0, 20)})
	if math.Abs(full-.35) > 1e-9 || !reflect.DeepEqual(kept, []bool{true, false, false, true}) {
		t.Errorf("saturation %v, and keeps %v", full, kept)
	}
}

// A queue that another source than the metrics page tells of says nothing of what was picked since.
func TestUtilizationOfAQueueThatThePageDoesNotTell(t *testing.T) {
	e := says(-1, .5)
	e.PickedSince = 100
	if _, kept := seen(t, detectors.Types["utilization-detector"](), servers{e}); !kept[0] {
		t.Error("a server without a queue has no room")
	}
}

func TestConcurrency(t *testing.T) {
	for name, c := range map[string]struct {
		mode     string
		tokens   int
		headroom float64
		all      []scheduletest.Endpoint
		want     float64
		kept     []bool
	}{
		"idle":  {"requests", 1, 0, []scheduletest.Endpoint{works(0)}, 0, []bool{true}},
		"below": {"requests", 1, 0, []scheduletest.Endpoint{works(2)}, 2. / 3, []bool{true}},
		"full": {"requests", 1, 0, []scheduletest.Endpoint{works(1), works(5), works(3)}, 1,
			[]bool{true, false, false}},
		"headroom":    {"requests", 1, .5, []scheduletest.Endpoint{works(4), works(5)}, 1.5, []bool{true, false}},
		"tokens":      {"tokens", 400, 0, []scheduletest.Endpoint{works(3), works(5)}, 1, []bool{true, false}},
		"tokens in":   {"tokens", 1000, 0, []scheduletest.Endpoint{works(9)}, .9, []bool{true}},
		"hybrid":      {"hybrid", 200, 0, []scheduletest.Endpoint{works(2), works(1)}, .75, []bool{false, true}},
		"by requests": {"hybrid", 1000, 0, []scheduletest.Endpoint{works(3)}, 1, []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			d := detectors.Types["concurrency-detector"]().(*detectors.Concurrency)
			d.MaxConcurrency, d.ConcurrencyMode, d.MaxTokenConcurrency, d.Headroom = 3, c.mode, c.tokens, c.headroom
			full, kept := seen(t, d, c.all)
			check(t, full, c.want, kept, c.kept)
		})
	}
}

// A ceiling lowers what fills a server, and an idle one has room for any.
func TestRoomBelowACeiling(t *testing.T) {
	concurrency := func(mode string, headroom float64) schedule.Gate {
		return &detectors.Concurrency{
			MaxConcurrency: 10, Headroom: headroom, ConcurrencyMode: mode, MaxTokenConcurrency: 1000,
		}
	}
	utilization := detectors.Types["utilization-detector"]().(schedule.Gate)
	for name, c := range map[string]struct {
		gate    schedule.Gate
		ceiling float64
		all     []scheduletest.Endpoint
		want    []bool
		bound   endpoints.Room
	}{
		"requests": {concurrency("requests", 0), .3, []scheduletest.Endpoint{works(2), works(3)}, []bool{true, false},
			endpoints.Room{Requests: 3}},
		"a part of a request": {concurrency("requests", 0), .31, []scheduletest.Endpoint{works(3), works(4)},
			[]bool{true, false}, endpoints.Room{Requests: 4}},
		"no rounding error": {concurrency("requests", 0), .1 + .2, []scheduletest.Endpoint{works(2), works(3)},
			[]bool{true, false}, endpoints.Room{Requests: 3}},
		"the least": {concurrency("requests", 0), 1e-9, []scheduletest.Endpoint{works(0), works(1)},
			[]bool{true, false}, endpoints.Room{Requests: 1}},
		"headroom": {concurrency("requests", .5), .6, []scheduletest.Endpoint{works(8), works(9)}, []bool{true, false},
			endpoints.Room{Requests: 9}},
		"tokens": {concurrency("tokens", 0), .5, []scheduletest.Endpoint{works(4), works(5)}, []bool{true, false},
			endpoints.Room{Tokens: 500}},
		"hybrid": {concurrency("hybrid", 0), .2, []scheduletest.Endpoint{works(1), works(2)}, []bool{true, false},
			endpoints.Room{Requests: 2, Tokens: 200}},
		"queue": {utilization, .4, []scheduletest.Endpoint{says(1, 0), says(2, 0)}, []bool{true, false},
			endpoints.Room{Waiting: 2}},
		"cache": {utilization, .5, []scheduletest.Endpoint{says(0, .39), says(0, .4)}, []bool{true, false},
			endpoints.Room{Waiting: 3}},
		"window": {new(detectors.Learning), .5, []scheduletest.Endpoint{windowed(9, 23, 0), windowed(10, 23, 0)},
			[]bool{true, false}, endpoints.Room{Learned: true, Share: .5}},
		"a place at which none waits": {new(detectors.Learning), 1,
			[]scheduletest.Endpoint{windowed(19, 23, 0), windowed(20, 23, 0)}, []bool{true, false},
			endpoints.Room{Learned: true, Share: 1}},
		"no such place": {new(detectors.Learning), 1,
			[]scheduletest.Endpoint{windowed(22, 23, 0), windowed(23, 23, 0)}, []bool{true, false},
			endpoints.Room{Learned: true, Share: 1}},
		"window of tokens": {new(detectors.Learning), .5,
			[]scheduletest.Endpoint{windowed(4, 20, 1000), windowed(5, 20, 1000)}, []bool{true, false},
			endpoints.Room{Learned: true, Share: .5}},
		"nothing queued": {utilization, 1e-9, []scheduletest.Endpoint{says(0, 0), says(1, 0)}, []bool{true, false},
			endpoints.Room{Waiting: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := scheduletest.Room(t, c.gate, c.ceiling, c.all...); !reflect.DeepEqual(got, c.want) {
				t.Errorf("room %v, want %v", got, c.want)
			}
			if got := c.gate.Bounds(c.ceiling); got != c.bound {
				t.Errorf("bounds %+v, want %+v", got, c.bound)
			}
		})
	}
}

func TestDetectorsRefuseParameters(t *testing.T) {
	for _, c := range []struct {
		d    interface{ Validate() error }
		want string
	}{
		{&detectors.Utilization{KVCacheUtilThreshold: math.NaN(), Headroom: -1},
			"queueDepthThreshold: got 0, want 1 or more\nkvCacheUtilThreshold: got NaN, want more than 0, at most 1\n" +
				"metricsStalenessThreshold: got 0s, want more than 0s\nheadroom: got -1, want 0 or more"},
		{&detectors.Concurrency{Headroom: math.Inf(1)},
			"maxConcurrency: got 0, want 1 or more\nheadroom: got +Inf, want 0 or more\n" +
				"concurrencyMode: got \"\", want one of [requests tokens hybrid]\n" +
				"maxTokenConcurrency: got 0, want 1 or more"},
	} {
		if err := c.d.Validate(); fmt.Sprint(err) != c.want {
			t.Errorf("got\n%v\nwant\n%s", err, c.want)
		}
	}
}

// A server that was not asked yet says nothing of the pool, and one that does not answer is as good as full.
func TestUtilizationOfServersWithoutAnAnswer(t *testing.T) {
	awaited, silent := scheduletest.Endpoint{Unread: true}, scheduletest.Endpoint{Unread: true, Failing: true}
	for name, c := range map[string]struct {
		all  []scheduletest.Endpoint
		want float64
	}{
		"one is awaited":  {[]scheduletest.Endpoint{awaited, says(3, 0)}, .6},
		"all are awaited": {[]scheduletest.Endpoint{awaited, awaited}, 0},
		"one is silent":   {[]scheduletest.Endpoint{silent, says(0, 0)}, .5},
		"all are silent":  {[]scheduletest.Endpoint{silent}, 1},
	} {
		d := detectors.Types["utilization-detector"]()
		if got := scheduletest.Saturation(t, d, c.all...); got != c.want {
			t.Errorf("%s: saturation %v, want %v", name, got, c.want)
		}
	}
}

// windowed returns a server that works on so many requests of 100 tokens each, and takes so many; 0 = as many as one of
// which nothing is known.
func windowed(requests, window, tokens int) scheduletest.Endpoint {
	e := works(requests)
	e.Window = endpoints.Room{Requests: window, Tokens: tokens}
	return e
}

// told returns a server without a window whose page tells of its work.
func told(requests int) scheduletest.Endpoint {
	e := works(requests)
	e.Sample.Values = endpointstest.Load(0, requests, 0)
	return e
}

type servers []scheduletest.Endpoint

func TestLearning(t *testing.T) {
	for name, c := range map[string]struct {
		all  servers
		want float64
		kept []bool // nil = all
	}{
		"idle":               {servers{windowed(0, 20, 0)}, 0, nil},
		"half":               {servers{windowed(10, 20, 0), windowed(5, 10, 0)}, .5, nil},
		"one is full":        {servers{windowed(20, 20, 0), windowed(0, 20, 0)}, .5, []bool{false, true}},
		"all are full":       {servers{windowed(20, 20, 0), windowed(12, 10, 0)}, 32. / 30, nil},
		"full of tokens":     {servers{windowed(10, 20, 1000), windowed(5, 20, 0)}, 15. / 40, []bool{false, true}},
		"nothing is known":   {servers{windowed(8, 0, 0)}, .5, nil},
		"without a window":   {servers{{Inflight: 8, Unread: true}}, .5, nil},
		"16 are full":        {servers{told(16), told(15)}, 31. / 32, []bool{false, true}},
		"pages tell nothing": {servers{windowed(16, 0, 0), windowed(15, 0, 0)}, .5, nil},
		"more than a window": {servers{windowed(40, 20, 0)}, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := detectors.Types["learning-detector"]()
			full, kept := seen(t, d, c.all)
			if math.Abs(full-c.want) > 1e-6 {
				t.Errorf("saturation %v, want %v", full, c.want)
			}
			want := c.kept
			for i := 0; want == nil || len(want) < len(c.all); i++ {
				want = append(want, true)
			}
			if !reflect.DeepEqual(kept, want) {
				t.Errorf("kept %v, want %v", kept, want)
			}
			if b := d.(schedule.Gate).Bounds(.5); b != (endpoints.Room{Learned: true, Share: .5}) {
				t.Errorf("bounds %+v", b)
			}
		})
	}
}

// unknowns says how many servers a detector does not know, in the place of how full they are.
type unknowns struct{ *detectors.Utilization }

func (u unknowns) Saturation(in *schedule.Input) float64 { return float64(u.Unknown(in)) }

// The servers of which no fresh answer tells are counted, but for those whose first answer is awaited.
func TestUtilizationCountsTheServersThatItDoesNotKnow(t *testing.T) {
	d := unknowns{detectors.Types["utilization-detector"]().(*detectors.Utilization)}
	if got := scheduletest.Saturation(t, d,
		says(0, 0), aged(says(0, 0), time.Hour, 0), says(-1, -1), scheduletest.Endpoint{Unread: true},
		scheduletest.Endpoint{Unread: true, Failing: true}); got != 3 {
		t.Errorf("%v are unknown, want 3: an old answer, one without numbers, and none", got)
	}
}
