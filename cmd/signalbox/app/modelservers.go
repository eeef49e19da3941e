package app

import (
	"cmp"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// Attributes that are read together: the process's own metrics and pages show the rest of those of which a plugin reads
// one.
var (
	load = []attributes.Attribute{
		attributes.WaitingRequests, attributes.RunningRequests, attributes.KVCacheUsage, attributes.KVBlockTokens,
		attributes.KVBlocks,
	}
	// loads are worked out here of a server's work. A configuration that reads them takes a page without load for a
	// failed one, too.
	loads    = []attributes.Attribute{attributes.QueuedRequests, attributes.PromptWait}
	adapters = []attributes.Attribute{
		attributes.ActiveLoRAs, attributes.WaitingLoRAs, attributes.MaxLoRAs, attributes.ResidentLoRAs,
		attributes.HostLoRAs, attributes.PinnedLoRAs, attributes.BaseModels,
	}
)

// wanted returns what of the built-in attributes is read of metrics pages. Each page is read for its load, which our
// own metrics show, for restarts and sizes of caches, of which the prefix index must hear, and for engines that sleep,
// to which no pick goes.
func wanted(cfg *config.Config) []attributes.Attribute {
	all := append([]attributes.Attribute{attributes.StartTime, attributes.Asleep}, load...)
	if cfg.Plan.Layout().Reads(adapters...) {
		all = append(all, adapters...)
	}
	return all
}

// pagesOf returns the pages of model servers, as a configuration has them.
func pagesOf(cfg *config.Config, want []attributes.Attribute) modelserver.Pages {
	further := make([]modelserver.Further, 0, len(cfg.Further))
	for _, f := range cfg.Further {
		further = append(further, modelserver.Further{
			Source: f.Name, Document: f.Document, Page: pageOf(f.Source), Extract: extractions(cfg.Extractions, f.Name),
			URL: f.URL, File: f.File, Pushed: f.Pushed, Objects: f.Objects.String(),
			Every: f.Interval,
		})
	}
	return modelserver.Pages{
		Further: further, Attributes: want, Metrics: pageOf(cfg.Metrics), Models: pageOf(cfg.Models),
		EngineLabels: cfg.EngineLabelKeys,
		Extract:      extractions(cfg.Extractions, ""), Engines: engines(cfg.Engines), Engine: cfg.DefaultEngine,
		LoadOptional: !cfg.Plan.Layout().Reads(append(loads, load...)...),
	}
}

func engines(list []config.Engine) []modelserver.Engine {
	var all []modelserver.Engine
	for _, e := range list {
		all = append(all, modelserver.Engine{
			Name: e.Name, Waiting: series(e.Queued), Running: series(e.Running), KVUsed: series(e.KVUsage),
			LoRA: series(e.LoRA), CacheInfo: series(e.CacheInfo), BlockTokensLabel: e.BlockTokensLabel,
			BlocksLabel: e.BlocksLabel, BlockTokens: series(e.BlockTokens), Blocks: series(e.Blocks),
		})
	}
	return all
}

func series(s config.Series) modelserver.Series {
	return modelserver.Series{Metric: s.Metric, Labels: labels(s.Labels)}
}

func labels(of map[string]string) []modelserver.Label {
	var all []modelserver.Label
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, modelserver.Label{Name: name, Value: of[name]})
	}
	return all
}

// aggregations are those of the configuration file.
var aggregations = map[string]modelserver.Aggregation{
	"last": modelserver.Last, "sum": modelserver.Sum, "max": modelserver.Max, "rate": modelserver.Rate,
	"ratio": modelserver.Ratio,
}

// extractions returns what is taken from the page of a source; "" = the metrics page.
func extractions(list []config.Extraction, source string) []modelserver.Extraction {
	var all []modelserver.Extraction
	for _, e := range list {
		if e.Source != source {
			continue
		}
		all = append(all, modelserver.Extraction{
			Attribute: e.Name, Producer: e.Producer, Engine: e.Engine, Metric: e.Metric, Labels: labels(e.Labels),
			Aggregation: aggregations[cmp.Or(e.Aggregation, "last")], Per: e.Per, Field: e.Field(),
			By: e.By().Extractor, At: e.By().At,
		})
	}
	return all
}

// scraping returns what a configuration has scrapers do. What no plugin reads is not scraped.
func (o *options) scraping(cfg *config.Config) messages.Scraping {
	var further []messages.FurtherPage
	for _, f := range cfg.Further {
		if cfg.Plan.Layout().Samples(f.Name) {
			further = append(further, messages.FurtherPage{
				Source: f.Name, Document: f.Document, Interval: cmp.Or(f.Interval, o.refresh),
				Select: messages.MapOf(f.Select),
			})
		}
	}
	return messages.Scraping{
		Metrics: notScraped(cfg) == "", Models: cfg.ModelList,
		Interval: cmp.Or(max(cfg.Metrics.Interval, 0), o.refresh), ModelsEvery: cfg.Models.Interval,
		Select: messages.MapOf(cfg.Metrics.Select), SelectModels: messages.MapOf(cfg.Models.Select),
		Further: messages.TakeList(further),
	}
}

// asks reports whether the metrics page of an endpoint is read.
func (c *configuration) asks(e *endpoints.Endpoint) bool {
	from := attributes.Source{Select: c.Metrics.Select}
	return c.scraping.Metrics && from.Selects(e.Labels)
}

// askedAnew reports whether one configuration has scrapers ask for other pages than another one, or other endpoints.
func askedAnew(a, b *configuration) bool {
	selects := func(x, y *config.Config) bool {
		return maps.Equal(x.Metrics.Select, y.Metrics.Select) && maps.Equal(x.Models.Select, y.Models.Select) &&
			slices.EqualFunc(x.Further, y.Further, func(f, g config.FurtherSource) bool {
				return f.Name == g.Name && maps.Equal(f.Select, g.Select)
			})
	}
	return !a.pages.Equal(b.pages) || a.scraping.Metrics != b.scraping.Metrics ||
		a.scraping.Models != b.scraping.Models || !selects(a.Config, b.Config)
}

// notScraped returns why no metrics page is read; "" = they are read.
func notScraped(cfg *config.Config) string {
	layout := cfg.Plan.Layout()
	switch {
	case !layout.Samples("") && !layout.ReadsFrom(attributes.Matched):
		return "no plugin reads samples"
	case !cfg.Metrics.Enabled:
		return "dataLayer.injectDefaults is false, and dataLayer.sources names no metrics-data-source"
	}
	return ""
}

func pageOf(s config.Source) modelserver.Page {
	return modelserver.Page{Scheme: s.Scheme, Path: s.Path, Port: s.Port, AnyCertificate: s.InsecureSkipVerify,
		CAFile: s.CACertPath, CertificateFile: s.ClientCertPath, KeyFile: s.ClientKeyPath}
}

// turned logs that the metrics of an endpoint cannot be read, or can be read again: then failure is "".
func (t *tree) turned(endpoint messages.EndpointSpec, failure string) {
	if t.opts.hooks.showsServers {
		return
	}
	if failure == "" {
		t.log.Info("metrics are back", zap.String("endpoint", string(endpoint.Address)))
		return
	}
	t.log.Warn("metrics cannot be read", zap.String("endpoint", string(endpoint.Address)),
		zap.String("failure", failure))
}
