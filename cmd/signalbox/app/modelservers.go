package app

import (
	"cmp"

	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/messages"
)

// wanted is what the plugins of a configuration read of metrics pages. The prefix index must hear of restarts, which
// only these pages tell, though it needs no load.
func wanted(cfg *config.Config) modelserver.Wanted {
	read := cfg.Plan.Layout()
	return modelserver.Wanted{
		Load: read.Reads(attributes.QueuedRequests, attributes.RunningRequests, attributes.KVCacheUsage),
		LoRA: read.Reads(attributes.ActiveLoRAs, attributes.WaitingLoRAs, attributes.MaxLoRAs),
	}
}

// pages are those of model servers, as a configuration has them.
func pages(cfg *config.Config, want modelserver.Wanted) modelserver.Pages {
	return modelserver.Pages{
		Want: want, Metrics: page(cfg.Metrics), Models: page(cfg.Models), EngineLabels: cfg.EngineLabelKeys,
	}
}

// scraping is what a configuration has scrapers do. What no plugin reads is not scraped.
func (o *options) scraping(cfg *config.Config) messages.Scraping {
	return messages.Scraping{
		Metrics: notScraped(cfg) == "", Models: cfg.Models.Enabled,
		Interval: cmp.Or(max(cfg.Metrics.Interval, 0), o.refresh), ModelsEvery: cfg.Models.Interval,
	}
}

// notScraped says why no metrics page is read; "" = they are read.
func notScraped(cfg *config.Config) string {
	switch {
	case !cfg.Plan.Layout().ReadsFrom(attributes.Sampled) && !cfg.Plan.Layout().ReadsFrom(attributes.Matched):
		return "no plugin reads samples"
	case !cfg.Metrics.Enabled:
		return "dataLayer.injectDefaults is false, and dataLayer.sources names no metrics-data-source"
	}
	return ""
}

func page(s config.Source) modelserver.Page {
	return modelserver.Page{Scheme: s.Scheme, Path: s.Path, Port: s.Port, AnyCertificate: s.InsecureSkipVerify}
}

func (t *tree) turned(of messages.EndpointSpec, failure string) {
	if t.opts.hooks.servers {
		return
	}
	if failure == "" {
		t.log.Info("metrics are back", zap.String("endpoint", string(of.Address)))
		return
	}
	t.log.Warn("metrics cannot be read", zap.String("endpoint", string(of.Address)), zap.String("failure", failure))
}
