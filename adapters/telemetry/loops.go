package telemetry

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// collector reads the loops and the pool each time Prometheus asks.
type collector struct {
	sys   *runtime.System
	pool  *endpoints.Published
	name  string        // of the pool
	stale time.Duration // age from which on a sample does not count in the means of the pool

	messages, dropped, panics, refused, handoffs, waited, inbox                      *prometheus.Desc
	ready, withoutSeries                                                             *prometheus.Desc
	queue, running, kv                                                               spread
	endpointQueue, endpointPicks, endpointFailing, endpointEjected, endpointDegraded *prometheus.Desc
	endpointAsleep                                                                   *prometheus.Desc
	prefixPredicted, prefixReported, prefixLost, prefixDrifting                      *prometheus.Desc
}

// spread describes the mean and the standard deviation of a number that endpoints report.
type spread struct{ mean, deviation *prometheus.Desc }

// NewCollector returns a collector of metrics of the loops and of the pool called name. Samples younger than stale
// count.
func NewCollector(
	sys *runtime.System, pool *endpoints.Published, name string, stale time.Duration,
) prometheus.Collector {
	loop := func(n, help string) *prometheus.Desc {
		return prometheus.NewDesc("signalbox_loop_"+n, help, []string{"loop"}, nil)
	}
	of := func(n, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(n, help, labels, nil)
	}
	spreadOf := func(n, of string) spread {
		return spread{
			mean: prometheus.NewDesc("llm_d_epp_average_"+n, "Mean of sampled "+of+
				", over the endpoints whose sample is not stale.", []string{"name"}, nil),
			deviation: prometheus.NewDesc("llm_d_epp_std_dev_"+n, "Standard deviation of sampled "+of+
				", over the endpoints whose sample is not stale.", []string{"name"}, nil),
		}
	}
	return &collector{
		sys: sys, pool: pool, name: name, stale: stale,
		messages: loop("messages_total", "Messages that a loop handled."),
		dropped:  loop("dropped_total", "Messages to actors that had ended."),
		panics:   loop("panics_total", "Panics of actors."),
		refused:  loop("refused_total", "Work that was refused because the inbox was full."),
		handoffs: loop("handoffs_total", "Times a poster gave the rest of its work to a goroutine."),
		waited:   loop("wait_seconds_total", "Time that messages waited in the inbox."),
		inbox:    loop("inbox_items", "Items in the inbox."),

		ready: of("llm_d_epp_ready_endpoints", "Endpoints in the pool.", "name"),
		withoutSeries: of("signalbox_endpoints_without_series",
			"Endpoints that have no series of their own, because there are too many."),
		queue:   spreadOf("queue_size", "waiting requests"),
		running: spreadOf("running_requests", "running requests"),
		kv:      spreadOf("kv_cache_utilization", "KV cache use, 0 to 1, of the endpoints that report it"),
		endpointQueue: of("llm_d_epp_per_endpoint_queue_size", "Sampled waiting requests.", "name",
			"model_server_endpoint"),
		endpointPicks: of("signalbox_endpoint_picks_total", "Picks of an endpoint since it was added.", "endpoint"),
		endpointEjected: of("signalbox_endpoint_ejected",
			"1 if the endpoint is ejected, so that it gets no requests, with the cause; else 0.", "endpoint", "cause"),
		endpointDegraded: of("signalbox_endpoint_degraded",
			"1 if the endpoint is degraded, so that it comes last, with the cause; else 0.", "endpoint", "cause"),
		endpointAsleep: of("signalbox_endpoint_asleep", "1 if by its newest page it sleeps; else 0.", "endpoint"),
		prefixPredicted: of("signalbox_endpoint_prefix_predicted_tokens_total",
			"Prompt tokens of audited answers that the prefix index held for the endpoint.", "endpoint"),
		prefixReported: of("signalbox_endpoint_prefix_reported_tokens_total",
			"Cached prompt tokens that the endpoint reported in audited answers.", "endpoint"),
		prefixLost: of("signalbox_endpoint_prefix_lost_blocks_total",
			"Blocks of the prefix index that were dropped because audits showed that the endpoint had lost them.",
			"endpoint"),
		prefixDrifting: of("signalbox_endpoint_prefix_drifting",
			"1 if the endpoint does not find again what it computed, and has credit only for what it reports; else 0.",
			"endpoint"),
		endpointFailing: of("signalbox_endpoint_scrape_failing", "1 if the newest scrape failed.", "endpoint"),
	}
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.messages, c.dropped, c.panics, c.refused, c.handoffs, c.waited, c.inbox,
		c.ready, c.withoutSeries, c.queue.mean, c.queue.deviation, c.running.mean, c.running.deviation, c.kv.mean,
		c.kv.deviation,
		c.endpointQueue, c.endpointPicks, c.endpointFailing, c.endpointEjected, c.endpointDegraded,
		c.endpointAsleep, c.prefixPredicted, c.prefixReported, c.prefixLost, c.prefixDrifting,
	} {
		ch <- d
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for i := range c.sys.Loops() {
		c.loop(ch, i)
	}
	c.endpoints(ch)
}

func (c *collector) loop(ch chan<- prometheus.Metric, i int) {
	s, label := c.sys.Stats(i), strconv.Itoa(i)
	counter := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, label)
	}
	counter(c.messages, float64(s.Messages))
	counter(c.dropped, float64(s.Dropped))
	counter(c.panics, float64(s.Panics))
	counter(c.refused, float64(s.Refused))
	counter(c.handoffs, float64(s.Handoffs))
	counter(c.waited, s.Waited.Seconds())
	ch <- prometheus.MustNewConstMetric(c.inbox, prometheus.GaugeValue, float64(s.Inbox), label)
}

func (c *collector) endpoints(ch chan<- prometheus.Metric) {
	snap, now := c.pool.Snapshot(), c.sys.Now()
	var queue, running, kv moments
	listed := snap.WithSeries()
	names := namesOf(listed)
	for i, e := range listed {
		c.endpoint(ch, e, names[i])
	}
	for _, e := range snap.Endpoints {
		if s := e.Sample(); s.Fresh(now, c.stale) {
			queue.addKnown(s.BuiltIn(attributes.WaitingRequests))
			running.addKnown(s.BuiltIn(attributes.RunningRequests))
			kv.addKnown(s.BuiltIn(attributes.KVCacheUsage))
		}
	}
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, c.name)
	}
	gauge(c.ready, float64(len(snap.Endpoints)))
	ch <- prometheus.MustNewConstMetric(c.withoutSeries, prometheus.GaugeValue,
		float64(len(snap.Endpoints)-len(listed)))
	for _, of := range []struct {
		spread
		moments
	}{{c.queue, queue}, {c.running, running}, {c.kv, kv}} {
		gauge(of.spread.mean, of.moments.mean)
		gauge(of.spread.deviation, of.moments.deviation())
	}
}

// namesOf returns what stands for each endpoint in the metrics of the reference: its name, such as vllm-0-rank-0, or
// its address where it has none or shares it with one of another namespace. No two series may have the same labels.
func namesOf(all []*endpoints.Endpoint) (names []string) {
	uses := make(map[string]int, len(all))
	for _, e := range all {
		uses[e.Spec.Name]++
	}
	for _, e := range all {
		name := e.Spec.Name
		if name == "" || uses[name] > 1 {
			name = string(e.Spec.Address)
		}
		names = append(names, name)
	}
	return names
}

// endpoint exports what is counted of one endpoint. The reference's metrics have its name, ours its address.
func (c *collector) endpoint(ch chan<- prometheus.Metric, e *endpoints.Endpoint, name string) {
	address, failing := string(e.Spec.Address), 0.0
	if e.Failing() {
		failing = 1
	}
	ch <- prometheus.MustNewConstMetric(c.endpointPicks, prometheus.CounterValue, float64(e.Picks()), address)
	ch <- prometheus.MustNewConstMetric(c.endpointFailing, prometheus.GaugeValue, failing, address)
	c.outlier(ch, e)
	c.prefix(ch, e)
	if s := e.Sample(); s != nil {
		if queue := s.BuiltIn(attributes.WaitingRequests); !math.IsNaN(queue) {
			ch <- prometheus.MustNewConstMetric(c.endpointQueue, prometheus.GaugeValue, queue, c.name, name)
		}
		if asleep := s.BuiltIn(attributes.Asleep); !math.IsNaN(asleep) {
			ch <- prometheus.MustNewConstMetric(c.endpointAsleep, prometheus.GaugeValue, asleep, address)
		}
	}
}

// prefix exports what audits have found of an endpoint's prefix cache.
func (c *collector) prefix(ch chan<- prometheus.Metric, e *endpoints.Endpoint) {
	found := e.Prefix()
	counter := func(d *prometheus.Desc, n uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), string(e.Spec.Address))
	}
	counter(c.prefixPredicted, found.PredictedTokens)
	counter(c.prefixReported, found.ReportedTokens)
	counter(c.prefixLost, found.LostBlocks)
	drifting := 0.0
	if found.Drifts {
		drifting = 1
	}
	ch <- prometheus.MustNewConstMetric(c.prefixDrifting, prometheus.GaugeValue, drifting, string(e.Spec.Address))
}

// outlier exports whether an endpoint is ejected or degraded.
func (c *collector) outlier(ch chan<- prometheus.Metric, e *endpoints.Endpoint) {
	status := e.Outlier()
	show := func(d *prometheus.Desc, ejected bool) {
		v, cause := 0.0, messages.NoFailure
		if status != nil && status.Ejected == ejected {
			v, cause = 1, status.Cause
		}
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, string(e.Spec.Address), cause.String())
	}
	show(c.endpointEjected, true)
	show(c.endpointDegraded, false)
}

// moments holds a count, a mean and the sum of squared distances from the mean, updated by Welford's method so that no
// precision is lost. All are zero for no values.
type moments struct{ n, mean, squares float64 }

func (m *moments) add(v float64) {
	m.n++
	d := v - m.mean
	m.mean += d / m.n
	m.squares += d * (v - m.mean)
}

// addKnown adds a number of a sample, unless the sample does not have it.
func (m *moments) addKnown(v float64) {
	if !math.IsNaN(v) {
		m.add(v)
	}
}

func (m *moments) deviation() float64 { return math.Sqrt(m.squares / max(m.n, 1)) }

// PoolInfo returns a metric that names the pool that this process picks for.
func PoolInfo(name, namespace string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "signalbox_pool_info", Help: "Always 1; the pool that is picked for.",
		ConstLabels: prometheus.Labels{"name": name, "namespace": namespace},
	})
	g.Set(1)
	return g
}
