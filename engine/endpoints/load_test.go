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
	l.ScrapeFailed(l.BeginScrape())
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
