package scraper_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/messages"
)

// furtherEvery returns a configuration with the metrics page each second, and two further sources.
func furtherEvery(gpu, rack time.Duration) messages.Scraping {
	return messages.Scraping{
		Metrics: true, Interval: time.Second,
		Further: messages.ListOf(
			messages.FurtherPage{Source: "gpu", Interval: gpu},
			messages.FurtherPage{Source: "rack", Interval: rack},
			messages.FurtherPage{Source: "other", Interval: rack,
				Select: messages.MapOf(map[string]string{"role": "prefill"})},
		),
	}
}

// watts answers the newest fetch of a further source.
func (s *scene) watts(source string, value float64) {
	s.t.Helper()
	asked := s.fetcher.further[source]
	if len(asked) == 0 {
		s.t.Fatalf("%s was not asked", source)
	}
	s.stage.Tell(messages.ScrapeFinished{
		Source: source, Number: asked[len(asked)-1].number, PageBytes: 100,
		Reading: messages.Reading{Numbers: messages.ListOf(messages.Extracted{Attribute: "a/b", Value: value})},
	})
}

// A source that never answers holds up neither the metrics page nor another source, and each page is as old as its own
// answer.
func TestFurtherSourcesHaveTheirOwnTurnsIntervalsAndAges(t *testing.T) {
	s := newScene(t, scraper.Config{Scraping: furtherEvery(200*time.Millisecond, 500*time.Millisecond)})
	answered, pages := 0, 0
	for end := s.stage.Clock().Add(10 * time.Second); s.stage.Clock().Before(end); s.stage.Advance(time.Millisecond) {
		if n := len(s.fetcher.further["gpu"]); n > answered { // rack hangs
			answered = n
			s.watts("gpu", float64(n))
		}
		if n := len(s.fetcher.pages); n > pages {
			pages = n
			s.stage.Tell(answer(s.fetcher.pages[n-1].number, 1))
		}
	}
	if answered < 49 || answered > 51 || pages < 10 || pages > 12 {
		t.Errorf("asked gpu %d times and for %d metrics pages within 10 s, want 50 and 11", answered, pages)
	}
	if n := len(s.fetcher.further["rack"]); n < 3 || n > 5 { // each is given up after 2 s
		t.Errorf("asked rack, which hangs, %d times within 10 s, want 4", n)
	}
	if n := len(s.fetcher.further["other"]); n > 0 {
		t.Errorf("asked a source %d times that does not select the endpoint", n)
	}
	gpu, rack := s.target.Pages().Of("gpu"), s.target.Pages().Of("rack")
	last := s.fetcher.further["gpu"][answered-1].at
	if gpu == nil || !gpu.At.Equal(last) || gpu.Failing || gpu.Value("a/b", "") != float64(answered) ||
		gpu.Interval != 200*time.Millisecond {
		t.Errorf("gpu has %+v, want its answer number %d, asked at %v", gpu, answered, last)
	}
	if rack == nil || !rack.At.IsZero() || !rack.Failing {
		t.Errorf("rack has %+v, want no answer, and failing", rack)
	}
	if s.target.Failing() {
		t.Error("a failure of a further source counts as one of the endpoint")
	}
	if at := s.target.Sample().At; s.stage.Clock().Sub(at) > time.Second+time.Millisecond || at.Equal(gpu.At) {
		t.Errorf("the sample is of %v, want it as old as its own page", at)
	}
}

// A page of the whole pool may have been read for another endpoint. It is as old as that reading,
// and counts as one fetch.
func TestPagesAreAsOldAsTheirReading(t *testing.T) {
	s := newScene(t, scraper.Config{Scraping: furtherEvery(time.Second, time.Hour)})
	s.stage.Advance(100 * time.Millisecond)
	asked := s.fetcher.further["gpu"][0]
	finished := messages.ScrapeFinished{
		Source: "gpu", Number: asked.number, Shared: true, Age: 300 * time.Millisecond, Expires: time.Minute,
		Reading: messages.Reading{Numbers: messages.ListOf(messages.Extracted{Attribute: "a/b", Value: 7})},
	}
	s.stage.Tell(finished)
	if p := s.target.Pages().Of("gpu"); p.Value("a/b", "") != 7 || !p.At.Equal(asked.at.Add(-finished.Age)) ||
		!p.Expires.Equal(asked.at.Add(time.Minute)) {
		t.Errorf("got %+v, want the page of %v before the scrape at %v", p, finished.Age, asked.at)
	}
	s.stage.Advance(time.Second)
	asked = s.fetcher.further["gpu"][1]
	s.stage.Tell(messages.ScrapeFinished{Source: "gpu", Number: asked.number, Shared: true, Failure: "status 500"})
	if !s.target.Pages().Of("gpu").Failing {
		t.Error("a shared failure is none")
	}
	s.counts("llm_d_epp_datalayer_poll_errors_total", 0, "metrics-data-source")
	for i := range 5 { // it costs nothing to ask again, so that a document which comes is found within an interval
		s.stage.Advance(time.Second)
		if len(s.fetcher.further["gpu"]) != 3+i {
			t.Fatalf("asked %d times within %d s after shared failures, want once a second",
				len(s.fetcher.further["gpu"]), 2+i)
		}
		number := s.fetcher.further["gpu"][2+i].number
		s.stage.Tell(messages.ScrapeFinished{Source: "gpu", Number: number, Shared: true, Failure: "status 500"})
	}
}

func TestFailureOfAFurtherSourceLeavesItsPage(t *testing.T) {
	s := newScene(t, scraper.Config{Scraping: furtherEvery(time.Second, time.Hour)})
	s.stage.Advance(100 * time.Millisecond)
	s.watts("gpu", 7)
	s.stage.Advance(time.Second)
	asked := s.fetcher.further["gpu"]
	late := messages.ScrapeFinished{Source: "gpu", Number: asked[len(asked)-1].number - 1}
	s.stage.Tell(late) // of a fetch that was given up
	s.stage.Tell(messages.ScrapeFinished{Source: "gpu", Number: asked[len(asked)-1].number, Failure: "status 500"})
	if p := s.target.Pages().Of("gpu"); p.Value("a/b", "") != 7 || !p.Failing || p.At.IsZero() {
		t.Errorf("got %+v, want the page before, and failing", p)
	}
	s.counts("llm_d_epp_datalayer_poll_errors_total", 1, "metrics-data-source")
}

func TestFurtherSourcesOfAnotherConfiguration(t *testing.T) {
	s := newScene(t, scraper.Config{Scraping: furtherEvery(time.Second, time.Second)})
	s.stage.Advance(100 * time.Millisecond)
	s.watts("gpu", 7)
	s.watts("rack", 8)
	next := messages.Scraping{Further: messages.ListOf(messages.FurtherPage{Source: "gpu", Interval: time.Second})}
	s.stage.Tell(messages.ScrapingReplaced{Number: 2, Scraping: next})
	if p := s.target.Pages(); p.Of("rack") != nil || p.Of("gpu") == nil || p.Of("gpu").Value("a/b", "") != 7 {
		t.Errorf("got %+v, want that of gpu alone", p)
	}
	before := len(s.fetcher.further["rack"])
	s.stage.Advance(10 * time.Second)
	if len(s.fetcher.further["rack"]) > before || len(s.fetcher.further["gpu"]) < 3 {
		t.Error("a source that has gone is asked, or one that stays is not")
	}
}

// Where the endpoint lacks a label, neither page nor list is asked for.
func TestEndpointsThatAreNotSelectedAreNotAsked(t *testing.T) {
	role := messages.MapOf(map[string]string{"role": "prefill"})
	s := newScene(t, scraper.Config{Scraping: messages.Scraping{
		Metrics: true, Models: "lists", Select: role, SelectModels: role,
	}})
	s.stage.Advance(time.Minute)
	if len(s.fetcher.pages)+len(s.fetcher.lists) > 0 {
		t.Errorf("asked for %d pages and %d lists, want none", len(s.fetcher.pages), len(s.fetcher.lists))
	}
}
