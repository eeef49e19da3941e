package capacity

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

// Metrics holds the metrics of what waits. They outlive the actor's incarnations.
type Metrics struct {
	requests, bytes prometheus.Gauge
	turnMetrics
	panics prometheus.Counter
	seen   uint64 // panics of the incarnation's policies that were counted

	*evictionMetrics

	all, band shares
	total     share         // of all bands together
	of        map[int]share // by priority; at most mostBands
}

// turnMetrics are those of turns: how many there were, in vain or without an answer, and how long it took to choose.
type turnMetrics struct {
	turns, failed, overdue prometheus.Counter
	choosing               prometheus.Histogram
}

// shares are the families of how much of a limit is used.
type shares struct{ requests, bytes *prometheus.GaugeVec }

// share is how much of a limit is used; nil = it is not shown.
type share struct{ requests, bytes prometheus.Gauge }

// mostBands is how many priorities have series of their own: those that come first. Configurations rarely have a dozen,
// but one that changes often may name as many as it likes.
const mostBands = 64

// choosingBuckets are the reference's.
var choosingBuckets = []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1}

const reference = "llm_d_epp_flow_control_"

// NewMetrics creates the metrics and registers them. It fails if one of their names is taken. pool is the label of the
// pool.
func NewMetrics(r prometheus.Registerer, pool string) (*Metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "signalbox_flow_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "signalbox_flow_" + name, Help: help})
	}
	used := func(name, help string, labels ...string) *prometheus.GaugeVec {
		opts := prometheus.GaugeOpts{
			Name: reference + name, Help: help, ConstLabels: prometheus.Labels{"inference_pool": pool},
		}
		return prometheus.NewGaugeVec(opts, labels)
	}
	m := &Metrics{
		requests: gauge("waiting_requests", "Requests that wait for room."),
		bytes:    gauge("waiting_bytes", "Bytes of their bodies."),
		turnMetrics: turnMetrics{
			turns:  counter("turns_total", "Times that a request which waited had its turn."),
			failed: counter("turns_failed_total", "Those at which no endpoint had room after all."),
			overdue: counter("turns_overdue_total",
				"Those that others did not wait for, because no answer came for two seconds."),
			choosing: prometheus.NewHistogram(prometheus.HistogramOpts{
				Name: reference + "dispatch_cycle_duration_seconds", Buckets: choosingBuckets,
				Help: "To choose the request whose turn it is, of those that wait, and to tell it.",
			}),
		},
		panics: counter("policy_panics_total",
			"Calls of queues, orderings, fairness and eviction policies that panicked."),
		all: shares{
			used("global_capacity_utilization_requests", "Share of maxRequests that waits; absent without a limit."),
			used("global_capacity_utilization_bytes", "Share of maxBytes that waits; absent without a limit."),
		},
		band: shares{
			used("capacity_utilization_requests", "Share of a band's maxRequests that waits.", "priority"),
			used("capacity_utilization_bytes", "Share of a band's maxBytes that waits.", "priority"),
		},
		of: map[int]share{},
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.bytes, m.turns, m.failed, m.overdue, m.panics, m.choosing, m.all.requests, m.all.bytes,
		m.band.requests, m.band.bytes,
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	var err error
	m.evictionMetrics, err = newEvictionMetrics(r, pool)
	return m, err
}

// configure has the limits in force shown, those of the bands of the configuration from the start.
func (m *Metrics) configure(q *flow.Queues) {
	clear(m.of)
	for _, vec := range []*prometheus.GaugeVec{m.all.requests, m.all.bytes, m.band.requests, m.band.bytes} {
		vec.Reset()
	}
	m.total = m.all.of(q.Limits())
	for _, f := range q.Configured() {
		m.shareOf(f)
	}
	m.show(q) // Configure has changed all
}

// of returns the gauges of those limits that there are.
func (s *shares) of(l flow.Limits, labels ...string) (of share) {
	if l.Requests > 0 {
		of.requests = s.requests.WithLabelValues(labels...)
	}
	if l.Bytes > 0 {
		of.bytes = s.bytes.WithLabelValues(labels...)
	}
	return of
}

// shareOf returns the gauges of a priority.
func (m *Metrics) shareOf(f flow.Fill) share {
	s, ok := m.of[f.Priority]
	if !ok && len(m.of) < mostBands {
		s = m.band.of(f.Most, strconv.Itoa(f.Priority))
		m.of[f.Priority] = s
	}
	return s
}

// show brings the metrics up to date, of bands those that have changed.
func (m *Metrics) show(q *flow.Queues) {
	total, panics := q.Total(), q.Caught().Total()
	m.requests.Set(float64(total.Requests))
	m.bytes.Set(float64(total.Bytes))
	m.panics.Add(float64(panics - m.seen))
	m.seen = panics
	m.total.set(total, q.Limits())
	for f := range q.Changed() {
		m.shareOf(f).set(f.Waiting, f.Most)
	}
}

func (s share) set(waiting flow.Total, most flow.Limits) {
	if s.requests != nil {
		s.requests.Set(float64(waiting.Requests) / float64(most.Requests))
	}
	if s.bytes != nil {
		s.bytes.Set(float64(waiting.Bytes) / float64(most.Bytes))
	}
}

// chose observes how long it took to choose.
func (m *Metrics) chose(took time.Duration) { m.choosing.Observe(took.Seconds()) }

// clear shows that nothing waits, and that the next incarnation has counted no panic.
func (m *Metrics) clear() {
	m.requests.Set(0)
	m.bytes.Set(0)
	m.seen = 0
	for _, s := range m.of {
		s.set(flow.Total{}, flow.Limits{Requests: 1, Bytes: 1})
	}
	m.total.set(flow.Total{}, flow.Limits{Requests: 1, Bytes: 1})
}
