package app

import (
	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// newFetcher makes what reads model servers' pages. What no plugin reads is not scraped. The prefix index must hear of
// restarts, which only metrics pages tell, though it needs no load.
func newFetcher(cfg *config.Config) (*modelserver.Fetcher, error) {
	reads := cfg.Plan.Reads()
	return modelserver.NewFetcher(modelserver.Config{
		Want:    modelserver.Wanted{Load: reads&schedule.ReadsSample != 0, LoRA: reads&schedule.ReadsLoRA != 0},
		Metrics: page(cfg.Metrics), Models: page(cfg.Models), EngineLabels: cfg.EngineLabelKeys,
	})
}

// notScraped says why no metrics page is read; "" = they are read.
func notScraped(cfg *config.Config) string {
	switch {
	case cfg.Plan.Reads() == 0:
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
