package ceilings

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

// usage returns what bands of these priorities are shown, a request of each waiting.
func usage(saturation float64, after time.Duration, priorities ...int) *flow.Usage {
	in := &flow.Usage{Now: time.Unix(1_800_000_000, 0).Add(after), Saturation: saturation}
	for _, p := range priorities {
		in.Bands = append(in.Bands, flow.BandUsage{Priority: p, Waiting: 1})
	}
	return in
}

func ask(p flow.UsageLimit, in *flow.Usage) (out []float64, again time.Duration) {
	for range in.Bands {
		out = append(out, 1)
	}
	again = p.Ceilings(in, out)
	return out, again
}

func TestCeilings(t *testing.T) {
	least := .4
	by := func(domain string) *PriorityHoldback {
		return &PriorityHoldback{MinCeiling: &least, MaxCeiling: .8, Domain: domain, Shape: linear}
	}
	for name, c := range map[string]struct {
		policy flow.UsageLimit
		in     *flow.Usage
		want   []float64
	}{
		"static":                {&Static{Threshold: .7}, usage(0, 0, 5, 0), []float64{.7, .7}},
		"rank, one":             {by(byRank), usage(0, 0, 5), []float64{.8}},
		"rank, two":             {by(byRank), usage(0, 0, 100, -1), []float64{.8, .4}},
		"rank, three":           {by(byRank), usage(0, 0, 100, 1, 0), []float64{.8, .6, .4}},
		"value, one":            {by(byValue), usage(0, 0, 5), []float64{.8}},
		"value, three":          {by(byValue), usage(0, 0, 100, 75, 0), []float64{.8, .7, .4}},
		"value, the extremes":   {by(byValue), usage(0, 0, math.MaxInt32, 0, math.MinInt32), []float64{.8, .6, .4}},
		"soft, idle":            {new(SoftReflective), usage(0, 0, 2, 1, 0), []float64{1, 1, 1}},
		"soft, one band":        {new(SoftReflective), usage(.9, 0, 2), []float64{1}},
		"soft, unknown":         {new(SoftReflective), usage(math.NaN(), 0, 2, 1), []float64{1, 1}},
		"soft, below all":       {new(SoftReflective), usage(.49, tick, 2, 1, 0), []float64{1, 1, 1}},
		"soft, the lowest":      {new(SoftReflective), usage(.65, tick, 2, 1, 0), []float64{1, 1, .5}},
		"soft, two of three":    {new(SoftReflective), usage(.9, tick, 2, 1, 0), []float64{1, 2. / 3, .5}},
		"soft, saturated":       {new(SoftReflective), usage(1, 0, 2, 1, 0), []float64{1, 2. / 3, .5}},
		"soft, oversaturated":   {new(SoftReflective), usage(7, 0, 2, 1), []float64{1, .5}},
		"soft, as good as full": {new(SoftReflective), usage(1-1e-12, 0, 2, 1), []float64{1, .5}},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := ask(c.policy, c.in)
			if d := cmp.Diff(c.want, got, cmpopts.EquateApprox(0, 1e-4)); d != "" {
				t.Errorf("want -, got +:\n%s", d)
			}
		})
	}
}

// Bands that are held back are served in one of s / (1 - s) ticks, and the policy is asked again when that changes.
func TestSoftReflectiveServesFromTimeToTime(t *testing.T) {
	for saturation, want := range map[float64]int{.5: 120, .65: 60, .75: 40, .8: 30, .9: 13, .95: 6} {
		open := 0
		for i := range 120 {
			out, again := ask(new(SoftReflective), usage(saturation, time.Duration(i)*tick+tick/4, 1, 0))
			if out[1] == 1 {
				open++
			}
			later, _ := ask(new(SoftReflective), usage(saturation, time.Duration(i)*tick+tick/4+again, 1, 0))
			before, _ := ask(new(SoftReflective), usage(saturation, time.Duration(i)*tick+tick/4+again-1, 1, 0))
			if again > 0 && (later[1] == out[1] || before[1] != out[1]) {
				t.Fatalf("saturation %v: %v now, %v before %v have passed, %v then", saturation, out[1], before[1],
					again, later[1])
			}
			if again == 0 && saturation > .5 {
				t.Fatalf("saturation %v: not asked again, and a band is held back", saturation)
			}
		}
		if open < want-2 || open > want+2 {
			t.Errorf("saturation %v: served in %d of 120 ticks, want %d", saturation, open, want)
		}
	}
}

// While nothing is held back, or nothing of it waits, nothing wakes the picker up.
func TestSoftReflectiveIsNotAskedInVain(t *testing.T) {
	for name, in := range map[string]*flow.Usage{
		"below":            usage(.3, tick, 1, 0),
		"saturated":        usage(1, tick, 1, 0),
		"the highest only": usage(.9, tick, 1),
		"nothing waits":    {Now: usage(0, tick).Now, Saturation: .9, Bands: []flow.BandUsage{{Priority: 1}, {}}},
	} {
		if _, again := ask(new(SoftReflective), in); again != 0 {
			t.Errorf("%s: asked again after %v", name, again)
		}
	}
}

func TestParameters(t *testing.T) {
	at := func(v float64) *float64 { return &v }
	for _, c := range []struct {
		p    interface{ Validate() error }
		want string
	}{
		{&Static{}, "threshold: got 0, want more than 0, at most 1"},
		{&Static{math.NaN()}, "threshold: got NaN, want more than 0, at most 1"},
		{&Static{1.01}, "threshold: got 1.01, want more than 0, at most 1"},
		{Types["priority-holdback-policy"]().(*PriorityHoldback),
			"minCeiling: missing; name the ceiling of the lowest priority"},
		{&PriorityHoldback{MinCeiling: at(1), MaxCeiling: 2, Domain: "explicit"},
			"minCeiling: got 1, want 0 or more, below 1\nmaxCeiling: got 2, want more than 0, at most 1\n" +
				"domain: got \"explicit\", want one of [rank value]\nshape: got \"\", want linear"},
		{&PriorityHoldback{MinCeiling: at(math.NaN()), MaxCeiling: math.NaN(), Domain: byRank, Shape: linear},
			"minCeiling: got NaN, want 0 or more, below 1\nmaxCeiling: got NaN, want more than 0, at most 1"},
		{&PriorityHoldback{MinCeiling: at(.5), MaxCeiling: .5, Domain: byRank, Shape: linear},
			"minCeiling: got 0.5, want less than maxCeiling, which is 0.5"},
	} {
		if err := c.p.Validate(); fmt.Sprint(err) != c.want {
			t.Errorf("got\n%v\nwant\n%s", err, c.want)
		}
	}
	good := &PriorityHoldback{MinCeiling: at(0), MaxCeiling: 1, Domain: byValue, Shape: linear}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

// coming returns what bands are shown to which so many requests come in a second, while so many leave and run in all.
func coming(leaving float64, inflight int64, arrivals ...float64) *flow.Usage {
	in := usage(1, 0)
	for i, rate := range arrivals {
		b := flow.BandUsage{Priority: -i, Rates: flow.Rates{Arrivals: rate}}
		if i == 0 {
			b.Rates.Dispatches, b.Inflight = leaving, inflight
		}
		in.Bands = append(in.Bands, b)
	}
	return in
}

func TestReserve(t *testing.T) {
	for name, c := range map[string]struct {
		in   *flow.Usage
		want []float64
	}{
		"one band":                  {coming(10, 100, 10), []float64{1}},
		"none of the higher comes":  {coming(10, 100, 0, 10), []float64{1, 1}},
		"a third of what leaves":    {coming(30, 250, 10, 50), []float64{1, 1 - 5./250}},
		"few places":                {coming(30, 20, 10, 50), []float64{1, .9}},
		"more come than leave":      {coming(10, 1000, 50, 50), []float64{1, 1 - 51./1000}},
		"nothing runs":              {coming(0, 0, 50, 50), []float64{1, 1}},
		"nothing has left so far":   {coming(0, 1000, 50, 50), []float64{1, 1 - 51./1000}},
		"the sum of higher ones":    {coming(30, 1000, 5, 5, 9), []float64{1, 1 - 3./1000, 1 - 5./1000}},
		"rare ones need few places": {coming(50, 500, .5, 9), []float64{1, 1 - 2./500}},
	} {
		got, again := ask(new(Reserve), c.in)
		if d := cmp.Diff(c.want, got, cmpopts.EquateApprox(0, 1e-9)); d != "" || again != 0 {
			t.Errorf("%s: again after %v; want -, got +:\n%s", name, again, d)
		}
	}
	if err := new(Reserve).Validate(); err != nil {
		t.Error(err)
	}
}

func TestReserveForThoseWhoComeAlone(t *testing.T) {
	for name, c := range map[string]struct {
		alone float64
		want  float64
	}{
		"none comes":        {0, 1},
		"hardly one":        {1, 1},
		"a third":           {10, 1 - 5./250},
		"more than leave":   {99, .9},
		"the least that is": {1.6, 1 - 2./250},
	} {
		in := coming(30, 250, 50)
		in.Bands[0].Rates.Alone = c.alone
		if got := new(Reserve).Crowd(in, 0); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
