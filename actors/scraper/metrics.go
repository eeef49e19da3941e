package scraper

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/messages"
)

// Source types as the configuration names them.
const (
	metricsSource  = "metrics-data-source"
	documentSource = "document-data-source"
	modelsSource   = "models-data-source"
)

// Metrics holds the metrics of all scrapers.
type Metrics struct {
	metrics, models sourceMetrics
	documents       sourceMetrics
	pageBytes       prometheus.Counter
	restarts        prometheus.Counter
}

// sourceMetrics holds the metrics of one source.
type sourceMetrics struct {
	answered, failed, lost prometheus.Counter
	errors                 prometheus.Counter
	took                   prometheus.Observer
}

// NewMetrics creates the metrics of all scrapers and registers them.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	pollErrors := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "llm_d_epp_datalayer_poll_errors_total", Help: "Fetches from model servers that brought nothing.",
	}, []string{"source_type"})
	fetches := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_fetches_total",
		Help: "Fetches from model servers that ended, by outcome: answered, failed, lost.",
	}, []string{"source_type", "outcome"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "signalbox_fetch_duration_seconds",
		Help:    "Time from the begin of a fetch that was answered until its page was read.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
	}, []string{"source_type"})
	m := &Metrics{
		pageBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "signalbox_metrics_page_bytes_total", Help: "Bytes of metrics pages that were read.",
		}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "signalbox_endpoint_restarts_total", Help: "Restarts of model servers that their pages showed.",
		}),
	}
	metricsOf := func(source string) sourceMetrics {
		return sourceMetrics{
			answered: fetches.WithLabelValues(source, "answered"),
			failed:   fetches.WithLabelValues(source, "failed"),
			lost:     fetches.WithLabelValues(source, "lost"),
			errors:   pollErrors.WithLabelValues(source),
			took:     took.WithLabelValues(source),
		}
	}
	m.metrics, m.models, m.documents = metricsOf(metricsSource), metricsOf(modelsSource), metricsOf(documentSource)
	return m, errors.Join(reg.Register(pollErrors), reg.Register(fetches), reg.Register(took),
		reg.Register(m.pageBytes), reg.Register(m.restarts))
}

// further returns the metrics of a further source.
func (m *Metrics) further(of messages.FurtherPage) *sourceMetrics {
	if of.Document {
		return &m.documents
	}
	return &m.metrics
}

func (s *sourceMetrics) succeed(took time.Duration) {
	s.answered.Inc()
	s.took.Observe(took.Seconds())
}

func (s *sourceMetrics) fail() {
	s.failed.Inc()
	s.errors.Inc()
}

func (s *sourceMetrics) lose() {
	s.lost.Inc()
	s.errors.Inc()
}
