package endpoints

import (
	"sync"
	"testing"
)

func TestPicksBeforeTheScrapeLeaveTheEstimateWithItsSample(t *testing.T) {
	var l Load
	first := l.Add(10)
	n := l.BeginScrape()
	second := l.Add(5)
	is(t, "before the sample", l.Since(), 2)
	l.SampleInForce(n)
	is(t, "after the sample", l.Since(), 1)
	l.Remove(first) // the sample knew it
	is(t, "the known one ended", l.Since(), 1)
	l.Remove(second)
	is(t, "both ended", l.Since(), 0)
	is(t, "in flight", l.Inflight(), 0)
	is(t, "tokens", l.Tokens(), 0)
}

func TestFailedScrapeChangesNothing(t *testing.T) {
	var l Load
	l.SampleInForce(l.BeginScrape())
	a := l.Add(1)
	l.BeginScrape() // no sample comes of it
	b := l.Add(1)
	n := l.BeginScrape()
	is(t, "two since the sample in force", l.Since(), 2)
	l.Remove(b)
	is(t, "one left", l.Since(), 1)
	l.SampleInForce(n)
	is(t, "the new sample knows it", l.Since(), 0)
	l.Remove(a)
	is(t, "none", l.Since(), 0)
}

func TestLateSampleOfAnOlderScrapeIsNotTaken(t *testing.T) {
	var l Load
	old := l.BeginScrape()
	l.Add(1)
	l.BeginScrape()
	l.SampleInForce(old)
	is(t, "since", l.Since(), 1)
}

func TestCountsReturnToZeroUnderConcurrency(t *testing.T) {
	var l Load
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				p := l.Add(3)
				l.Remove(p)
			}
		})
	}
	wg.Go(func() {
		for range 2000 {
			l.SampleInForce(l.BeginScrape())
		}
	})
	wg.Wait()
	is(t, "since", l.Since(), 0)
	is(t, "in flight", l.Inflight(), 0)
	is(t, "tokens", l.Tokens(), 0)
}

func TestScrapeNumbersWrap(t *testing.T) {
	var l Load
	l.word.Store(since{newest: scrapeMask, behind: 0}.pack())
	before := l.Add(1)
	n := l.BeginScrape()
	after := l.Add(1)
	l.SampleInForce(n)
	l.Remove(before)
	is(t, "the one after the scrape", l.Since(), 1)
	l.Remove(after)
	is(t, "none", l.Since(), 0)
}

func is(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

func TestAllocationsOfLoad(t *testing.T) {
	var l Load
	if n := testing.AllocsPerRun(100, func() { l.Remove(l.Add(3)) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// With n writers, each of which picks the endpoint it sees least loaded, one may miss the n-1 picks made at the same moment.
func TestConcurrentPicksMissAtMostOneForEachOtherLoop(t *testing.T) {
	const loops, rounds = 8, 200
	var cells [4]Load
	for range rounds {
		var wg sync.WaitGroup
		for range loops {
			wg.Go(func() {
				best := 0
				for i := range cells {
					if cells[i].Since() < cells[best].Since() {
						best = i
					}
				}
				cells[best].Add(1)
			})
		}
		wg.Wait()
		lo, hi := cells[0].Since(), cells[0].Since()
		for i := range cells {
			lo, hi = min(lo, cells[i].Since()), max(hi, cells[i].Since())
		}
		if hi-lo > loops {
			t.Fatalf("endpoints have %d to %d, want at most %d apart", lo, hi, loops)
		}
	}
}
