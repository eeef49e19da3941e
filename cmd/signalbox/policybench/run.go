package policybench

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Outcome is what was measured of a play.
type Outcome struct {
	Requests   int
	Mean       float64 // seconds to the first token; that of a lost request counts to the end of the play
	P50, P90   float64
	P99        float64
	PerToken   float64 // mean seconds between two tokens of an answer
	End        float64 // mean seconds to the end
	Hits       float64 // share of the tokens of prompts that were cached
	Good       float64 // share of requests whose first token came within goodTTFT
	Lost       int
	Retried    int
	Spread     float64 // most computed tokens of a server divided by the mean of all
	Busy       float64 // share of the time that servers computed
	Throughput float64 // requests a second
}

// goodTTFT is within which a first token has to come to count as good.
const goodTTFT = 2 * time.Second

// Run plays once.
func Run(p Play, c Contender) (Outcome, error) {
	w := &world{Play: p, now: start, rand: newRand(p.Seed)}
	if c.rule != nil {
		w.policy = c.rule()
		w.play()
	} else if err := w.playProduct(c.File); err != nil {
		return Outcome{}, err
	}
	return w.outcome(), nil
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

func (w *world) outcome() (o Outcome) {
	from, to := start.Add(w.Warm), start.Add(w.Warm+w.Length)
	var first []float64
	var perToken, ends, tokens, cached, answered float64
	for _, x := range w.all {
		if x.came.Before(from) || !x.came.Before(to) {
			continue
		}
		o.Requests++
		if x.tries > 0 {
			o.Retried++
		}
		if x.first.IsZero() || x.lost {
			o.Lost++
			first = append(first, w.now.Sub(x.came).Seconds())
			continue
		}
		t := x.first.Sub(x.came)
		first = append(first, t.Seconds())
		if t <= goodTTFT {
			o.Good++
		}
		tokens, cached = tokens+float64(x.prompt), cached+float64(x.cached)
		if !x.ended.IsZero() {
			answered++
			ends += x.ended.Sub(x.came).Seconds()
			perToken += x.ended.Sub(x.first).Seconds() / float64(max(x.output-1, 1))
		}
	}
	if o.Requests == 0 {
		return o
	}
	slices.Sort(first)
	for _, t := range first {
		o.Mean += t
	}
	o.Mean /= float64(len(first))
	o.P50, o.P90, o.P99 = quantile(first, .5), quantile(first, .9), quantile(first, .99)
	o.PerToken, o.End, o.Hits = perToken/max(answered, 1), ends/max(answered, 1), cached/max(tokens, 1)
	o.Good /= float64(o.Requests)
	o.Throughput = float64(o.Requests) / w.Length.Seconds()
	var sum, most float64
	for _, n := range w.servers {
		all := n.before.plus(n.tally)
		sum += float64(all.computed)
		most = max(most, float64(all.computed))
		o.Busy += all.busy.Seconds() / w.now.Sub(start).Seconds() / float64(len(w.servers))
	}
	o.Spread = most * float64(len(w.servers)) / max(sum, 1)
	return o
}

// quantile returns a quantile of sorted values.
func quantile(sorted []float64, q float64) float64 {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
