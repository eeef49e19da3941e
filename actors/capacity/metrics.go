package capacity

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

// Metrics holds the metrics of what waits. They outlive the actor's incarnations.
type Metrics struct {
	requests, bytes                prometheus.Gauge
	turns, failed, overdue, panics prometheus.Counter
	seen                           uint64 // panics of the incarnation's policies that were counted
}

// NewMetrics creates the metrics and registers them. It fails if one of their names is taken.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "signalbox_flow_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "signalbox_flow_" + name, Help: help})
	}
	m := &Metrics{
		requests: gauge("waiting_requests", "Requests that wait for room."),
		bytes:    gauge("waiting_bytes", "Bytes of their bodies."),
		turns:    counter("turns_total", "Times that a request which waited had its turn."),
		failed:   counter("turns_failed_total", "Those at which no endpoint had room after all."),
		overdue:  counter("turns_overdue_total", "Those that were given up, because no answer came for two seconds."),
		panics:   counter("policy_panics_total", "Calls of queues, orderings and fairness policies that panicked."),
	}
	for _, c := range []prometheus.Collector{m.requests, m.bytes, m.turns, m.failed, m.overdue, m.panics} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// show brings the metrics up to date.
func (m *Metrics) show(q *flow.Queues) {
	total, panics := q.Total(), q.Panics()
	m.requests.Set(float64(total.Requests))
	m.bytes.Set(float64(total.Bytes))
	m.panics.Add(float64(panics - m.seen))
	m.seen = panics
}

// clear shows that nothing waits, and that the next incarnation has counted no panic.
func (m *Metrics) clear() {
	m.requests.Set(0)
	m.bytes.Set(0)
	m.seen = 0
}
