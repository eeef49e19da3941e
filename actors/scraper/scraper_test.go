package scraper_test

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/messages"
)

var pages = scraper.Config{Scraping: messages.Scraping{Metrics: true}}

func TestPageBecomesTheSample(t *testing.T) {
	s := newScene(t, pages)
	_, n := s.asks()
	at := s.fetcher.pages[0].at
	told := endpointstest.Told{
		attributes.WaitingRequests: 3, attributes.RunningRequests: 4, attributes.KVCacheUsage: 0.25,
		attributes.KVBlockTokens: 16, attributes.KVBlocks: 100, attributes.StartTime: 5, attributes.MaxLoRAs: 2,
		attributes.ActiveLoRAs: []string{}, attributes.WaitingLoRAs: []string{"y", "z"},
	}
	if !reflect.DeepEqual(s.fetcher.pages[0].of, spec) {
		t.Errorf("asked %+v", s.fetcher.pages[0].of)
	}
	s.stage.Advance(30 * time.Millisecond)
	s.stage.Tell(messages.ScrapeFinished{Number: n, Took: 30 * time.Millisecond, PageBytes: 50 << 10,
		Reading: told.Reading("vllm")})
	want := &endpoints.Sample{At: at, Interval: time.Second, Number: n, Engine: "vllm", Values: told.Values()}
	want.Places = endpoints.Places{}.Next(0, &want.Values)
	if got := s.target.Sample(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	s.counts("signalbox_fetches_total", 1, "answered", "metrics-data-source")
	s.counts("signalbox_metrics_page_bytes_total", 50<<10)
}

// What pages show of how many requests the endpoint takes goes on from page to page, by the load of when each scrape
// began.
func TestPlacesGoOnFromPageToPage(t *testing.T) {
	s := newScene(t, pages)
	var want endpoints.Places
	for i, waiting := range []float64{0, 40, 1} {
		_, n := s.asks()
		inflight := s.target.Inflight()
		for range 30 {
			endpoints.LoadWriter(s.target).Add(endpoints.Work{Prompt: 1}, time.Time{})
		}
		s.stage.Tell(answer(n, waiting))
		got := s.target.Sample()
		if want = want.Next(inflight, &got.Values); inflight != 30*i || got.Places != want {
			t.Errorf("page %d: %+v with %d in flight, want %+v", i, got.Places, inflight, want)
		}
	}
}

func TestWhatAPageDoesNotSay(t *testing.T) {
	s := newScene(t, pages)
	_, n := s.asks()
	s.stage.Tell(messages.ScrapeFinished{Number: n, Reading: endpointstest.Told{
		attributes.WaitingRequests: 1e300,
	}.Reading("llamacpp")})
	got := s.target.Sample()
	if got.Engine != "llamacpp" || got.BuiltIn(attributes.WaitingRequests) != 1e300 || len(got.Numbers) != 1 ||
		!math.IsNaN(got.BuiltIn(attributes.RunningRequests)) || got.Names(attributes.ActiveLoRAs) != nil {
		t.Errorf("got %+v, want 1e300 waiting requests and no more", *got)
	}
}

func TestSampleInForceDropsThePicksThatItKnows(t *testing.T) {
	s := newScene(t, pages)
	endpoints.LoadWriter(s.target).Add(endpoints.Work{Prompt: 1}, time.Time{})
	_, n := s.asks()
	endpoints.LoadWriter(s.target).Add(endpoints.Work{Prompt: 1}, time.Time{})
	s.stage.Tell(answer(n, 1))
	if got := s.target.Counters().Since; got != 1 {
		t.Errorf("%d picks that the sample does not know, want 1", got)
	}
}

func TestLoadThatComesBetweenTwoPagesBringsTheNextForward(t *testing.T) {
	s := newScene(t, pages)
	s.settled()
	s.stage.Tell(answer(s.asksAfter(time.Second), 0))
	s.stage.Advance(300 * time.Millisecond)
	endpoints.LoadWriter(s.target).Add(endpoints.Work{Prompt: 1}, time.Time{})
	s.asksAfter(500 * time.Millisecond)
}

func TestFirstPagesAreSpread(t *testing.T) {
	s := newScene(t, pages)
	first, n := s.asks()
	if first < time.Millisecond || first > 100*time.Millisecond {
		t.Errorf("first after %v, want within 100 ms", first)
	}
	s.stage.Tell(answer(n, 0))
	second, _ := s.asks()
	if second > time.Second+time.Millisecond {
		t.Errorf("second after %v, want within an interval", second)
	}
}

func TestPagesNeverOverlapAndALostOneIsGivenUp(t *testing.T) {
	s := newScene(t, pages)
	s.settled()
	n := s.asksAfter(time.Second)
	s.stage.Advance(1999 * time.Millisecond)
	if got := len(s.fetcher.pages); got != s.begun {
		t.Fatalf("%d fetches at once", got-s.begun+1)
	}
	next := s.asksAfter(2 * time.Second) // timeout and margin are over
	s.stage.Tell(answer(n, 77))
	if got := s.target.Sample(); waiting(got) == 77 {
		t.Errorf("a page that was given up became the sample: %+v", got)
	}
	s.stage.Tell(answer(next, 5))
	if got := waiting(s.target.Sample()); got != 5 {
		t.Errorf("waiting %v, want 5", got)
	}
	s.stage.Tell(answer(next, 6)) // told twice
	if got := waiting(s.target.Sample()); got != 5 {
		t.Errorf("waiting %v, want 5", got)
	}
	s.counts("signalbox_fetches_total", 1, "lost", "metrics-data-source")
	s.counts("llm_d_epp_datalayer_poll_errors_total", 1, "metrics-data-source")
}

func TestPageThatTakesLongerThanTheIntervalIsFollowedAtOnce(t *testing.T) {
	s := newScene(t, pages)
	s.settled()
	n := s.asksAfter(time.Second)
	s.stage.Advance(1500 * time.Millisecond)
	s.stage.Tell(answer(n, 0))
	s.asksAfter(1500 * time.Millisecond)
}

func TestFailuresBackOffAndLeaveTheSample(t *testing.T) {
	s := newScene(t, pages)
	s.settled()
	before := s.target.Sample()
	n := s.asksAfter(time.Second)
	for _, wait := range []int{1, 2, 3, 3} {
		s.stage.Tell(failure(n))
		n = s.asksAfter(time.Duration(wait) * time.Second)
	}
	if s.target.Sample() != before {
		t.Error("a failure changed the sample")
	}
	s.stage.Tell(answer(n, 4))
	if got := s.target.Sample(); waiting(got) != 4 || !got.Fresh(s.stage.Clock(), time.Second) {
		t.Errorf("got %+v, want a fresh sample", got)
	}
	s.stage.Tell(failure(s.asksAfter(time.Second)))
	s.asksAfter(time.Second) // counts from the start again
	if want := []string{"a: status 500", "a: ", "a: status 500"}; !reflect.DeepEqual(s.turns, want) {
		t.Errorf("turned %q, want %q", s.turns, want)
	}
	s.counts("llm_d_epp_datalayer_poll_errors_total", 5, "metrics-data-source")
}

func TestFailuresAreRetriedSoonWhileRequestsAreInFlight(t *testing.T) {
	s := newScene(t, pages)
	s.settled()
	n := s.asksAfter(time.Second)
	endpoints.LoadWriter(s.target).Add(endpoints.Work{Prompt: 1}, time.Time{})
	for _, wait := range []int{500, 1000, 1000, 1000} {
		s.stage.Tell(failure(n))
		n = s.asksAfter(time.Duration(wait) * time.Millisecond)
	}
}

func TestLoadEndsALongPause(t *testing.T) {
	s := newScene(t, pages)
	s.settled()
	n := s.asksAfter(time.Second)
	for range 5 {
		s.stage.Tell(failure(n))
		_, n = s.asks()
	}
	s.stage.Tell(failure(n))
	s.stage.Advance(2200 * time.Millisecond)
	endpoints.LoadWriter(s.target).Add(endpoints.Work{Prompt: 1}, time.Time{})
	s.asksAfter(2500 * time.Millisecond)
}

func TestRestartOfTheServerIsToldToThePool(t *testing.T) {
	s := newScene(t, pages)
	started := func(at float64) {
		t.Helper()
		_, n := s.asks()
		m := answerOf(n, endpointstest.Told{attributes.StartTime: at})
		s.stage.Tell(m)
	}
	started(1000)
	started(1000.5) // the same process after a correction of the clock
	started(-1)     // a page that does not say
	s.pool.Got()
	started(1060)
	s.pool.Got(messages.EndpointRestarted{Endpoint: id})
	started(1060)
	s.pool.Got()
	s.counts("signalbox_endpoint_restarts_total", 1)
}

// lateSink refuses what it is told until it is open.
type lateSink struct {
	messages.Sink[messages.PoolMsg]
	open *bool
}

func (l lateSink) Tell(m messages.PoolMsg) bool { return *l.open && l.Sink.Tell(m) }

func TestRestartIsToldAgainUntilThePoolTakesIt(t *testing.T) {
	s := newScene(t, pages)
	open := false
	s.stage.Tell(messages.EndpointAssigned{Endpoint: id, Spec: spec, Pool: lateSink{s.pool, &open}})
	for i, at := range []float64{1000, 2000, 2000, 2000} {
		open = i == 2
		_, n := s.asks()
		m := answerOf(n, endpointstest.Told{attributes.StartTime: at})
		s.stage.Tell(m)
	}
	s.pool.Got(messages.EndpointRestarted{Endpoint: id})
}

func TestWithdrawnScraperAsksNoMore(t *testing.T) {
	s := newScene(t, pages)
	_, n := s.asks()
	s.stage.Tell(messages.EndpointWithdrawn{})
	if !s.stage.Ended() || s.stage.Tell(answer(n, 1)) {
		t.Error("it lives")
	}
	s.stage.Advance(time.Minute)
	if len(s.fetcher.pages) != 1 || s.stage.Timers() != 0 || s.target.Sample() != nil {
		t.Errorf("%d fetches, %d timers, sample %+v", len(s.fetcher.pages), s.stage.Timers(), s.target.Sample())
	}
}

func TestClosedFetcherIsAFailure(t *testing.T) {
	s := newScene(t, scraper.Config{Scraping: messages.Scraping{Metrics: true, Models: "lists"}})
	s.fetcher.closed = true
	s.stage.Advance(500 * time.Millisecond)
	s.counts("signalbox_fetches_total", 1, "failed", "metrics-data-source")
	s.counts("signalbox_fetches_total", 1, "failed", "models-data-source")
	s.fetcher.closed = false
	s.asks()
}

func TestTimerThatIsVoidDoesNothing(t *testing.T) {
	s := newScene(t, pages)
	s.stage.Tell(messages.ScrapeDue{Generation: 0})
	s.stage.Tell(messages.ScrapeDue{Generation: 99})
	if len(s.fetcher.pages) != 0 {
		t.Error("asked before it was due")
	}
	s.settled()
	s.stage.Advance(10 * time.Minute)
	if s.stage.Timers() > 1 {
		t.Errorf("%d timers, want one", s.stage.Timers())
	}
}

func TestNothingIsFetchedThatNobodyReads(t *testing.T) {
	s := newScene(t, scraper.Config{})
	s.stage.Advance(time.Hour)
	if len(s.fetcher.pages)+len(s.fetcher.lists)+s.stage.Timers() != 0 {
		t.Error("something was fetched, or is going to be")
	}
}
