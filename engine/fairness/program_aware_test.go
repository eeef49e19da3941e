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

// candidate returns a flow that was charged so long ago, and whose first request has waited for so long.
func candidate(number uint64, service int64, ago, waited time.Duration) flow.Candidate {
	return flow.Candidate{
		Account: &flow.Account{Service: service, At: start.Add(-ago)},
		Head:    &flow.Entry{Wait: flow.Wait{Arrived: start.Add(-waited)}, Order: flow.Order{Number: number}},
	}
}

func TestLeastAttainedServiceIsNext(t *testing.T) {
	plain := func(p *ProgramAware) {}
	for name, c := range map[string]struct {
		change func(*ProgramAware)
		all    []flow.Candidate
		want   int
	}{
		"one alone": {plain, []flow.Candidate{candidate(1, 9, 0, 0)}, 0},
		"the least": {plain, []flow.Candidate{
			candidate(1, 300, 0, time.Second), candidate(2, 100, 0, time.Second), candidate(3, 200, 0, time.Second),
		}, 1},
		"the wait decides between equals": {plain, []flow.Candidate{
			candidate(1, 100, 0, time.Second), candidate(2, 100, 0, 3*time.Second),
		}, 1},
		"arrival decides if all is equal": {plain, []flow.Candidate{
			candidate(3, 0, 0, time.Second), candidate(2, 0, 0, time.Second),
		}, 1},
		"the wait weighs little": {plain, []flow.Candidate{
			candidate(1, 100, 0, 0), candidate(2, 200, 0, time.Hour),
		}, 0},
		"the wait weighs in the middle": {plain, []flow.Candidate{ // 0.8 + 0, 0.64 + 0.2, 0 + 0.04
			candidate(1, 0, 0, 0), candidate(2, 20, 0, 10*time.Second), candidate(3, 100, 0, 2*time.Second),
		}, 1},
		"the wait weighs more": {func(p *ProgramAware) { p.LASWeightHeadWait = 2 }, []flow.Candidate{
			candidate(1, 100, 0, 0), candidate(2, 200, 0, time.Second),
		}, 1},
		"service is forgotten": {plain, []flow.Candidate{
			candidate(1, 100, 0, 0), candidate(2, 190, time.Minute, 0),
		}, 1},
		"by half in a half-life": {plain, []flow.Candidate{
			candidate(1, 100, 0, 0), candidate(2, 210, time.Minute, 0),
		}, 0},
		"by a factor": {func(p *ProgramAware) { p.LASHalfLifeSeconds, p.LASDecayFactor = 0, .5 }, []flow.Candidate{
			candidate(1, 100, 0, 0), candidate(2, 390, 2*time.Second, 0),
		}, 1},
		"never": {func(p *ProgramAware) { p.LASHalfLifeSeconds, p.LASDecayFactor, p.EvictionTTLSeconds = 0, 1, 0 },
			[]flow.Candidate{candidate(1, 100, 0, 0), candidate(2, 101, 1e4*time.Hour, 0)}, 0},
		"all of it, after a time": {func(p *ProgramAware) { p.LASHalfLifeSeconds, p.LASDecayFactor = 0, 1 },
			[]flow.Candidate{candidate(1, 1, 0, 0), candidate(2, 1e6, time.Hour+1, 0)}, 1},
		"a clock that stands back": {plain, []flow.Candidate{
			candidate(1, 100, -time.Hour, 0), candidate(2, 99, 0, 0),
		}, 1},
		"weights of 0": {func(p *ProgramAware) { p.LASWeightHeadWait, p.LASWeightService = 0, 0 },
			[]flow.Candidate{candidate(2, 1, 0, 0), candidate(1, 100, 0, 0)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := las()
			if c.change(p); p.Validate() != nil {
				t.Fatal(p.Validate())
			}
			if got := p.Choose(start, c.all); got != c.want {
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
