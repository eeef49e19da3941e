package overload

import (
	"math"
	"testing"
	"time"
)

// Two tenants whose requests have 100 and 10 000 tokens are given the same number of tokens at all times, also after
// one of them was idle for a while.
func TestTokensAreSharedEvenly(t *testing.T) {
	small := Source{
		Name: "small", Flow: flow("small", 0), Clients: 120, Prompt: Length{60, 10}, Output: Length{40, 10},
	}
	large := Source{
		Name: "large", Flow: flow("large", 0), Clients: 40, To: 200 * time.Second, Prompt: Length{9000, 500},
		Output: Length{1000, 200},
	}
	again := large
	again.From, again.To = 300*time.Second, 0
	p := Play{
		Text: tokenOrder(0), Length: 520 * time.Second, Servers: servers(2, medium),
		Load: []Source{small, large, again},
	}
	const bound = 4 * 10_700. // four of the larger requests, of which sixteen may run
	for seed, r := range played(t, p) {
		given := func(name string, from, to time.Duration) (sum float64) {
			for _, a := range r.Answers {
				if a.Source == name && a.Ended >= from && a.Ended < to {
					sum += float64(a.Prompt + a.Output)
				}
			}
			return sum
		}
		for _, span := range [][2]time.Duration{{20 * time.Second, 200 * time.Second}, {300 * time.Second, p.Length}} {
			most := 0.
			for to := span[0]; to <= span[1]; to += 5 * time.Second {
				most = max(most, math.Abs(given("small", span[0], to)-given("large", span[0], to)))
			}
			s, l := given("small", span[0], span[1]), given("large", span[0], span[1])
			jain := (s + l) * (s + l) / (2 * (s*s + l*l))
			t.Logf(
				"seed %d, from %v on: %.0f and %.0f tokens, Jain's index %.3f, gap %.0f of %.0f", seed+1, span[0], s, l,
				jain, most, bound)
			if jain < .95 || most > bound {
				t.Error("want an index of 0.95, and the gap within the bound")
			}
		}
	}
}
