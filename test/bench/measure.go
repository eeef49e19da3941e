package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/test/bench/load"
)

// target is a server under load and what loads it.
type target struct {
	name string
	*process
	gen *load.Generator
}

// shot is what one round of one target came to, per request.
type shot struct {
	cpu             float64 // microseconds
	mallocs         float64
	perSecond       float64
	cores           float64 // that the server used
	p50, p99, p999  float64 // of the pick, microseconds
	requests, tardy int
}

// loading is one way to load a server for one round.
type loading func(*load.Generator) (load.Result, error)

// shoot runs one round.
func (t *target) shoot(run loading) (s shot, err error) {
	var cpu [2]time.Duration
	var mallocs [2]float64
	look := func(i int) {
		if err == nil {
			mallocs[i], err = t.series(mallocsSeries)
		}
	}
	look(0)
	if cpu[0], err = t.cpu(); err != nil {
		return s, err
	}
	r, err := run(t.gen)
	if err != nil {
		return s, fmt.Errorf("%s: %w", t.name, err)
	}
	if cpu[1], err = t.cpu(); err != nil {
		return s, err
	}
	look(1)
	if r.Requests == 0 {
		return s, fmt.Errorf("%s: no request ended", t.name)
	}
	n, used := float64(r.Requests), cpu[1]-cpu[0]
	return shot{
		cpu: micros(used) / n, mallocs: (mallocs[1] - mallocs[0]) / n, perSecond: n / r.Elapsed.Seconds(),
		cores: used.Seconds() / r.Elapsed.Seconds(), requests: r.Requests, tardy: r.Late,
		p50: micros(r.Quantile(.5)), p99: micros(r.Quantile(.99)), p999: micros(r.Quantile(.999)),
	}, err
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// shots are those of each target, whose rounds took turns.
type shots [][]shot

// alternate gives every target one round after the other, the first uncounted,
// so that what disturbs the machine disturbs all of them.
func alternate(targets []*target, rounds int, run loading) (shots, error) {
	all := make(shots, len(targets))
	for round := range rounds + 1 {
		for i := range targets {
			at := (i + round) % len(targets) // none always comes after the same one
			s, err := targets[at].shoot(run)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				all[at] = append(all[at], s)
			}
		}
	}
	return all, nil
}

// median of one figure of a target's rounds.
func (all shots) median(i int, of func(shot) float64) float64 {
	var v []float64
	for _, s := range all[i] {
		v = append(v, of(s))
	}
	return median(v)
}

// ratio is the median of the rounds' ratios of CPU per request, with the lowest and the highest.
func (all shots) ratio(i, over int) (mid, lo, hi float64) {
	var v []float64
	for round := range all[i] {
		v = append(v, all[i][round].cpu/all[over][round].cpu)
	}
	return median(v), slices.Min(v), slices.Max(v)
}

func median[T cmp.Ordered](v []T) T {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// figure prints a number with three digits, or as many as it has before the point.
func figure(v float64) string {
	switch {
	case v == 0 || math.IsNaN(v):
		return "–"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
