package pool

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
)

// Metrics holds the pool's metrics.
type Metrics struct {
	endpoints, version  prometheus.Gauge
	overdue, passedOver prometheus.Counter
}

// NewMetrics creates the metrics and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		endpoints: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "signalbox_pool_endpoints", Help: "Endpoints in the pool.",
		}),
		version: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "signalbox_pool_version", Help: "Version of the endpoint set.",
		}),
		overdue: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "signalbox_pool_acknowledgements_overdue_total",
			Help: "Times that endpoints were picked after a second of waiting, " +
				"though not every proxy had acknowledged them.",
		}),
		passedOver: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "signalbox_pool_loops_passed_over_total",
			Help: "Times that proxies were told to forget endpoints though a loop had hung for two minutes, " +
				"and may still have been picking them.",
		}),
	}
	r.MustRegister(m.endpoints, m.version, m.overdue, m.passedOver)
	return m
}

func (m *Metrics) published(s *endpoints.Snapshot) {
	m.endpoints.Set(float64(len(s.Endpoints)))
	m.version.Set(float64(s.Version))
}
