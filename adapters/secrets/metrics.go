package secrets

import "github.com/prometheus/client_golang/prometheus"

// Metric returns when the certificate in force ends, as a metric. port is a label: a word for the port.
func (p *Port) Metric(port string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "signalbox_certificate_expiry_timestamp_seconds",
		Help:        "End of the certificate in force, in seconds since 1970.",
		ConstLabels: prometheus.Labels{"port": port},
	}, func() float64 { return float64(p.Certificate().NotAfter.Unix()) })
}
