package pickers

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/schedule"
)

func input() *schedule.Input { return schedule.NewInput(rand.New(rand.NewPCG(1, 2))) }

func TestMaxScore(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, c := range map[string]struct {
		most   int
		totals []float32
		want   []int
	}{
		"best first":         {3, []float32{1, 4, 2, 3}, []int{1, 3, 2}},
		"fewer than asked":   {3, []float32{1, 4}, []int{1, 0}},
		"not set is one":     {0, []float32{1, 4}, []int{1}},
		"one candidate":      {3, []float32{0}, []int{0}},
		"NaN last":           {4, []float32{nan, -1, 0, inf}, []int{3, 2, 1, 0}},
		"all, from the back": {5, []float32{5, 4, 3, 2, 1}, []int{0, 1, 2, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &MaxScore{Destinations{c.most}}
			got := p.Pick(input(), c.totals, []int{77})
			if got[0] != 77 || !slices.Equal(got[1:], c.want) {
				t.Errorf("Pick(%v) = %v, want %v behind what was there", c.totals, got, c.want)
			}
		})
	}
}

// shares counts how often each candidate is first, and second, in 30 000 picks.
func shares(p schedule.Picker, totals []float32) (first, second []float64) {
	const runs = 30_000
	first, second = make([]float64, len(totals)), make([]float64, len(totals))
	in := input()
	for range runs {
		ranked := p.Pick(in, totals, nil)
		first[ranked[0]] += 1.0 / runs
		second[ranked[1]] += 1.0 / runs
	}
	return first, second
}

func TestShares(t *testing.T) {
	two, nan := Destinations{2}, float32(math.NaN())
	third := []float64{1. / 3, 1. / 3, 1. / 3}
	for name, c := range map[string]struct {
		picker        schedule.Picker
		totals        []float32
		first, second []float64
	}{
		"max score, ties":        {&MaxScore{two}, []float32{7, 7, 7}, third, third},
		"max score, second ties": {&MaxScore{two}, []float32{7, 9, 7}, []float64{0, 1, 0}, []float64{0.5, 0, 0.5}},
		"random":                 {&Random{two}, []float32{7, 0, 1}, third, third},
		"weighted": {
			&WeightedRandom{two}, []float32{3, 1, 0},
			[]float64{0.75, 0.25, 0}, []float64{0.25, 0.75, 0},
		},
		"weighted, second": {
			&WeightedRandom{two}, []float32{2, 1, 1},
			[]float64{0.5, 0.25, 0.25}, []float64{1. / 3, 1. / 3, 1. / 3},
		},
		"weighted, zeros": {&WeightedRandom{two}, []float32{0, 0, 0}, third, third},
		"weighted, odd":   {&WeightedRandom{two}, []float32{nan, -4, 1}, []float64{0, 0, 1}, []float64{0.5, 0.5, 0}},
		"weighted, infinite": {
			&WeightedRandom{two}, []float32{float32(math.Inf(1)), 1, 0},
			[]float64{1, 0, 0}, []float64{0, 1, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := shares(c.picker, c.totals)
			near := func(a, b float64) bool { return math.Abs(a-b) < 0.02 } // 6 standard deviations
			if !slices.EqualFunc(first, c.first, near) {
				t.Errorf("totals %v: first picks %.3f, want %.3f", c.totals, first, c.first)
			}
			if !slices.EqualFunc(second, c.second, near) {
				t.Errorf("totals %v: second picks %.3f, want %.3f", c.totals, second, c.second)
			}
		})
	}
}

// TestEveryPicker wants indexes in range, none twice, as many as asked for, equal for equal seeds, without allocation.
func TestEveryPicker(t *testing.T) {
	for name, construct := range Types {
		p := construct()
		p.(interface{ Default(int) }).Default(5)
		totals := []float32{3, 1, 4, 1, 5, 9, 2, 6}
		ranked := make([]int, 0, len(totals))
		for n := 1; n <= len(totals); n++ {
			got := p.Pick(input(), totals[:n], ranked)
			again := p.Pick(input(), totals[:n], nil)
			if !slices.Equal(got, again) {
				t.Errorf("%s: %v then %v with the same seed", name, got, again)
			}
			slices.Sort(again)
			if len(slices.Compact(again)) != min(n, 5) || again[0] < 0 || slices.Max(again) >= n {
				t.Errorf("%s: Pick of %d candidates = %v, want %d different ones", name, n, got, min(n, 5))
			}
		}
		in := input()
		if n := testing.AllocsPerRun(100, func() { p.Pick(in, totals, ranked) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

func TestDestinations(t *testing.T) {
	d := Destinations{}
	d.Default(3)
	d.Default(1)
	if d.MaxNumOfEndpoints != 3 {
		t.Errorf("got %d destinations, want the first default 3", d.MaxNumOfEndpoints)
	}
	for candidates, want := range map[int]int{0: 0, 2: 2, 3: 3, 5: 3} {
		if ranked, _, n := d.begin(candidates, nil); n != want || len(ranked) != candidates {
			t.Errorf("%d of %d candidates are destinations, want %d", n, len(ranked), want)
		}
	}
	for n, fine := range map[int]bool{-1: false, 0: true, 1: true, 100: true, 101: false} {
		if err := (&Destinations{n}).Validate(); (err == nil) != fine {
			t.Errorf("Validate(%d) = %v, want fine %v", n, err, fine)
		}
	}
}
