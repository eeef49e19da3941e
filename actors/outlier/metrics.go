package outlier

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/messages"
)

// Metrics holds the outlier actor's metrics.
type Metrics struct {
	failures, ejections map[messages.FailureKind]prometheus.Counter
	recovered           prometheus.Counter
}

// NewMetrics creates the metrics and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_endpoint_failures_total", Help: "What went wrong with endpoints, by kind.",
	}, []string{"kind"})
	ejections := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_endpoint_ejections_total",
		Help: "Endpoints that were ejected, by the kind of failure that decided it.",
	}, []string{"kind"})
	m := &Metrics{
		failures:  map[messages.FailureKind]prometheus.Counter{},
		ejections: map[messages.FailureKind]prometheus.Counter{},
		recovered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "signalbox_endpoint_recoveries_total", Help: "Ejected endpoints that answered a probe well.",
		}),
	}
	r.MustRegister(failures, ejections, m.recovered)
	for k := messages.Overload; k < messages.Asleep; k++ {
		m.failures[k] = failures.WithLabelValues(k.String())
		m.ejections[k] = ejections.WithLabelValues(k.String())
	}
	return m
}

func (m *Metrics) failed(k messages.FailureKind) {
	if c := m.failures[k]; c != nil {
		c.Inc()
	}
}

func (m *Metrics) ejected(k messages.FailureKind) {
	if c := m.ejections[k]; c != nil {
		c.Inc()
	}
}
