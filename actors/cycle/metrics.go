package cycle

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/messages"
)

// Families holds the metrics of the cycles of all loops.
type Families struct {
	labels                                      labels
	line                                        lineMetrics
	total, failed, splits                       *prometheus.CounterVec
	running                                     *prometheus.GaugeVec
	duration, size, response, ttft, ntpot, tpot *prometheus.HistogramVec
	input, cached, output                       *prometheus.HistogramVec
	scheduling, processing, hitRatio, hitBytes  prometheus.Histogram
	elsewhere, unlogged                         prometheus.Counter
	usage                                       map[messages.UsageSource]prometheus.Counter // requests that ended
	outputTokens                                map[messages.UsageSource]prometheus.Counter // reported and estimated

	id func(messages.RequestID) string // as clients get it, for exemplars; nil = there are none

	outlived atomic.Int64    // requests in the phase detached
	checks   *meter          // of a conformance checker's requests; no page shows it
	failures endpoints.Tally // schedulings that picked nothing, by model
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
	processBuckets  = []float64{.0005, .001, .002, .005, .01, .015, .025, .04, .06, .1, .25, .5, 1, 2.5, 5, 10}
	queueBuckets    = []float64{.0001, .0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	ntpotBuckets    = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}
	tpotBuckets     = []float64{
		.0005, .00205, .005, .01, .02, .04, .06, .08, .1, .125, .15, .2, .3, .4, .5, .6, .8, 1, 2,
	}
	ratioBuckets = []float64{0, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1}
	hitBuckets   = []float64{0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536}

	requestLabels = []string{"model_name", "target_model_name", "fairness_id", "priority"}
)

const (
	prefix = "llm_d_epp_"

	// legacyPrefix begins older names of three metrics, by which an autoscaler reads them still.
	legacyPrefix = "inference_extension_"
)

// NewFamilies creates the metrics and registers them. Endpoints are read from pool, and name is the pool's label.
func NewFamilies(r prometheus.Registerer, pool *endpoints.Published, name string) *Families {
	f := newFamilies(r, name)
	f.checks = newMeter(newFamilies(prometheus.NewRegistry(), name), rest)
	r.MustRegister(newLoads(pool, &f.failures), &paces{families: f, desc: prometheus.NewDesc(prefix+paceName,
		"Time from one event with output of a streamed response to the next, from the first token on.",
		requestLabels, nil)})
	return f
}

// ShowRequests has buckets of durations name a request of theirs, by its id as clients get it. It is called before
// the first request, or not at all.
func (f *Families) ShowRequests(id func(messages.RequestID) string) { f.id = id }

func newFamilies(r prometheus.Registerer, name string) *Families {
	f := &Families{labels: newLabels()}
	f.requests(r)
	f.waiting(r, name)
	f.picking(r)
	f.sources(r)
	return f
}

func histogram(
	r prometheus.Registerer, name, help string, buckets []float64, labels ...string,
) *prometheus.HistogramVec {
	opts := prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}
	h := prometheus.NewHistogramVec(opts, labels)
	r.MustRegister(h)
	return h
}

// requests are the metrics of a request as its client sees it.
func (f *Families) requests(r prometheus.Registerer) {
	family := func(name, help string, buckets []float64, more ...string) *prometheus.HistogramVec {
		f.labels.cost.histogram(name, buckets, more...)
		return histogram(r, name, help, buckets, append(requestLabels[:4:4], more...)...)
	}
	f.total = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "request_total", Help: "Requests that arrived.",
	}, requestLabels)
	f.failed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "request_error_total", Help: "Requests that were refused, failed or were left by the client.",
	}, append(requestLabels[:4:4], "error_code"))
	f.running = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: prefix + "request_running", Help: "Requests in flight.",
	}, requestLabels)
	f.duration = family("request_duration_seconds", "From the request's headers to its end.", durationBuckets)
	f.size = family("request_size_bytes", "Request bodies.", prometheus.ExponentialBuckets(64, 2, 25))
	f.response = family("response_size_bytes", "Response bodies, of requests that had a response.", tokenBuckets[:15])
	f.ttft = family("request_ttft_seconds",
		"From the request's headers to the first byte of the response body.", durationBuckets[:24], "streaming")
	f.ntpot = family("request_ntpot_seconds",
		"Duration over output tokens, which are estimated where request_output_tokens is.", ntpotBuckets)
	f.tpot = family("request_streaming_tpot_seconds",
		"Time from the first token over the output tokens after it, of streamed responses; "+
			"estimated where request_output_tokens is.", tpotBuckets)
	f.labels.cost.histogram(paceName, records.PaceBounds())
	f.input = family("request_input_tokens", "Prompt tokens, as the model server reported.", tokenBuckets)
	f.cached = family("request_cached_tokens",
		"Prompt tokens that were in the prefix cache, as the model server reported.", tokenBuckets)
	f.output = family("request_output_tokens",
		"Output tokens, as the model server reported, or estimated from the response's bytes where its body was not "+
			"seen; unknown ones are left out. signalbox_output_tokens_total has the share of each.", tokenBuckets[:12])
	// The time to first token has two histograms for each set of labels, of which family has counted one.
	f.labels.cost.histogram("request_ttft_seconds", durationBuckets[:24], "streaming")
	f.labels.cost.line("request_total")
	f.labels.cost.line("request_running")
	for range errorCodes {
		f.labels.cost.line("request_error_total", "error_code")
	}
	r.MustRegister(f.total, f.failed, f.running)
}

// lineMetrics are the families of what waits, and what their series cost.
type lineMetrics struct {
	admitted                         *prometheus.CounterVec
	queued, enqueue                  *prometheus.HistogramVec
	size, bytes                      [2]*prometheus.GaugeVec // under both of their names
	depthCost, entryCost, endingCost cost
}

// waiting registers the metrics of the line.
func (f *Families) waiting(r prometheus.Registerer, pool string) {
	inPool := prometheus.Labels{"inference_pool": pool}
	f.line.admitted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "flow_control_requests_total", ConstLabels: inPool,
		Help: "Requests that left the line, by outcome.",
	}, []string{"outcome", "priority"})
	f.line.queued = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: prefix + "flow_control_request_queue_duration_seconds", Help: "Time in the queue.",
		Buckets: queueBuckets, ConstLabels: inPool,
	}, append(requestLabels[:4:4], "outcome"))
	f.line.enqueue = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: prefix + "flow_control_request_enqueue_duration_seconds", Buckets: scheduleBuckets,
		Help: "From when a request that had to wait came until it had its place in the line (outcome " +
			"NotYetFinalized), or was refused one.",
	}, []string{"fairness_id", "priority", "outcome"})
	gauge := func(name, help string) (both [2]*prometheus.GaugeVec) {
		name = "flow_control_" + name
		for i, opts := range []prometheus.GaugeOpts{
			{Name: prefix + name, Help: help, ConstLabels: inPool},
			{Name: legacyPrefix + name, Help: "The older name of " + prefix + name + ".", ConstLabels: inPool},
		} {
			both[i] = prometheus.NewGaugeVec(opts, requestLabels)
			r.MustRegister(both[i])
			f.line.depthCost.line(name)
			f.line.depthCost.bytes += len(opts.Name) - len(prefix+name)
		}
		return both
	}
	f.line.size = gauge("queue_size", "Requests that wait for room.")
	f.line.bytes = gauge("queue_bytes", "Bytes of the bodies of requests that wait for room.")
	r.MustRegister(f.line.admitted, f.line.queued, f.line.enqueue)

	ofPool := len(`inference_pool="",`) + shownBytes(pool)
	for _, c := range []*cost{&f.labels.cost, &f.line.endingCost} { // of those that are dispatched, and of others
		c.histogram("flow_control_request_queue_duration_seconds", queueBuckets, "outcome")
		c.bytes += (len(queueBuckets) + 3) * ofPool
	}
	f.line.endingCost.line("flow_control_requests_total", "outcome", "inference_pool")
	f.line.entryCost.histogram("flow_control_request_enqueue_duration_seconds", scheduleBuckets, "outcome")
	f.line.depthCost.bytes += 4 * ofPool
}

// picking registers the metrics of scheduling.
func (f *Families) picking(r prometheus.Registerer) {
	const producer = "approx-prefix-cache-producer"
	index := prometheus.Labels{"plugin_name": producer, "plugin_type": producer}
	f.scheduling = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: prefix + "scheduler_e2e_duration_seconds", Help: "From the start of a scheduling to its pick.",
		Buckets: scheduleBuckets,
	})
	f.processing = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: prefix + "request_processing_duration_seconds", Buckets: processBuckets,
		Help: "From the request's headers to the pick: the body's arrival and the time in the queue are in it.",
	})
	f.hitRatio = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: prefix + "prefix_indexer_hit_ratio", Buckets: ratioBuckets, ConstLabels: index,
		Help: "Share of the prompt's blocks that the picked endpoint held.",
	})
	f.hitBytes = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: prefix + "prefix_indexer_hit_bytes", Buckets: hitBuckets, ConstLabels: index,
		Help: "Bytes of the prompt's blocks that the picked endpoint held.",
	})
	// A model has four series at most, which are few beside those of its requests.
	f.splits = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "disagg_decision_total", Help: "Picks by the stages that have servers of their own.",
	}, []string{"plugin_name", "plugin_type", "model_name", "decision_type"})
	f.elsewhere = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "signalbox_served_elsewhere_total", Help: "Responses from another endpoint than the first of the list.",
	})
	f.unlogged = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "signalbox_unlogged_total", Help: "Requests whose access log entry never came.",
	})
	outlived := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "signalbox_outlived_requests",
		Help: "Requests whose response runs on past their stream: the access log tells its end.",
	}, func() float64 { return float64(f.Outlived()) })
	r.MustRegister(f.scheduling, f.processing, f.hitRatio, f.hitBytes, f.splits, f.elsewhere, f.unlogged, outlived)
}

// sources are the metrics of how the tokens of responses are known.
func (f *Families) sources(r prometheus.Registerer) {
	responses := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_usage_total",
		Help: "Requests that ended, by how the output tokens of their responses are known, or why they are not: " +
			"none = no response, or an error; not-learned = too few like it were seen in full for an estimate; " +
			"not-estimable = the bytes of such a response say nothing; not-measured = its bytes are unknown.",
	}, []string{"source"})
	tokens := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_output_tokens_total",
		Help: "Output tokens: reported by the model server, or estimated from the bytes of a response.",
	}, []string{"source"})
	f.usage = map[messages.UsageSource]prometheus.Counter{}
	f.outputTokens = map[messages.UsageSource]prometheus.Counter{}
	for _, s := range messages.UsageSources() {
		f.usage[s] = responses.WithLabelValues(s.String())
	}
	for _, s := range []messages.UsageSource{messages.UsageReported, messages.UsageEstimated} {
		f.outputTokens[s] = tokens.WithLabelValues(s.String())
	}
	r.MustRegister(responses, tokens)
}

// Totals returns the counters of the requests that arrived, and of those that were refused, failed or were left by the
// client.
func (f *Families) Totals() (arrived, failed prometheus.Collector) { return f.total, f.failed }

// Ends returns the counters of waits that have ended, by outcome and priority.
func (f *Families) Ends() prometheus.Collector { return f.line.admitted }

// Outlived returns the number of requests in the phase detached, which do not need their stream.
func (f *Families) Outlived() int { return int(f.outlived.Load()) }

// perToken returns the seconds that each token after the first took; false if that cannot be told.
func perToken(whole, first time.Duration, tokens int) (float64, bool) {
	if first <= 0 || tokens < 2 || whole < first {
		return 0, false
	}
	return (whole - first).Seconds() / float64(tokens-1), true
}

// paceName is the reference's for the time between tokens, without the prefix.
const paceName = "request_streaming_itl_seconds"

// paceCounters have the events of the responses of one set of labels. The end of a response adds all of its events at
// once, which a histogram of the client library cannot.
type paceCounters struct {
	events [messages.PaceBuckets]atomic.Uint64
	nanos  atomic.Int64
}

func (c *paceCounters) add(p *messages.Pace) {
	if *p == (messages.Pace{}) {
		return
	}
	for i, n := range p.Events {
		if n > 0 {
			c.events[i].Add(uint64(n))
		}
	}
	c.nanos.Add(int64(p.Sum))
}

// paces collects the counters of all sets of labels as histograms.
type paces struct {
	families *Families
	desc     *prometheus.Desc
}

// Describe sends the description of the metric.
func (p *paces) Describe(ch chan<- *prometheus.Desc) { ch <- p.desc }

// Collect sends a histogram for each set of labels that has events.
func (p *paces) Collect(ch chan<- prometheus.Metric) {
	bounds := records.PaceBounds()
	for _, m := range p.families.labels.sets.All() {
		all, upTo := uint64(0), make(map[float64]uint64, len(bounds))
		for i := range m.pace.events {
			all += m.pace.events[i].Load()
			if i < len(bounds) {
				upTo[bounds[i]] = all
			}
		}
		if all > 0 {
			sum := float64(m.pace.nanos.Load()) / 1e9
			ch <- prometheus.MustNewConstHistogram(p.desc, all, sum, upTo, m.labels...)
		}
	}
}
