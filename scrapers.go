package signalbox

import (
	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// scrapers holds what all scrapers have in common.
type scrapers struct {
	settings func() scraper.Config // of the configuration in force: a scraper that restarts may have missed it
	fetcher  scraper.Fetcher
	metrics  *scraper.Metrics
	outlier  messages.Sink[messages.OutlierMsg]
	window   messages.Sink[messages.WindowMsg]
	learns   func() bool // the configuration in force has windows
	bell     flow.Bell
}

func (p *Picker) newScrapers() (*scrapers, error) {
	metrics, err := scraper.NewMetrics(p.world.Metrics)
	if err != nil {
		return nil, err
	}
	s := &scrapers{
		settings: p.scraping, fetcher: p.world.Fetcher, metrics: metrics,
		outlier: runtime.Handed[messages.OutlierMsg](p.sys, "scraper", "outlier", p.refs.outlier),
		window:  runtime.Handed[messages.WindowMsg](p.sys, "scraper", "window", p.refs.window),
		learns:  func() bool { return p.inForce.Load().learns },
		bell:    p.bell("scraper"),
	}
	return s, nil
}

// scraping is how a scraper that starts scrapes.
func (p *Picker) scraping() scraper.Config {
	cfg, c := p.cfg.Scraper, p.inForce.Load()
	cfg.Scraping, cfg.Number = c.scraping, c.number
	cfg.Endpoints = func() int { return len(p.endpoints.Snapshot().Endpoints) }
	cfg.Turned, cfg.Served = p.world.Turned, p.families.Served
	return cfg
}

// spawn starts the scraper of an endpoint as a child of parent, which is the pool.
func (s *scrapers) spawn(
	parent messages.Sink[messages.PoolMsg], e *endpoints.Endpoint, first messages.EndpointAssigned,
) (messages.Sink[messages.ScraperMsg], bool) {
	if cfg := s.settings(); scraper.ReadsPage(&cfg.Scraping, e.Spec) {
		endpoints.SampleWriter{Endpoint: e}.AwaitSample() // before anything can be sent there
	}
	role := runtime.Role[messages.ScraperMsg]{
		Name: "scraper", Policy: runtime.RestartOnPanic,
		New: func() runtime.Actor[messages.ScraperMsg] {
			to := target{endpoints.SampleWriter{Endpoint: e}, s}
			return scraper.New(s.settings(), to, s.fetcher, s.metrics)
		},
	}
	return runtime.Spawn(parent.(runtime.Parent), role, messages.ScraperMsg(first))
}

// target is an endpoint as its scraper sees it. It reports a scrape that fails to the outlier actor, too, the window
// actor learns from each sample, and those who wait for room hear of each page.
type target struct {
	endpoints.SampleWriter
	*scrapers
}

func (t target) SampleInForce(number uint32) {
	t.SampleWriter.SampleInForce(number)
	if t.learns() {
		t.window.Tell(messages.SampleTaken{Endpoint: t.ID})
	}
	t.bell.Ring()
}

func (t target) PublishPages(p *endpoints.Pages) {
	t.SampleWriter.PublishPages(p)
	t.bell.Ring()
}

func (t target) ScrapeFailed() {
	t.SampleWriter.ScrapeFailed()
	t.bell.Ring() // one whose first page does not come is not bounded by what it would say
	t.outlier.Tell(messages.FailureReported{Endpoint: t.ID, Kind: messages.ScrapeFailed})
}
