package fairness

import (
	"fmt"
	"math"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

func TestWeightsAreBounded(t *testing.T) {
	p := &Token{Weights: map[string]float64{"b": 0, "a": math.NaN(), "c": 1000, "d": 1e4, "e": 0.001}}
	want := "weights.a: got NaN, want 0.001 to 1000\nweights.b: got 0, want 0.001 to 1000\n" +
		"weights.d: got 10000, want 0.001 to 1000"
	if err := p.Validate(); fmt.Sprint(err) != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestRanks(t *testing.T) {
	head := &flow.Entry{Order: flow.Order{Key: 7}}
	for name, c := range map[string]struct {
		policy  flow.Fairness
		account flow.Account
		joins   int64 // rank at which the flow begins to wait; 0 = it waits already
		want    int64
	}{
		"the first request":                  {new(GlobalStrict), flow.Account{Weight: 1, Service: 5, Served: 6}, 9, 7},
		"the last turn":                      {new(RoundRobin), flow.Account{Weight: 1, Service: 5, Served: 6}, 0, 6},
		"a new flow's turn comes at the end": {new(RoundRobin), flow.Account{Weight: 1}, 9, 9},
		"a turn that was later stays":        {new(RoundRobin), flow.Account{Weight: 1, Served: 12}, 9, 12},
		"tokens":                             {new(Token), flow.Account{Weight: 1, Service: 5}, 0, 5},
		"tokens by weight":                   {new(Token), flow.Account{Weight: 4, Service: 40}, 0, 10},
		"what was left idle is not saved":    {new(Token), flow.Account{Weight: 4, Service: 8}, 10, 10},
		"what was charged beyond stays":      {new(Token), flow.Account{Weight: 4, Service: 80}, 10, 20},
	} {
		t.Run(name, func(t *testing.T) {
			if c.joins > 0 {
				c.policy.Join(&c.account, c.joins)
			}
			if got := c.policy.Rank(&c.account, head); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}
