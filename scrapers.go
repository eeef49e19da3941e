package signalbox

import (
	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// scrapers holds what all scrapers have in common.
type scrapers struct {
	settings scraper.Config
	fetcher  scraper.Fetcher
	metrics  *scraper.Metrics
	outlier  messages.Sink[messages.OutlierMsg]
}

func (p *Picker) newScrapers() (*scrapers, error) {
	metrics, err := scraper.NewMetrics(p.world.Metrics)
	if err != nil {
		return nil, err
	}
	s := &scrapers{
		settings: p.cfg.Scraper, fetcher: p.world.Fetcher, metrics: metrics,
		outlier: runtime.Handed[messages.OutlierMsg](p.sys, "scraper", "outlier", p.refs.outlier),
	}
	s.settings.Endpoints = func() int { return len(p.endpoints.Snapshot().Endpoints) }
	s.settings.Turned, s.settings.Served = p.world.Turned, p.families.Served
	return s, nil
}

// spawn starts the scraper of an endpoint as a child of parent, which is the pool.
func (s *scrapers) spawn(
	parent messages.Sink[messages.PoolMsg], e *endpoints.Endpoint, first messages.EndpointAssigned,
) (messages.Sink[messages.ScraperMsg], bool) {
	role := runtime.Role[messages.ScraperMsg]{
		Name: "scraper", Policy: runtime.RestartOnPanic,
		New: func() runtime.Actor[messages.ScraperMsg] {
			return scraper.New(s.settings, target{endpoints.SampleWriter{Endpoint: e}, s.outlier}, s.fetcher, s.metrics)
		},
	}
	return runtime.Spawn(parent.(runtime.Parent), role, messages.ScraperMsg(first))
}

// target is an endpoint as its scraper sees it. It reports a scrape that fails to the outlier actor, too.
type target struct {
	endpoints.SampleWriter
	outlier messages.Sink[messages.OutlierMsg]
}

func (t target) ScrapeFailed() {
	t.SampleWriter.ScrapeFailed()
	t.outlier.Tell(messages.FailureReported{Endpoint: t.ID, Kind: messages.ScrapeFailed})
}
