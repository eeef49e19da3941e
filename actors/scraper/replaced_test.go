package scraper_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestAnotherConfigurationKeepsWhatIsKnown(t *testing.T) {
	every := func(d time.Duration) messages.Scraping { return messages.Scraping{Metrics: true, Interval: d} }
	s := newScene(t, scraper.Config{Scraping: every(time.Second), Number: 3})
	_, number := s.asks()
	s.stage.Tell(answer(number, 7))
	s.stage.Tell(answer(s.asksOnce(), 7))
	known := s.target.Sample()

	s.stage.Tell(messages.ScrapingReplaced{Number: 4, Scraping: every(3 * time.Second)})
	s.stage.Tell(messages.ScrapingReplaced{Number: 3, Scraping: every(20 * time.Second)}) // overtaken
	if s.target.Sample() != known {
		t.Error("the sample did not stay")
	}
	s.stage.Tell(answer(s.asksAfter(3*time.Second), 7))

	none := messages.Scraping{Anew: true}
	s.stage.Tell(messages.ScrapingReplaced{Number: 5, Scraping: none})
	s.stage.Advance(time.Minute)
	if len(s.fetcher.pages) > s.begun || len(s.fetcher.lists) > 0 {
		t.Errorf("%d pages and %d lists were asked for, want none", len(s.fetcher.pages)-s.begun, len(s.fetcher.lists))
	}

	back := every(10 * time.Second)
	back.Models, back.Anew = "lists", true
	s.stage.Tell(messages.ScrapingReplaced{Number: 6, Scraping: back})
	s.stage.Advance(100 * time.Millisecond)
	if len(s.fetcher.pages) != s.begun+1 || len(s.fetcher.lists) != 1 {
		t.Errorf("%d pages and %d lists were asked for soon, want 1 and 1", len(s.fetcher.pages)-s.begun,
			len(s.fetcher.lists))
	}
}

// asksOnce runs the clock until the scraper asks for a page, whenever that is.
func (s *scene) asksOnce() uint32 {
	s.t.Helper()
	_, number := s.asks()
	return number
}
