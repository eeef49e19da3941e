package app

import "github.com/prometheus/client_golang/prometheus"

// reloadMetrics tell which configuration is in force, and what became of those that were read.
type reloadMetrics struct {
	number, since, successful prometheus.Gauge
	reloads                   *prometheus.CounterVec
}

func newReloadMetrics(r prometheus.Registerer) *reloadMetrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &reloadMetrics{
		number: gauge("signalbox_config_number", "Number of the configuration in force, from 1 at the start."),
		since: gauge("signalbox_config_in_force_since_timestamp_seconds",
			"When the configuration in force came into force."),
		successful: gauge("signalbox_config_last_reload_successful",
			"1 if what was read of the configuration last is in force or was before, 0 if it was refused."),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "signalbox_config_reloads_total",
			Help: "Configurations that were read while in use, by what became of them: changed, unchanged or refused.",
		}, []string{"result"}),
	}
	for _, result := range []string{"changed", "unchanged", "refused"} {
		m.reloads.WithLabelValues(result)
	}
	m.successful.Set(1)
	r.MustRegister(m.number, m.since, m.successful, m.reloads)
	return m
}

func (m *reloadMetrics) inForce(c *configuration) {
	m.number.Set(float64(c.number))
	m.since.Set(float64(c.since.UnixMilli()) / 1000)
}

// accepted counts a configuration that is not refused. The result is changed or unchanged.
func (m *reloadMetrics) accepted(result string) {
	m.reloads.WithLabelValues(result).Inc()
	m.successful.Set(1)
}

func (m *reloadMetrics) refused() {
	m.reloads.WithLabelValues("refused").Inc()
	m.successful.Set(0)
}
