package rewrites

import (
	"fmt"
	"testing"
)

func TestDecide(t *testing.T) {
	to := func(model string) []Target { return []Target{{model, 1}} }
	list := []Rewrite{
		{"first", []Rule{{nil, to("any")}, {[]string{"a", "b"}, to("ab")}}},
		{"second", []Rule{{[]string{"b", "c"}, to("bc")}, {nil, to("late")}}},
	}
	tests := map[string]struct {
		list  []Rewrite
		model string
		want  string // "" = none
	}{
		"D63 no rules":              {nil, "a", ""},
		"a rewrite without rules":   {[]Rewrite{{Name: "empty"}}, "a", ""},
		"exact goes before all":     {list, "a", "ab"},
		"D66 of two the first":      {list, "b", "ab"},
		"D64 of another rewrite":    {list, "c", "bc"},
		"of two for all the first":  {list, "d", "any"},
		"a request without a model": {list, "", "any"},
		"none matches":              {list[1:2:2][:1], "a", "late"},
		"D65 case counts":           {[]Rewrite{{"x", []Rule{{[]string{"a"}, to("t")}}}}, "A", ""},
		"no prefix":                 {[]Rewrite{{"x", []Rule{{[]string{"a"}, to("t")}}}}, "ab", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := NewTable(tc.list).Decide(tc.model, 1)
			if got.Model != tc.want || ok != (tc.want != "") {
				t.Errorf("model %q: got %q, %v, want %q", tc.model, got.Model, ok, tc.want)
			}
			by := map[string]string{"any": "first", "ab": "first", "bc": "second"}[tc.want]
			if by != "" && got.Rewrite != by {
				t.Errorf("model %q: by %q, want %q", tc.model, got.Rewrite, by)
			}
		})
	}
}

// D61 and D62: without weights all targets count the same, and beside one with a weight those without get nothing.
func TestWeightsThatAreGiven(t *testing.T) {
	for name, c := range map[string]struct {
		given []*int
		want  string
	}{
		"none":           {[]*int{nil, nil}, "[{a 1} {b 1}]"},
		"one among none": {[]*int{nil, new(7)}, "[{a 0} {b 7}]"},
		"both":           {[]*int{new(3), new(1)}, "[{a 3} {b 1}]"},
	} {
		targets := []Target{{Model: "a"}, {Model: "b"}}
		if Weigh(targets, c.given); fmt.Sprint(targets) != c.want {
			t.Errorf("%s: got %v, want %s", name, targets, c.want)
		}
	}
	for weight, wrong := range map[int]bool{-1: true, 0: true, 1: false, 1_000_000: false, 1_000_001: true} {
		if err := CheckWeight(weight); (err != nil) != wrong {
			t.Errorf("a weight of %d: got %v", weight, err)
		}
	}
}

func TestDraws(t *testing.T) {
	const draws = 10_000
	tests := map[string]struct {
		targets []Target
		want    map[string]float64
	}{
		"D58 one":       {[]Target{{"a", 7}}, map[string]float64{"a": 1}},
		"D59 equal":     {[]Target{{"a", 1}, {"b", 1}}, map[string]float64{"a": 0.5, "b": 0.5}},
		"D60 70 and 30": {[]Target{{"a", 70}, {"b", 30}}, map[string]float64{"a": 0.7, "b": 0.3}},
		"none of 0":     {[]Target{{"a", 0}, {"b", 3}, {"c", 0}}, map[string]float64{"b": 1}},
		"D67 three":     {[]Target{{"a", 1}, {"b", 2}, {"c", 1}}, map[string]float64{"a": 0.25, "b": 0.5, "c": 0.25}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			table := NewTable([]Rewrite{{"x", []Rule{{nil, tc.targets}}}})
			got := map[string]int{}
			for draw := range uint64(draws) {
				decision, _ := table.Decide("m", draw)
				if again, _ := table.Decide("m", draw); again != decision {
					t.Fatalf("draw %d: got %v, then %v", draw, decision, again)
				}
				got[decision.Model]++
			}
			for model, n := range got {
				if part := float64(n) / draws; part < tc.want[model]-0.02 || part > tc.want[model]+0.02 {
					t.Errorf("%s has %.3f of the draws, want %.2f", model, part, tc.want[model])
				}
			}
		})
	}
}

func TestDecideAllocatesNothing(t *testing.T) {
	table := NewTable([]Rewrite{{"x", []Rule{{[]string{"a"}, []Target{{"b", 1}, {"c", 2}}}}}})
	if n := testing.AllocsPerRun(100, func() { _, _ = table.Decide("a", 5) }); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}
