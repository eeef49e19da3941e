package flow_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

// limitFunc is a usage limit.
type limitFunc func(in *flow.Usage, out []float64) time.Duration

func (f limitFunc) Ceilings(in *flow.Usage, out []float64) time.Duration { return f(in, out) }

// limited returns queues of three configured priorities with a usage limit.
func limited(limit flow.UsageLimit) *flow.Queues {
	s := everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{})
	s.UsageLimit, s.Priorities = limit, []int{3, 0, -1}
	return flow.New(s)
}

func seen(traffic *flow.Traffic) flow.Seen {
	if traffic == nil {
		traffic = new(flow.Traffic)
	}
	return flow.Seen{Now: start, Saturation: .5, Traffic: traffic}
}

func TestUsageLimitSeesWhatBandsDo(t *testing.T) {
	var got flow.Usage
	q := limited(limitFunc(func(in *flow.Usage, _ []float64) time.Duration {
		got = *in
		got.Bands = slices.Clone(in.Bands)
		return time.Second
	}))
	w, traffic := new(waiting), new(flow.Traffic)
	push(t, q, w.of("a", 7), w.of("a", -1), w.of("b", -1))
	for range 3 {
		traffic.Of(0).Arrive()
	}
	traffic.Of(0).Dispatch()
	traffic.Of(0).Enter()
	traffic.Of(3).Enter()
	traffic.Of(3).Leave()
	_, again := q.Ceilings(seen(traffic))
	want := []flow.BandUsage{
		{Priority: 7, Waiting: 1}, {Priority: 3},
		{Priority: 0, Counts: flow.Counts{Arrivals: 3, Dispatches: 1, Inflight: 1}}, {Priority: -1, Waiting: 2},
	}
	if !slices.Equal(got.Bands, want) || got.Now != start || got.Saturation != .5 || again != time.Second {
		t.Errorf("it sees %+v, asked again after %v, want bands %+v", got, again, want)
	}
	drain(q)
	traffic.Of(0).Leave()
	if _, again := q.Ceilings(seen(traffic)); again != 0 || len(got.Bands) != 3 {
		t.Errorf("asked again after %v with %d bands, while nothing waits or runs", again, len(got.Bands))
	}
}

// Whatever a usage limit returns, ceilings are above 0, at most 1, and do not rise as priority falls.
func TestCeilingsKeepToTheirContract(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drawn := rapid.SliceOfN(rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1),
			rapid.SampledFrom([]float64{0, 1, -1, math.NaN(), math.Inf(1), math.Inf(-1)})), 3, 3).Draw(t, "ceilings")
		q := limited(limitFunc(func(_ *flow.Usage, out []float64) time.Duration {
			copy(out, drawn)
			return 0
		}))
		list, _ := q.Ceilings(seen(nil))
		above := 1.0
		for i, c := range list {
			if !(c.Share > 0 && c.Share <= above) {
				t.Fatalf("%v of %v: ceiling %d of %v", c, list, i, drawn)
			}
			if d := drawn[i]; d > 0 && d <= above && c.Share != max(d, 1e-9) {
				t.Fatalf("ceiling %v, want %v as it was drawn", c, d)
			}
			above = c.Share
		}
		if len(list) != 3 {
			t.Fatalf("%d ceilings, want 3", len(list))
		}
	})
}

func TestUsageLimitThatPanicsIsLeftOut(t *testing.T) {
	calls, fails := 0, true
	q := limited(limitFunc(func(_ *flow.Usage, out []float64) time.Duration {
		if calls++; fails {
			panic("no limit")
		}
		out[0], out[1], out[2] = .5, .5, .5
		return 0
	}))
	q.Ceilings(seen(nil))
	q.Ceilings(seen(nil))
	fails = false
	if list, _ := q.Ceilings(seen(nil)); len(list) != 3 || list[0].Share != .5 {
		t.Errorf("after two panics: %v", list)
	}
	fails = true
	for range 9 {
		if list, _ := q.Ceilings(seen(nil)); len(list) != 0 {
			t.Errorf("it panics, and yet there are ceilings: %v", list)
		}
	}
	if calls != 6 || q.Caught().Total() != 5 {
		t.Errorf("%d calls, %d panics, want 6 and 5: three in a row are the last", calls, q.Caught().Total())
	}
	s := everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{})
	s.UsageLimit, s.Priorities = limitFunc(func(*flow.Usage, []float64) time.Duration { return 0 }), []int{0}
	q.Configure(s)
	if list, _ := q.Ceilings(seen(nil)); len(list) != 1 {
		t.Errorf("another configuration brings %v, want a ceiling", list)
	}
}

func TestCeilingOfAPriority(t *testing.T) {
	var c flow.Ceilings
	if c.Of(0) != 1 || c.All() != nil {
		t.Error("without a list ceilings are not 1")
	}
	w := flow.CeilingsWriter{Ceilings: &c}
	w.Set([]flow.Ceiling{{5, .9}, {0, .5}, {-3, .2}})
	for priority, want := range map[int]float64{
		math.MaxInt32: .9, 5: .9, 4: .5, 0: .5, -1: .2, -3: .2, math.MinInt32: .2,
	} {
		if got := c.Of(priority); got != want {
			t.Errorf("priority %d: ceiling %v, want %v", priority, got, want)
		}
	}
	for _, step := range []struct {
		list  []flow.Ceiling
		risen bool
	}{
		{[]flow.Ceiling{{5, .9}, {0, .5}, {-3, .2}}, false},
		{[]flow.Ceiling{{5, .9}, {0, .4}, {-3, .2}}, false},
		{[]flow.Ceiling{{5, .8}, {0, .5}, {-3, .2}}, true},
		{[]flow.Ceiling{{5, .8}, {0, .5}}, true}, // below 0
		{nil, true},
		{[]flow.Ceiling{{0, 1}}, false},
	} {
		if risen := w.Set(step.list); risen != step.risen {
			t.Errorf("%v: risen %t, want %t", step.list, risen, step.risen)
		}
	}
}

func TestTrafficIsBounded(t *testing.T) {
	var traffic flow.Traffic
	for priority := range 1000 {
		traffic.Of(priority).Arrive()
	}
	told := 0
	for priority := range 1000 {
		if n := traffic.Of(priority).Counts().Arrivals; n == 1 {
			told++
		} else if n != 1000-256 {
			t.Fatalf("priority %d: %d arrivals, want those of all that are not told apart", priority, n)
		}
	}
	if told != 256 {
		t.Errorf("%d priorities are told apart, want 256", told)
	}
}

// Rates are means over about ten seconds, however often they are asked for.
func TestUsageLimitSeesRates(t *testing.T) {
	var got flow.Rates
	q := limited(limitFunc(func(in *flow.Usage, _ []float64) time.Duration {
		got = in.Bands[1].Rates
		return 0
	}))
	traffic, at := new(flow.Traffic), start
	for range 600 { // a minute at 20 and 10 a second
		at = at.Add(100 * time.Millisecond)
		traffic.Of(0).Arrive()
		traffic.Of(0).Arrive()
		traffic.Of(0).Dispatch()
		for range 3 {
			q.Ceilings(flow.Seen{Now: at, Traffic: traffic})
		}
	}
	if math.Abs(got.Arrivals-20) > .5 || math.Abs(got.Dispatches-10) > .5 {
		t.Errorf("got %+v, want 20 and 10 a second", got)
	}
	q.Ceilings(flow.Seen{Now: at.Add(10 * time.Second), Traffic: traffic})
	if got.Arrivals > 8 || got.Arrivals < 7 {
		t.Errorf("10 s later: %+v, want arrivals of 20/e", got)
	}
}

// Priorities that clients make up take no more memory than there are priorities told apart.
func TestRatesOfManyPriorities(t *testing.T) {
	q := limited(limitFunc(func(*flow.Usage, []float64) time.Duration { return 0 }))
	w := new(waiting)
	for priority := range 1000 {
		push(t, q, w.of("a", priority))
		q.Ceilings(seen(nil))
		drain(q)
	}
}

// crowding keeps half of the room from flows that have more than one request waiting.
type crowding struct {
	limitFunc
	crowd func(in *flow.Usage, i int) float64
}

func (c crowding) Crowd(in *flow.Usage, i int) float64 { return c.crowd(in, i) }

// Where there is no room for requests that crowd, those that do not are next, and otherwise turns go on as ever.
func TestRoomThatCrowdsMayNotTake(t *testing.T) {
	q, w := limited(nil), new(waiting)
	push(t, q, w.of("greedy", 0), w.of("greedy", 0), w.of("b", 0), w.of("greedy", 0), w.of("c", 0))
	reserved := func(e *flow.Entry) bool { return !e.Crowds() }
	var order []string
	for e := q.Next(reserved); e != nil; e = q.Next(reserved) {
		order = append(order, e.Flow.Fairness)
		if e.Crowds() {
			t.Errorf("%s crowds after it was dispatched alone", e.Flow.Fairness)
		}
	}
	if want := []string{"b", "c"}; !slices.Equal(order, want) {
		t.Fatalf("dispatched %v, want %v", order, want)
	}
	q.OpenAll()
	e := q.Next(anyRoom)
	if e == nil || e.Flow.Fairness != "greedy" || !e.Crowds() {
		t.Fatalf("dispatched %+v, want one that crowds", e)
	}
	q.Return(e)
	if got, want := drain(q), []string{"greedy1", "greedy2", "greedy4"}; !slices.Equal(got, want) {
		t.Errorf("dispatched %v, want %v", got, want)
	}
}

func TestCrowdShare(t *testing.T) {
	for name, c := range map[string]struct {
		crowd func(*flow.Usage, int) float64
		want  float64
	}{
		"a half":    {func(*flow.Usage, int) float64 { return .5 }, .5},
		"nothing":   {func(*flow.Usage, int) float64 { return 0 }, 1},
		"no number": {func(*flow.Usage, int) float64 { return math.NaN() }, 1},
		"a panic":   {func(*flow.Usage, int) float64 { panic("crowd") }, 1},
	} {
		q := limited(crowding{func(*flow.Usage, []float64) time.Duration { return 0 }, c.crowd})
		e := new(waiting).of("a", 0)
		if got := q.CrowdShare(e); got != 1 {
			t.Errorf("%s: %v before the limit was asked, want 1", name, got)
		}
		q.Ceilings(seen(nil))
		if got := q.CrowdShare(e); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := limited(nil).CrowdShare(new(waiting).of("a", 0)); got != 1 {
		t.Errorf("without a limit: %v, want 1", got)
	}
}

// Requests whose flow had none waiting are counted, at the rate at which they come.
func TestUsageLimitSeesWhoComesAlone(t *testing.T) {
	var got float64
	q := limited(limitFunc(func(in *flow.Usage, _ []float64) time.Duration {
		got = in.Bands[slices.IndexFunc(in.Bands, func(b flow.BandUsage) bool { return b.Priority == 0 })].Rates.Alone
		return 0
	}))
	w, at := new(waiting), start
	for range 300 { // half a minute, of ten requests a second and of as many that crowd
		at = at.Add(100 * time.Millisecond)
		push(t, q, w.of("a", 0), w.of("a", 0))
		drain(q)
		q.Ceilings(flow.Seen{Now: at, Traffic: new(flow.Traffic)})
	}
	if math.Abs(got-10) > 1 {
		t.Errorf("%v come alone in a second, want 10", got)
	}
}
