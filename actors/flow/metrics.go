package flow

import "github.com/prometheus/client_golang/prometheus"

// Metrics holds the metrics of all flow shards together.
type Metrics struct {
	dispatched prometheus.Counter
	running    prometheus.Gauge
}

// NewMetrics creates the metrics and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		dispatched: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "signalbox_flow_dispatched_total", Help: "Requests that the flow shards let go.",
		}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "signalbox_flow_places", Help: "Requests that hold a place: dispatched, and not ended.",
		}),
	}
	r.MustRegister(m.dispatched, m.running)
	return m
}
