package endpoints

import (
	"maps"
	"strconv"
	"sync"
	"testing"
)

func counts(t *Tally) map[string]uint64 {
	all := map[string]uint64{}
	maps.Insert(all, t.All())
	return all
}

func TestTallyLosesNothingUnderConcurrency(t *testing.T) {
	var y Tally
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				y.Add(strconv.Itoa(i % 10))
			}
		})
	}
	wg.Wait()
	got := counts(&y)
	for i := range 10 {
		if n := got[strconv.Itoa(i)]; n != 800 {
			t.Errorf("label %d: %d, want 800", i, n)
		}
	}
	if len(got) != 10 {
		t.Errorf("%d labels, want 10", len(got))
	}
}

func TestTallyIsBounded(t *testing.T) {
	var y Tally
	for i := range 1000 {
		y.Add(strconv.Itoa(i))
		y.Add("0")
	}
	got := counts(&y)
	if len(got) != TallyLabels+1 || got["0"] != 1001 || got["other"] != 1000-TallyLabels {
		t.Errorf("%d labels, 0: %d, other: %d, want %d, 1001, %d", len(got), got["0"], got["other"], TallyLabels+1,
			1000-TallyLabels)
	}
}

func TestAllocationsOfTally(t *testing.T) {
	var y Tally
	y.Add("model")
	if n := testing.AllocsPerRun(100, func() { y.Add("model") }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
