package extproc

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// Metrics holds the metrics of all streams.
type Metrics struct {
	streams, inflight prometheus.Gauge
	took              prometheus.Histogram
	ended             map[string]prometheus.Counter // by gRPC status
	refusals          map[messages.Reason]prometheus.Counter
	panics            prometheus.Counter
	decisions         *decisions
	shown, ignored    prometheus.Counter // responses whose bodies the proxy was asked to show, by what it did
	reports           map[schedule.ReportResult]prometheus.Counter
}

// gRPC statuses that count a stream's end. The handler never returns an error, so they are derived from how it ended.
const (
	endedOK       = "OK"       // the response is over, or an immediate response was sent
	endedCanceled = "Canceled" // the proxy left before
	endedInternal = "Internal" // the handler panicked
)

// NewMetrics returns the metrics, registered with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	ended := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "llm_d_epp_extproc_streams_total", Help: "ext_proc streams that ended, by gRPC status.",
	}, []string{"code"})
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_refusals_total", Help: "Immediate responses, by reason and HTTP status.",
	}, []string{"reason", "status"})
	overrides := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_mode_overrides_total",
		Help: "Responses whose bodies Envoy was asked to show by mode_override, to learn how many bytes a token has. " +
			"Ignored: its filter has no allow_mode_override, or these modes are not in allowed_override_modes.",
	}, []string{"result"})
	reports := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_reported_attributes_total",
		Help: "Attributes of responses that a request-attribute-reporter computed: told to the proxy, withheld by " +
			"their condition, or failed.",
	}, []string{"result"})
	m := &Metrics{
		reports:   map[schedule.ReportResult]prometheus.Counter{},
		decisions: newDecisions(),
		shown:     overrides.WithLabelValues("shown"), ignored: overrides.WithLabelValues("ignored"),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "signalbox_streams", Help: "Open ext_proc streams."}),
		inflight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "llm_d_epp_extproc_streams_inflight", Help: "Open ext_proc streams.",
		}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "llm_d_epp_extproc_stream_duration_seconds", Help: "Life of an ext_proc stream.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 120, 300, 600},
		}),
		ended: map[string]prometheus.Counter{}, refusals: map[messages.Reason]prometheus.Counter{},
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "signalbox_stream_panics_total", Help: "Panics in a stream's handler.",
		}),
	}
	for _, code := range []string{endedOK, endedCanceled, endedInternal} {
		m.ended[code] = ended.WithLabelValues(code)
	}
	for _, result := range schedule.ReportResults() {
		m.reports[result] = reports.WithLabelValues(result.String())
	}
	for why, r := range refusals {
		m.refusals[why] = refused.WithLabelValues(why.String(), strconv.Itoa(r.status))
	}
	r.MustRegister(m.streams, m.inflight, m.took, ended, refused, overrides, reports, m.panics,
		m.decisions.counter, m.decisions.unmade, m.decisions.unrestored)
	return m
}

// opened counts a stream and returns the time at which it was opened.
func (m *Metrics) opened() time.Time {
	m.streams.Inc()
	m.inflight.Inc()
	return time.Now()
}

// closed counts the end of a stream whose handler has returned.
func (m *Metrics) closed(st *stream, began time.Time) {
	m.streams.Dec()
	m.inflight.Dec()
	m.took.Observe(time.Since(began).Seconds())
	m.ended[st.status()].Inc()
}

// status returns the gRPC status that the end of the stream is counted as.
func (st *stream) status() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.closed == closedPanicked:
		return endedInternal
	case st.response.phase.completed() || st.wire.Context().Err() == nil:
		return endedOK
	}
	return endedCanceled
}

// HeldMetrics returns gauges of the memory that request bodies take, and of its limit.
func HeldMetrics(s *Server) []prometheus.Collector {
	gauge := func(name, help string, value func() int64) prometheus.Collector {
		opts := prometheus.GaugeOpts{Name: name, Help: help}
		return prometheus.NewGaugeFunc(opts, func() float64 { return float64(value()) })
	}
	return []prometheus.Collector{
		gauge("signalbox_held_body_bytes", "Bytes of request bodies that are held.", s.Held),
		gauge("signalbox_held_body_limit_bytes",
			"Bytes of request bodies that may be held; what goes beyond is refused.",
			func() int64 { return s.held.Limit() }),
	}
}

// decisions counts what rules of rewrites have decided. Where a rule is for all models, their names come from clients,
// so a bounded number of them has series; all others count as "other".
type decisions struct {
	unmade, unrestored *prometheus.CounterVec // by cause
	left               map[messages.RewriteLeft]prometheus.Counter

	counter *prometheus.CounterVec
	mu      sync.Mutex
	series  map[decision]prometheus.Counter // at most mostDecisions, and otherDecision
}

// decision is the labels of a series.
type decision struct{ rewrite, model, target string }

const mostDecisions = 512

var otherDecision = decision{"other", "other", "other"}

// Why the name of the model that served stays in the answer to a request that was rewritten.
const (
	nameEncoded = "content-encoding"
	nameInGRPC  = "grpc"
	nameUnseen  = "body-not-shown" // the light lane shows few bodies, and so none is changed
)

func newDecisions() *decisions {
	d := &decisions{
		left: map[messages.RewriteLeft]prometheus.Counter{},
		unmade: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "signalbox_rewrites_not_made_total",
			Help: "Requests that went on with the model that the client named, though a header or a rule names " +
				"another one, or may do so because the body or its model was not shown.",
		}, []string{"cause"}),
		unrestored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "signalbox_model_names_not_restored_total",
			Help: "Responses that keep the name of the model that served in place of the one that the client " +
				"asked for.",
		}, []string{"cause"}),
		counter: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llm_d_epp_model_rewrite_decisions_total",
			Help: "Requests whose model a rule rewrote, by rewrite, model and target.",
		}, []string{"model_rewrite_name", "model_name", "target_model"}),
		series: map[decision]prometheus.Counter{},
	}
	for _, cause := range messages.RewriteLefts() {
		d.left[cause] = d.unmade.WithLabelValues(cause.String())
	}
	for _, cause := range []string{nameEncoded, nameInGRPC, nameUnseen} {
		d.unrestored.WithLabelValues(cause)
	}
	return d
}

// count counts a request for a model that a rewrite sends to a target.
func (d *decisions) count(rewrite, model, target string) {
	x := decision{records.Label(rewrite), records.Label(model), records.Label(target)}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.series[x]
	if c == nil {
		if len(d.series) >= mostDecisions {
			x = otherDecision
		}
		x.model = strings.Clone(x.model) // it may lie in the body of the request
		c = d.counter.WithLabelValues(x.rewrite, x.model, x.target)
		d.series[x] = c
	}
	c.Inc()
}
