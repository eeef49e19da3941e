package scraper_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/messages"
)

var both = scraper.Config{Scraping: messages.Scraping{Metrics: true, Models: "lists"}}

// lists checks how often the model list was asked for, and returns the number of the newest fetch.
func (s *scene) lists(want int) (number uint32) {
	s.t.Helper()
	if got := len(s.fetcher.lists); got != want {
		s.t.Fatalf("the model list was asked for %d times, want %d", got, want)
	}
	return s.fetcher.lists[want-1].number
}

func (s *scene) lives(d time.Duration, reading messages.Reading) {
	for end := s.stage.Clock().Add(d); s.stage.Clock().Before(end); {
		s.stage.Advance(time.Millisecond)
		if len(s.fetcher.pages) > s.begun {
			s.begun = len(s.fetcher.pages)
			s.stage.Tell(messages.ScrapeFinished{Number: s.fetcher.pages[s.begun-1].number, PageBytes: 1000,
				Reading: reading})
		}
	}
}

func (s *scene) samplesModels(want ...string) {
	s.t.Helper()
	if got := s.target.Pages().Names(attributes.Models); !reflect.DeepEqual(got, want) {
		s.t.Errorf("models %q, want %q", got, want)
	}
}

func TestModelListIsFetchedAtStartAndEvery30Seconds(t *testing.T) {
	s := newScene(t, both)
	reading := messages.Reading{Engine: "vllm"}
	s.lives(200*time.Millisecond, reading)
	s.stage.Tell(messages.ModelsListed{Number: s.lists(1), Models: messages.ListOf("m")})
	s.lives(2*time.Second, reading)
	s.samplesModels("m")
	s.lives(27*time.Second, reading)
	s.lists(1)
	s.lives(time.Second, reading)
	n := s.lists(2)
	s.stage.Tell(messages.ModelsListed{Number: n - 1, Models: messages.ListOf("late")})
	s.stage.Tell(messages.ModelsListed{Number: n, Failure: "status 500"})
	s.lives(500*time.Millisecond, reading)
	s.samplesModels("m")
	s.lives(time.Second, reading)
	s.stage.Tell(messages.ModelsListed{Number: s.lists(3), Models: messages.ListOf("m", "n")})
	s.lives(time.Second, reading)
	s.samplesModels("m", "n")
	s.counts("llm_d_epp_datalayer_poll_errors_total", 1, "models-data-source")
}

func TestModelListIsFetchedAfterARestart(t *testing.T) {
	s := newScene(t, both)
	s.lives(time.Second, endpointstest.Told{attributes.StartTime: 10}.Reading(""))
	s.stage.Tell(messages.ModelsListed{Number: s.lists(1), Models: messages.ListOf("m")})
	s.lives(2*time.Second, endpointstest.Told{attributes.StartTime: 90}.Reading(""))
	s.lists(2)
	s.pool.Got(messages.EndpointRestarted{Endpoint: id})
	if got := s.target.Pages().Names(attributes.Models); got != nil {
		t.Errorf("models of the server before: %q", got)
	}
}

func TestAdapterThatTheListDoesNotHaveBringsTheNextListForward(t *testing.T) {
	s := newScene(t, both)
	reading := endpointstest.Told{attributes.ActiveLoRAs: []string{"m", "new"}}.Reading("")
	s.lives(time.Second, endpointstest.Told{attributes.ActiveLoRAs: []string{"m"}}.Reading(""))
	s.stage.Tell(messages.ModelsListed{Number: s.lists(1), Models: messages.ListOf("m")})
	s.lives(1500*time.Millisecond, reading)
	s.stage.Tell(messages.ModelsListed{Number: s.lists(2), Models: messages.ListOf("m")}) // not yet in it
	s.lives(4*time.Second, reading)
	s.lists(2)
	s.lives(2*time.Second, reading)
	s.stage.Tell(messages.ModelsListed{Number: s.lists(3), Models: messages.ListOf("m", "new")})
	s.lives(20*time.Second, reading)
	s.lists(3)
}

// An interval that the configuration names holds whatever happens, but for a server that restarted.
func TestModelListKeepsItsInterval(t *testing.T) {
	cfg := both
	cfg.ModelsEvery = 5 * time.Second
	s := newScene(t, cfg)
	reading := endpointstest.Told{attributes.ActiveLoRAs: []string{"m", "new"}}.Reading("")
	s.lives(200*time.Millisecond, reading)
	s.stage.Tell(messages.ModelsListed{Number: s.lists(1), Failure: "status 500"})
	s.lives(4500*time.Millisecond, reading)
	s.lists(1)
	s.lives(500*time.Millisecond, reading)
	s.stage.Tell(messages.ModelsListed{Number: s.lists(2), Models: messages.ListOf("m")})
	s.lives(4500*time.Millisecond, reading)
	s.lists(2)
	s.lives(500*time.Millisecond, reading)
	s.lists(3)
}

func TestModelListThatIsLostIsAskedForAgain(t *testing.T) {
	s := newScene(t, scraper.Config{Scraping: messages.Scraping{Models: "lists"}})
	s.stage.Advance(2050 * time.Millisecond)
	first := s.lists(1)
	s.stage.Advance(100 * time.Millisecond)
	if n := s.lists(2); n == first {
		t.Errorf("number %d twice", n)
	}
	if len(s.fetcher.pages) != 0 {
		t.Error("asked for a metrics page")
	}
	s.counts("signalbox_fetches_total", 1, "lost", "models-data-source")
}

func TestModelsThatAnEndpointServesAreTold(t *testing.T) {
	var told []string
	cfg := both
	cfg.Served = func(models ...string) { told = append(told, models...) }
	s := newScene(t, cfg)
	s.lives(time.Second, endpointstest.Told{
		attributes.ActiveLoRAs: []string{"a"}, attributes.WaitingLoRAs: []string{"w"},
	}.Reading(""))
	s.stage.Tell(messages.ModelsListed{Number: s.lists(1), Models: messages.ListOf("m", "n")})
	for _, want := range []string{"a", "w", "m", "n"} {
		if !slices.Contains(told, want) {
			t.Errorf("told %q, %q is missing", told, want)
		}
	}
}
