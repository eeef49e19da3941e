package endpoints

import (
	"math"
	"sync"
	"testing"
	"time"
)

// The rate follows a steady one, fades once nothing comes, and keeps its count under concurrency and if the clock is
// set back.
func TestArrivals(t *testing.T) {
	var a arrivals
	now := time.Unix(1_800_000_000, 0)
	about := func(what string, want float64) {
		t.Helper()
		if got := a.rate(now); math.Abs(got-want) > .05*want+1e-9 {
			t.Errorf("%s: %v requests a second, want %v", what, got, want)
		}
	}
	about("none", 0)
	for range 1000 {
		now = now.Add(100 * time.Millisecond)
		a.add(now)
	}
	about("steady", 10)
	now = now.Add(20 * time.Second)
	about("20 s later", 10/math.E)
	now = now.Add(-time.Hour)
	about("the clock is set back", 10)
	a = arrivals{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				a.add(now)
			}
		})
	}
	all.Wait()
	about("800 at once", 40)
}
