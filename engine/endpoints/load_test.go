package endpoints

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

func TestPicksBeforeTheScrapeLeaveTheEstimateWithItsSample(t *testing.T) {
	var l load
	first := l.add(Work{Prompt: 10}, 100, time.Time{})
	n := l.beginScrape()
	second := l.add(Work{Prompt: 5}, 100, time.Time{})
	is(t, "before the sample", l.since(), 2)
	l.sampleInForce(n)
	is(t, "after the sample", l.since(), 1)
	l.remove(first) // the sample knew it
	is(t, "the known one ended", l.since(), 1)
	l.remove(second)
	is(t, "both ended", l.since(), 0)
	is(t, "in flight", l.inflight(), 0)
	is(t, "tokens", l.counters().Tokens, 0)
}

func TestFailedScrapeChangesNothing(t *testing.T) {
	var l load
	l.sampleInForce(l.beginScrape())
	a := l.add(Work{Prompt: 1}, 100, time.Time{})
	l.beginScrape() // no sample comes of it
	b := l.add(Work{Prompt: 1}, 100, time.Time{})
	n := l.beginScrape()
	is(t, "two since the sample in force", l.since(), 2)
	l.remove(b)
	is(t, "one left", l.since(), 1)
	l.sampleInForce(n)
	is(t, "the new sample knows it", l.since(), 0)
	l.remove(a)
	is(t, "none", l.since(), 0)
}

func TestLateSampleOfAnOlderScrapeIsNotTaken(t *testing.T) {
	var l load
	old := l.beginScrape()
	l.add(Work{Prompt: 1}, 100, time.Time{})
	l.beginScrape()
	l.sampleInForce(old)
	is(t, "since", l.since(), 1)
}

func TestCountsReturnToZeroUnderConcurrency(t *testing.T) {
	var l load
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				p := l.add(Work{Prompt: 3}, 100, time.Time{})
				l.remove(p)
			}
		})
	}
	wg.Go(func() {
		for range 2000 {
			l.sampleInForce(l.beginScrape())
		}
	})
	wg.Wait()
	is(t, "since", l.since(), 0)
	is(t, "in flight", l.inflight(), 0)
	is(t, "tokens", l.counters().Tokens, 0)
}

func TestScrapeNumbersWrap(t *testing.T) {
	var l load
	l.word.Store(scrapes{newest: scrapeMask, behind: 0}.pack())
	before := l.add(Work{Prompt: 1}, 100, time.Time{})
	n := l.beginScrape()
	after := l.add(Work{Prompt: 1}, 100, time.Time{})
	l.sampleInForce(n)
	l.remove(before)
	is(t, "the one after the scrape", l.since(), 1)
	l.remove(after)
	is(t, "none", l.since(), 0)
}

func is(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

func TestAllocationsOfLoad(t *testing.T) {
	var l load
	if n := testing.AllocsPerRun(100, func() { l.remove(l.add(Work{Prompt: 3}, 100, time.Time{})) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// With n writers, each of which picks the endpoint it sees least loaded, one may miss the n-1 picks made at the same
// moment.
func TestConcurrentPicksMissAtMostOneForEachOtherLoop(t *testing.T) {
	const loops, rounds = 8, 200
	var cells [4]load
	for range rounds {
		var wg sync.WaitGroup
		for range loops {
			wg.Go(func() {
				best := 0
				for i := range cells {
					if cells[i].since() < cells[best].since() {
						best = i
					}
				}
				cells[best].add(Work{Prompt: 1}, 100, time.Time{})
			})
		}
		wg.Wait()
		lo, hi := cells[0].since(), cells[0].since()
		for i := range cells {
			lo, hi = min(lo, cells[i].since()), max(hi, cells[i].since())
		}
		if hi-lo > loops {
			t.Fatalf("endpoints have %d to %d, want at most %d apart", lo, hi, loops)
		}
	}
}

func TestTakeKeepsToTheRoom(t *testing.T) {
	for name, c := range map[string]struct {
		room   Room
		tokens int
		want   int // requests that are taken
	}{
		"no bounds": {Room{}, 10, 20},
		"requests":  {Room{Requests: 7}, 10, 7},
		"tokens":    {Room{Tokens: 45}, 10, 5},
		"both":      {Room{Requests: 3, Tokens: 45}, 10, 3},
		"no tokens": {Room{Tokens: 1}, 0, 20},
	} {
		t.Run(name, func(t *testing.T) {
			var l load
			var picks []Pick
			for range 20 {
				if p, ok := l.take(Work{Prompt: c.tokens}, c.room, 100, time.Time{}); ok {
					picks = append(picks, p)
				}
			}
			is(t, "taken", len(picks), c.want)
			is(t, "in flight", l.inflight(), c.want)
			is(t, "tokens", l.counters().Tokens, c.want*c.tokens)
			is(t, "since the sample", l.since(), c.want)
			for _, p := range picks {
				l.remove(p)
			}
			is(t, "in flight after all", l.inflight(), 0)
			is(t, "tokens after all", l.counters().Tokens, 0)
		})
	}
}

func TestTakeKeepsToTheRoomUnderConcurrency(t *testing.T) {
	var l load
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20_000 {
				p, ok := l.take(Work{Prompt: 3}, Room{Requests: 5}, 100, time.Time{})
				if n := l.inflight(); n > 5 {
					t.Errorf("%d in flight", n)
				}
				if ok {
					runtime.Gosched() // others come and go meanwhile
					l.remove(p)
				}
			}
		})
	}
	wg.Wait()
	is(t, "in flight", l.inflight(), 0)
	is(t, "tokens", l.counters().Tokens, 0)
}

// Where a window and numbers bound the load, the lesser bound holds.
func TestTakeKeepsToWindowAndNumbers(t *testing.T) {
	for _, c := range []struct {
		room Room
		want int
	}{
		{Room{Learned: true, Requests: 3}, 3}, {Room{Learned: true, Requests: 30}, 10},
		{Room{Learned: true, Tokens: 40}, 4}, {Room{Learned: true, Tokens: 1 << 30}, 10},
	} {
		e := New(messages.EndpointID{Slot: 1, Generation: 1}, messages.EndpointSpec{})
		WindowWriter{e}.SetWindow(Room{Requests: 10, Tokens: 10_000})
		w, n := LoadWriter{e}, 0
		for ; n < 20; n++ {
			if _, ok := w.Take(Work{Prompt: 10}, c.room, time.Time{}); !ok {
				break
			}
		}
		if n != c.want {
			t.Errorf("%+v: %d requests, want %d", c.room, n, c.want)
		}
	}
}

// A share of a window bounds the load as the window does.
// An endpoint whose first page is to come has the first window, and none once that has failed.
func TestWindowBeforeTheFirstPage(t *testing.T) {
	e := New(messages.EndpointID{Slot: 0, Generation: 1}, messages.EndpointSpec{})
	w := SampleWriter{Endpoint: e}
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"nothing is to come", func() {}, 0},
		{"a page is to come", w.AwaitSample, FirstWindow},
		{"it does not come", w.ScrapeFailed, 0},
	} {
		step.do()
		if room, learned := e.Window(); room.Requests != step.want || learned {
			t.Errorf("%s: window %d, learned %v, want %d", step.name, room.Requests, learned, step.want)
		}
	}
}

func TestTakeKeepsToAShareOfTheWindow(t *testing.T) {
	for share, want := range map[float64]int{0: 13, 1: 13, .5: 5, .41: 5, 1e-9: 1} {
		e := New(messages.EndpointID{Slot: 1, Generation: 1}, messages.EndpointSpec{})
		WindowWriter{e}.SetWindow(Room{Requests: 13, Tokens: 10_000, Found: true})
		w, n := LoadWriter{e}, 0
		for ; n < 20; n++ {
			if _, ok := w.Take(Work{Prompt: 10}, Room{Learned: true, Share: share}, time.Time{}); !ok {
				break
			}
		}
		if n != want {
			t.Errorf("share %v: %d requests, want %d", share, n, want)
		}
	}
	e := New(messages.EndpointID{Slot: 1, Generation: 1}, messages.EndpointSpec{})
	WindowWriter{e}.SetWindow(Room{Requests: 10, Tokens: 1000, Found: true})
	w := LoadWriter{e}
	if _, ok := w.Take(Work{Prompt: 500}, Room{Learned: true, Share: .5}, time.Time{}); !ok {
		t.Error("an idle endpoint has no room")
	}
	if _, ok := w.Take(Work{Prompt: 1}, Room{Learned: true, Share: .5}, time.Time{}); ok {
		t.Error("half of the tokens are taken, and there is room below a half")
	}
}

// The backlog is what is left of prompts whose first tokens are awaited: one is computed after the other, and of the
// one under way no more than the mean, for its token has not come.
func TestBacklogIsWhatIsLeftOfPrompts(t *testing.T) {
	var l load
	at := time.Unix(1000, 0)
	first, second := l.add(Work{Prompt: 1500, Output: 100}, 100, at), l.add(Work{Prompt: 500}, 100, at)
	for after, left := range map[time.Duration]int{
		-time.Second: 2000, 0: 2000, 5 * time.Second: 1500, time.Minute: 1000,
	} {
		is(t, after.String(), l.backlog(100, at.Add(after)), left)
	}
	first = l.begin(first, at.Add(time.Minute))
	is(t, "one has its token", l.backlog(100, at.Add(time.Minute)), 500)
	is(t, "two seconds later", l.backlog(100, at.Add(62*time.Second)), 300)
	l.remove(second)
	is(t, "none is awaited", l.backlog(100, at.Add(time.Minute)), 0)
	third := l.add(Work{Prompt: 700, Unseen: true}, 100, at.Add(time.Minute))
	is(t, "one that is not seen", l.backlog(100, at.Add(time.Minute)), 0)
	is(t, "two seconds later", l.unseen.left(100, at.Add(62*time.Second)), 500)
	fourth := l.add(Work{Prompt: 700, Unseen: true}, 100, at.Add(62*time.Second))
	is(t, "two of them", l.unseen.left(100, at.Add(63*time.Second)), 1100)
	third = l.begin(third, at.Add(63*time.Second)) // the log tells
	is(t, "told", l.unseen.left(100, at.Add(63*time.Second)), 1100)
	is(t, "computed by now", l.unseen.left(100, at.Add(time.Hour)), 0)
	// With tokens of an answer the prompt counts until the end, and without until its first token.
	is(t, "tokens", l.counters().Tokens, 2300)
	l.remove(first)
	l.remove(third)
	l.remove(fourth)
	is(t, "tokens at the end", l.counters().Tokens, 0)
	is(t, "prompts at the end", int(l.prompts.Load()+l.computing.Load()), 0)
}

// A prompt finds room if it fits into what the endpoint has to compute at most, or if nothing is to be computed.
func TestRoomIsBoundedByPrompts(t *testing.T) {
	var l load
	at, room := time.Unix(1000, 0), Room{Prompts: 2000, Rate: 1000}
	take := func(prompt int, now time.Time) bool {
		_, ok := l.take(Work{Prompt: prompt}, room, room.Rate, now)
		return ok
	}
	if !take(5000, at) {
		t.Error("the only prompt finds no room")
	}
	if take(10, at) || take(10, at.Add(2*time.Second)) {
		t.Error("5000 tokens are ahead, 3000 two seconds later, and another prompt finds room")
	}
	if !take(10, at.Add(4*time.Second)) {
		t.Error("1000 tokens are ahead, and ten more find no room")
	}
	is(t, "requests", l.inflight(), 2)
}
