package shard

import "github.com/prometheus/client_golang/prometheus"

// Metrics holds the metrics of all shards together.
type Metrics struct{ ended, late prometheus.Counter }

// NewMetrics creates the metrics and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_logged_ends_total",
		Help: "Ends of requests from the access log: ended = told to the request's cycle, late = it had ended already.",
	}, []string{"result"})
	r.MustRegister(v)
	return &Metrics{ended: v.WithLabelValues("ended"), late: v.WithLabelValues("late")}
}
