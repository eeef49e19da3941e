package xds

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics holds the metrics of the discovery service.
type Metrics struct {
	streams                          prometheus.Gauge
	responses, acknowledged, refused *prometheus.CounterVec
	took, published                  prometheus.Histogram
	faults                           prometheus.Counter
}

// NewMetrics returns the metrics, registered with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	count := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"type"})
	}
	m := &Metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "signalbox_xds_streams", Help: "Connected xDS streams; a proxy has one.",
		}),
		responses:    count("signalbox_xds_responses_total", "xDS responses sent."),
		acknowledged: count("signalbox_xds_acks_total", "xDS responses that a proxy took."),
		refused:      count("signalbox_xds_nacks_total", "xDS responses that a proxy refused."),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "signalbox_xds_ack_seconds", Help: "From sending an xDS response to its acknowledgement.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}),
		published: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "signalbox_xds_publish_seconds",
			Help: "From the discovery of a change of the endpoints until it is handed to all streams; " +
				"one that owes an acknowledgement is sent it after that.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .2, .5, 1, 2.5},
		}),
		faults: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "signalbox_xds_unpublished_total",
			Help: "Announcements that were not published, for they would not have been valid.",
		}),
	}
	r.MustRegister(m.streams, m.responses, m.acknowledged, m.refused, m.took, m.published, m.faults)
	return m
}

// kindOf returns the label of a resource type, which is one of a closed set.
func kindOf(typeURL string) string { return cmp.Or(kinds[typeURL], "other") }
