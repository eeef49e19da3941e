package health

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/messages"
)

// Metrics are the health actor's.
type Metrics struct {
	evidence, suspensions map[messages.Evidence]prometheus.Counter
	healed                prometheus.Counter
}

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	evidence := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_evidence_total", Help: "What was seen against endpoints.",
	}, []string{"evidence"})
	suspensions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_suspensions_total", Help: "Endpoints that were suspended, by the evidence that decided it.",
	}, []string{"evidence"})
	m := &Metrics{
		evidence: map[messages.Evidence]prometheus.Counter{}, suspensions: map[messages.Evidence]prometheus.Counter{},
		healed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "signalbox_suspensions_ended_total", Help: "Suspended endpoints that answered a probe.",
		}),
	}
	r.MustRegister(evidence, suspensions, m.healed)
	for e := messages.Overload; e <= messages.ConnectFailed; e++ {
		m.evidence[e] = evidence.WithLabelValues(e.String())
		m.suspensions[e] = suspensions.WithLabelValues(e.String())
	}
	return m
}

func (m *Metrics) seen(e messages.Evidence) {
	if c := m.evidence[e]; c != nil {
		c.Inc()
	}
}

func (m *Metrics) suspended(e messages.Evidence) {
	if c := m.suspensions[e]; c != nil {
		c.Inc()
	}
}
