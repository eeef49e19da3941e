package cycle

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// Families are the metrics of all cycles. Each loop observes through a Metrics of its own.
type Families struct {
	total, failed, picks                  *prometheus.CounterVec
	running, inflight                     *prometheus.GaugeVec
	duration, size, response, ttft, ntpot *prometheus.HistogramVec
	input, cached, output                 *prometheus.HistogramVec
	scheduling                            prometheus.Histogram
	elsewhere                             prometheus.Counter
}

// Buckets as the reference has them, so that dashboards carry over.
var (
	durationBuckets = []float64{
		.005, .025, .05, .1, .2, .4, .6, .8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
		120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
	}
	tokenBuckets = []float64{
		1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32778, 65536, 131072, 262144, 524288, 1048576,
	}
	scheduleBuckets = []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1}
	ntpotBuckets    = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}
)

// NewFamilies registers them.
func NewFamilies(r prometheus.Registerer) *Families {
	labels := []string{"model_name", "target_model_name", "fairness_id", "priority"}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "llm_d_epp_" + name, Help: help}, append(labels[:4:4], more...))
		r.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, more ...string) *prometheus.HistogramVec {
		o := prometheus.HistogramOpts{Name: "llm_d_epp_" + name, Help: help, Buckets: buckets}
		h := prometheus.NewHistogramVec(o, append(labels[:4:4], more...))
		r.MustRegister(h)
		return h
	}
	f := &Families{
		total:    counter("request_total", "Requests that arrived."),
		failed:   counter("request_error_total", "Requests that were refused, failed or were left by the client.", "error_code"),
		duration: histogram("request_duration_seconds", "From the request's headers to its end.", durationBuckets),
		size:     histogram("request_size_bytes", "Request bodies.", prometheus.ExponentialBuckets(64, 2, 25)),
		response: histogram("response_size_bytes", "Response bodies.", tokenBuckets[:15]),
		ttft:     histogram("request_ttft_seconds", "From the request's headers to the first byte of the response body.", durationBuckets[:24], "streaming"),
		ntpot:    histogram("request_ntpot_seconds", "Duration over output tokens.", ntpotBuckets),
		input:    histogram("request_input_tokens", "Prompt tokens, as the model server reported.", tokenBuckets),
		cached:   histogram("request_cached_tokens", "Prompt tokens that were in the prefix cache, as the model server reported.", tokenBuckets),
		output:   histogram("request_output_tokens", "Output tokens, as the model server reported.", tokenBuckets[:12]),
	}
	f.running = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "llm_d_epp_request_running", Help: "Requests in flight."}, labels)
	f.inflight = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "signalbox_endpoint_inflight_requests", Help: "Requests that were sent to an endpoint and have not ended.",
	}, []string{"endpoint"})
	f.picks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "llm_d_epp_scheduler_attempts_total", Help: "Scheduling cycles, by what they came to.",
	}, []string{"status", "target_model_name", "endpoint_name", "namespace", "port"})
	f.scheduling = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "llm_d_epp_scheduler_e2e_duration_seconds", Help: "Scheduling cycles.", Buckets: scheduleBuckets,
	})
	f.elsewhere = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "signalbox_served_elsewhere_total", Help: "Responses from another endpoint than the first of the list.",
	})
	r.MustRegister(f.running, f.inflight, f.picks, f.scheduling, f.elsewhere)
	return f
}

// Metrics observe for one loop: handles are looked up once for each set of labels.
type Metrics struct {
	*Families
	sets      map[labelSet]*handles
	endpoints map[messages.EndpointID]*endpointHandles
	models    map[string]struct{}
	flows     map[string]struct{}
	other     *handles // nil until it is needed
}

type labelSet struct {
	model, fairness string
	priority        int
}

type handles struct {
	labels                                      []string
	total                                       prometheus.Counter
	running                                     prometheus.Gauge
	duration, size, response, ntpot             prometheus.Observer
	input, cached, output, streamTTFT, bodyTTFT prometheus.Observer
}

type endpointHandles struct {
	inflight prometheus.Gauge
	picks    prometheus.Counter
}

const labelValues = 1000 // distinct models, and flows, that a loop names; the rest is "other"

// ForLoop gives the Metrics of one loop.
func (f *Families) ForLoop() *Metrics {
	return &Metrics{
		Families: f, sets: map[labelSet]*handles{}, endpoints: map[messages.EndpointID]*endpointHandles{},
		models: map[string]struct{}{}, flows: map[string]struct{}{},
	}
}

// capped keeps label values few and clean: they come from clients.
func capped(seen map[string]struct{}, v string) string {
	if _, ok := seen[v]; ok {
		return strings.ToValidUTF8(v, "�")
	}
	if len(seen) >= labelValues {
		return "other"
	}
	seen[v] = struct{}{}
	return strings.ToValidUTF8(v, "�")
}

func (m *Metrics) of(r *messages.Record) *handles {
	key := labelSet{r.Model, r.Flow.Fairness, r.Flow.Priority}
	if h, ok := m.sets[key]; ok {
		return h
	}
	if len(m.sets) >= labelValues { // the product of models and flows is bounded too
		return m.rest()
	}
	model := capped(m.models, r.Model)
	l := []string{model, model, capped(m.flows, r.Flow.Fairness), strconv.Itoa(r.Flow.Priority)}
	h := m.handles(l)
	m.sets[key] = h
	return h
}

func (m *Metrics) handles(l []string) *handles {
	return &handles{
		labels: l, total: m.total.WithLabelValues(l...), running: m.running.WithLabelValues(l...),
		duration: m.duration.WithLabelValues(l...), size: m.size.WithLabelValues(l...),
		response: m.response.WithLabelValues(l...), ntpot: m.ntpot.WithLabelValues(l...),
		input: m.input.WithLabelValues(l...), cached: m.cached.WithLabelValues(l...), output: m.output.WithLabelValues(l...),
		streamTTFT: m.ttft.WithLabelValues(append(l, "true")...), bodyTTFT: m.ttft.WithLabelValues(append(l, "false")...),
	}
}

// rest is where all goes that finds no set of its own. It takes the one place beyond the limit.
func (m *Metrics) rest() *handles {
	if m.other == nil {
		m.other = m.handles([]string{"other", "other", "other", "0"})
	}
	return m.other
}

func (m *Metrics) arrived(r *messages.Record) {
	h := m.of(r)
	h.total.Inc()
	h.running.Inc()
	h.size.Observe(float64(r.BodyBytes))
}

func (m *Metrics) scheduled(took time.Duration, why messages.Reason) {
	m.scheduling.Observe(took.Seconds())
	if why != messages.NoReason {
		m.picks.WithLabelValues("failure", "", "", "", "").Inc()
	}
}

func (m *Metrics) endpoint(e *endpoints.Endpoint) *endpointHandles {
	h, ok := m.endpoints[e.ID]
	if !ok {
		port := string(e.Spec.Address[strings.LastIndexByte(string(e.Spec.Address), ':')+1:])
		h = &endpointHandles{
			inflight: m.inflight.WithLabelValues(string(e.Spec.Address)),
			picks:    m.picks.WithLabelValues("success", "", e.Spec.Name, e.Spec.Namespace, port),
		}
		m.endpoints[e.ID] = h
	}
	return h
}

func (m *Metrics) picked(e *endpoints.Endpoint) {
	m.endpoint(e).picks.Inc()
}

func (m *Metrics) held(e *endpoints.Endpoint) { m.endpoint(e).inflight.Inc() }

func (m *Metrics) released(e *endpoints.Endpoint) { m.endpoint(e).inflight.Dec() }

func (m *Metrics) ended(r *messages.Record) {
	h := m.of(r)
	h.running.Dec()
	if r.Reason != messages.NoReason || r.Status >= 400 {
		m.failed.WithLabelValues(append(h.labels, code(r))...).Inc()
	}
	h.duration.Observe(r.Ended.Seconds())
	h.response.Observe(float64(r.ResponseBytes))
	if r.FirstToken > 0 && r.Stream {
		h.streamTTFT.Observe(r.FirstToken.Seconds())
	} else if r.FirstToken > 0 {
		h.bodyTTFT.Observe(r.FirstToken.Seconds())
	}
	if r.Usage.PromptTokens > 0 {
		h.input.Observe(float64(r.Usage.PromptTokens))
		h.cached.Observe(float64(r.Usage.CachedTokens))
	}
	if r.Usage.OutputTokens > 0 {
		h.output.Observe(float64(r.Usage.OutputTokens))
		h.ntpot.Observe(r.Ended.Seconds() / float64(r.Usage.OutputTokens))
	}
}

// code is the error_code label: the model server's status, or the name of our reason.
func code(r *messages.Record) string {
	if r.Reason != messages.NoReason {
		return r.Reason.String()
	}
	return strconv.Itoa(r.Status)
}

// Refused counts a request that never had a cycle.
func (m *Metrics) Refused(r *messages.Record) {
	m.arrived(r)
	m.ended(r)
}
