package pool

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
)

// Metrics holds the pool's metrics.
type Metrics struct {
	endpoints, away, version prometheus.Gauge
	overdue, passedOver      prometheus.Counter
}

// NewMetrics creates the metrics and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		endpoints: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "signalbox_pool_endpoints", Help: "Endpoints in the pool.",
		}),
		away: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "signalbox_pool_endpoints_away",
			Help: "Endpoints that left the pool, and are the same if they come back soon, when the set changed last.",
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
	r.MustRegister(m.endpoints, m.away, m.version, m.overdue, m.passedOver)
	return m
}

func (m *Metrics) published(s *endpoints.Snapshot, away int) {
	m.endpoints.Set(float64(len(s.Endpoints)))
	m.away.Set(float64(away))
	m.version.Set(float64(s.Version))
}
