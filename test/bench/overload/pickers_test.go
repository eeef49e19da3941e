package overload

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// Two pickers over the same servers each have a half of twice the load that these bear. Each counts its own requests,
// and pages tell it of the other's: servers lack no work, both are served about as much, and what waits at a server is
// about what each of the two has wait there.
func TestTwoPickers(t *testing.T) {
	for _, source := range []Source{decode, prefill} {
		for name, text := range map[string]string{
			"learning":    gated,
			"utilization": detecting("utilization-detector", "queueDepthThreshold: 2"),
		} {
			for _, light := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, light %v", name, source.Name, light), func(t *testing.T) {
					source.Flow = flow("a", 0)
					playTwoPickers(t, Play{Text: text, Length: 150 * time.Second, Servers: servers(2, medium),
						Load: []Source{source}, Light: light, Path: 5 * time.Millisecond})
				})
			}
		}
	}
}

func playTwoPickers(t *testing.T, p Play) {
	t.Helper()
	one := played(t, p)
	p.Second = true
	two := played(t, p)
	seen := func(r *Result) figures { return r.between("", 30*time.Second, p.Length) }
	queue := func(of []*Result) interval {
		return over(len(of), func(i int) float64 { return float64(seen(of[i]).queue) })
	}
	work := ratio(two, one, func(r *Result) float64 { return seen(r).tokens })
	second := over(len(two), func(i int) float64 { return two[i].shareOfSecond() })
	t.Logf("tokens %v of one picker's, p95 of the servers' queues %v, with one %v; share of the second %v", work,
		queue(two), queue(one), second)
	if work.mean < .95 || queue(two).mean > 2*queue(one).mean+4 || math.Abs(second.mean-.5) > .25 {
		t.Error("want .95 of the tokens, about twice the queue, and about half for each")
	}
}

// shareOfSecond returns which share of the served requests were those of the second picker.
func (r *Result) shareOfSecond() float64 {
	second, all := 0., 0.
	for i, a := range r.Answers { // their ids count from 1
		if a.Ended > 0 {
			all++
			second += float64((i + 1) % 2)
		}
	}
	return second / all
}

// Order, shares and tokens do not depend on the number of loops.
func TestLoopsDoNotMatter(t *testing.T) {
	load := func(name string, priority int) Source {
		return Source{Name: name, Flow: flow(name, priority), Clients: 100, Prompt: Length{300, 200},
			Output: Length{200, 100}}
	}
	p := Play{Text: gated, Length: 100 * time.Second, Servers: servers(2, medium),
		Load: []Source{load("a", 0), load("b", 0), load("low", -10)}}
	served := func(f figures) float64 { return float64(f.served) }
	computed := func(f figures) float64 { return f.tokens }
	one := math.NaN() // tokens with one loop
	for _, loops := range []int{1, 2, 4, 16} {
		p.Loops = loops
		all := played(t, p)
		sum := func(name string, figure func(figures) float64) (sum float64) {
			for _, r := range all {
				sum += figure(r.between(name, 20*time.Second, p.Length))
			}
			return sum
		}
		a, b, low, work := sum("a", served), sum("b", served), sum("low", served), sum("", computed)
		if loops == 1 {
			one = work
		}
		t.Logf("%d loops: served %.0f, %.0f, low %.0f; tokens %.3f of those with one loop", loops, a, b, low, work/one)
		if math.Abs(a/(a+b)-.5) > .02 || low > 0 || math.Abs(work/one-1) > .02 {
			t.Error("want half for each, nothing for the lower band, and as many tokens as with one loop")
		}
	}
}
