package fairness

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

var start = time.Unix(1_800_000_000, 0)

func las() *ProgramAware { return Types["program-aware-fairness"]().(*ProgramAware) }

type candidate struct {
	*flow.Account
	head *flow.Entry
}

// flowOf returns a flow that was charged so long ago, and whose first request has waited for so long.
func flowOf(number uint64, service int64, ago, waited time.Duration) candidate {
	return candidate{
		Account: &flow.Account{Service: service, At: start.Add(-ago)},
		head:    &flow.Entry{Wait: flow.Wait{Arrived: start.Add(-waited)}, Order: flow.Order{Number: number}},
	}
}

// choose returns the flow that is next.
func choose(p *ProgramAware, all []candidate) (next int) {
	points := make([]flow.Point, len(all))
	for i, c := range all {
		points[i], _ = p.Point(start, c.Account, c.head)
	}
	place := func(of func(flow.Point) float64, i int) float64 {
		least, most := math.Inf(1), math.Inf(-1)
		for _, q := range points {
			least, most = min(least, of(q)), max(most, of(q))
		}
		if least == most {
			return 0
		}
		return (of(points[i]) - least) / (most - least)
	}
	cost := func(i int) float64 {
		w := p.Weights()
		return w.X*place(func(q flow.Point) float64 { return q.X }, i) +
			w.Y*place(func(q flow.Point) float64 { return q.Y }, i)
	}
	for i := range all {
		if c, least := cost(i), cost(next); c < least || c == least && all[i].head.Number < all[next].head.Number {
			next = i
		}
	}
	return next
}

func TestLeastAttainedServiceIsNext(t *testing.T) {
	plain := func(p *ProgramAware) {}
	for name, c := range map[string]struct {
		change func(*ProgramAware)
		all    []candidate
		want   int
	}{
		"one alone": {plain, []candidate{flowOf(1, 9, 0, 0)}, 0},
		"the least": {plain, []candidate{
			flowOf(1, 300, 0, time.Second), flowOf(2, 100, 0, time.Second), flowOf(3, 200, 0, time.Second),
		}, 1},
		"the wait decides between equals": {plain, []candidate{
			flowOf(1, 100, 0, time.Second), flowOf(2, 100, 0, 3*time.Second),
		}, 1},
		"arrival decides if all is equal": {plain, []candidate{
			flowOf(3, 0, 0, time.Second), flowOf(2, 0, 0, time.Second),
		}, 1},
		"the wait weighs little": {plain, []candidate{
			flowOf(1, 100, 0, 0), flowOf(2, 200, 0, time.Hour),
		}, 0},
		"the wait weighs in the middle": {plain, []candidate{ // 0.8 + 0, 0.64 + 0.2, 0 + 0.04
			flowOf(1, 0, 0, 0), flowOf(2, 20, 0, 10*time.Second), flowOf(3, 100, 0, 2*time.Second),
		}, 1},
		"the wait weighs more": {func(p *ProgramAware) { p.LASWeightHeadWait = 2 }, []candidate{
			flowOf(1, 100, 0, 0), flowOf(2, 200, 0, time.Second),
		}, 1},
		"service is forgotten": {plain, []candidate{
			flowOf(1, 100, 0, 0), flowOf(2, 190, time.Minute, 0),
		}, 1},
		"by half in a half-life": {plain, []candidate{
			flowOf(1, 100, 0, 0), flowOf(2, 210, time.Minute, 0),
		}, 0},
		"by a factor": {func(p *ProgramAware) { p.LASHalfLifeSeconds, p.LASDecayFactor = 0, .5 }, []candidate{
			flowOf(1, 100, 0, 0), flowOf(2, 390, 2*time.Second, 0),
		}, 1},
		"never": {func(p *ProgramAware) { p.LASHalfLifeSeconds, p.LASDecayFactor, p.EvictionTTLSeconds = 0, 1, 0 },
			[]candidate{flowOf(1, 100, 0, 0), flowOf(2, 101, 1e4*time.Hour, 0)}, 0},
		"all of it, after a time": {func(p *ProgramAware) { p.LASHalfLifeSeconds, p.LASDecayFactor = 0, 1 },
			[]candidate{flowOf(1, 1, 0, 0), flowOf(2, 1e6, time.Hour+1, 0)}, 1},
		"a clock that stands back": {plain, []candidate{
			flowOf(1, 100, -time.Hour, 0), flowOf(2, 99, 0, 0),
		}, 1},
		"weights of 0": {func(p *ProgramAware) { p.LASWeightHeadWait, p.LASWeightService = 0, 0 },
			[]candidate{flowOf(2, 1, 0, 0), flowOf(1, 100, 0, 0)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := las()
			if c.change(p); p.Validate() != nil {
				t.Fatal(p.Validate())
			}
			if got := choose(p, c.all); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// Output costs twice as much as prompts, and is added to what is left.
func TestProgramIsChargedByWhatIsLeft(t *testing.T) {
	a := &flow.Account{Service: 400, At: start}
	las().Charge(a, start.Add(2*time.Minute), flow.Tokens{Prompt: 10, Output: 7})
	if a.Service != 124 {
		t.Errorf("service %d, want a quarter of 400, and 10 + 2 * 7", a.Service)
	}
	las().Charge(a, start, flow.Tokens{Prompt: -10})
	if a.Service != 114 {
		t.Errorf("service %d, want 114", a.Service)
	}
}

func TestProgramAwareRefusesParameters(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		p    *ProgramAware
		want string
	}{
		{las(), "<nil>"},
		{&ProgramAware{Strategy: "drr", LASDecayFactor: 1, EvictionSweepSeconds: 1}, "strategy: got \"drr\", want las"},
		{&ProgramAware{Strategy: "las", EvictionTTLSeconds: -1, EvictionSweepSeconds: 0, LASWeightService: nan,
			LASWeightHeadWait: math.Inf(1), LASHalfLifeSeconds: 1e10, LASDecayFactor: 1.5},
			"evictionTtlSeconds: got -1, want 0 or more, at most 1e+09\n" +
				"lasWeightService: got NaN, want 0 or more, at most 1e+09\n" +
				"lasWeightHeadWait: got +Inf, want 0 or more, at most 1e+09\n" +
				"lasHalfLifeSeconds: got 1e+10, want 0 or more, at most 1e+09\n" +
				"evictionSweepSeconds: got 0, want more than 0, at most 1e+09\n" +
				"lasDecayFactor: got 1.5, want more than 0, at most 1"},
	} {
		if err := c.p.Validate(); fmt.Sprint(err) != c.want {
			t.Errorf("got\n%v\nwant\n%s", err, c.want)
		}
	}
}

// Points hold until the service of a flow is forgotten, and no longer than an age of 256 half-lives.
func TestPointsHoldForAnAge(t *testing.T) {
	p, a := las(), &flow.Account{Service: 100, At: start}
	head := &flow.Entry{Wait: flow.Wait{Arrived: start}}
	before, until := p.Point(start, a, head)
	if want := start.Add(time.Hour); !until.Equal(want) {
		t.Errorf("until %v, want the end of the service: %v", until, want)
	}
	if still, _ := p.Point(until, a, head); still != before {
		t.Errorf("%v, and at its end %v", before, still)
	}
	if after, _ := p.Point(until.Add(1), a, head); after.X != 0 {
		t.Errorf("service %v, want that it is forgotten", after.X)
	}
	p.EvictionTTLSeconds = 0
	_, until = p.Point(start, a, head)
	if left := until.Sub(start); left <= 0 || left > 256*time.Minute {
		t.Fatalf("for %v", left)
	}
	later := until.Add(time.Second)
	x, _ := p.Point(later, a, head)
	y, _ := p.Point(later, &flow.Account{Service: 100, At: start.Add(-time.Minute)}, head)
	if x.X != 2*y.X {
		t.Errorf("in the next age %v and %v, want twice as much", x.X, y.X)
	}
}
