package orderings

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

var start = time.Unix(1_800_000_000, 0)

func TestOrder(t *testing.T) {
	wait := func(arrived, deadline, ttft time.Duration) flow.Wait {
		return flow.Wait{Arrived: start.Add(arrived), Deadline: start.Add(deadline), TTFT: ttft}
	}
	entries := map[string]*flow.Entry{
		"first":  {Wait: wait(0, time.Minute, 0), Work: flow.Work{Prompt: 30_000, Output: 1000}},
		"second": {Wait: wait(time.Second, 30*time.Second, 20*time.Second), Work: flow.Work{Prompt: 100}},
		"third":  {Wait: wait(2*time.Second, 40*time.Second, 5*time.Second), Work: flow.Work{Prompt: 100, Output: 50}},
		"fourth": {Wait: wait(3*time.Minute, 4*time.Minute, 0), Work: flow.Work{Prompt: 10}},
	}
	number := map[string]uint64{"first": 1, "second": 2, "third": 3, "fourth": 4}
	for name, c := range map[string]struct {
		ordering flow.Ordering
		want     []string
	}{
		"arrival":        {new(FCFS), []string{"first", "second", "third", "fourth"}},
		"end of wait":    {new(EDF), []string{"second", "third", "first", "fourth"}},
		"first token":    {new(SLODeadline), []string{"third", "second", "first", "fourth"}},
		"work":           {&ShortestWork{AgeingTokensPerSecond: 200}, []string{"second", "third", "first", "fourth"}},
		"work, no haste": {&ShortestWork{AgeingTokensPerSecond: 1}, []string{"second", "fourth", "third", "first"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for n, e := range entries {
				e.Order = flow.Order{Key: c.ordering.Key(e), Number: number[n]}
				got = append(got, n)
			}
			slices.SortFunc(got, func(a, b string) int {
				if entries[a].Before(entries[b]) {
					return -1
				}
				return 1
			})
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestNeeds(t *testing.T) {
	for name, fresh := range Types {
		if !fresh().Needs().Has(flow.Needed) {
			t.Errorf("%s needs %v, want what every queue must be able to do among it", name, fresh().Needs().Names())
		}
	}
}

func TestShortestWorkParameters(t *testing.T) {
	for _, v := range []float64{0, -1, math.NaN(), math.Inf(1), 1e10} {
		err := (&ShortestWork{AgeingTokensPerSecond: v}).Validate()
		if err == nil || !strings.Contains(err.Error(), "ageingTokensPerSecond: got") {
			t.Errorf("%v: %v, want an error", v, err)
		}
	}
	long := &ShortestWork{AgeingTokensPerSecond: math.SmallestNonzeroFloat64}
	huge := &flow.Entry{Wait: flow.Wait{Arrived: start}, Work: flow.Work{Prompt: math.MaxInt, Output: math.MaxInt}}
	if err := long.Validate(); err != nil || long.Key(huge) <= long.Key(&flow.Entry{Wait: huge.Wait}) {
		t.Errorf("%v; the most work there is comes at %d, none at %d", err, long.Key(huge),
			long.Key(&flow.Entry{Wait: huge.Wait}))
	}
}
