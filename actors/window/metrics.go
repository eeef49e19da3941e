package window

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/window"
)

// Metrics holds the window actor's metrics.
type Metrics struct {
	changes map[window.Cause]prometheus.Counter
}

// NewMetrics creates the metrics and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	changes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_window_changes_total",
		Help: "Changes of what endpoints are taken to have room for, by what they were learned from.",
	}, []string{"cause"})
	r.MustRegister(changes)
	m := &Metrics{changes: map[window.Cause]prometheus.Counter{}}
	for _, c := range window.Causes() {
		m.changes[c] = changes.WithLabelValues(c.String())
	}
	return m
}

func (m *Metrics) changed(by window.Cause) { m.changes[by].Inc() }
