package telemetry

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
)

// collector reads loops and pool when Prometheus asks.
type collector struct {
	sys  *runtime.System
	pool *endpoints.Pool
	name string // of the pool

	messages, dropped, panics, refused, handoffs, waited, inbox *prometheus.Desc
	ready, queue, running, kv                                   *prometheus.Desc
	endpointQueue, endpointPicks, endpointFailing               *prometheus.Desc
}

// NewCollector makes metrics of the loops and of the pool named name.
func NewCollector(sys *runtime.System, pool *endpoints.Pool, name string) prometheus.Collector {
	loop := func(n, help string) *prometheus.Desc {
		return prometheus.NewDesc("signalbox_loop_"+n, help, []string{"loop"}, nil)
	}
	of := func(n, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(n, help, labels, nil)
	}
	return &collector{
		sys: sys, pool: pool, name: name,
		messages: loop("messages_total", "Messages that a loop handled."),
		dropped:  loop("dropped_total", "Messages to actors that had ended."),
		panics:   loop("panics_total", "Panics of actors."),
		refused:  loop("refused_total", "Work that was refused because the inbox was full."),
		handoffs: loop("handoffs_total", "Times a poster gave the rest of its work to a goroutine."),
		waited:   loop("wait_seconds_total", "Time that messages waited in the inbox."),
		inbox:    loop("inbox_items", "Items in the inbox."),

		ready:           of("llm_d_epp_ready_endpoints", "Endpoints in the pool.", "name"),
		queue:           of("llm_d_epp_average_queue_size", "Mean of sampled waiting requests.", "name"),
		running:         of("llm_d_epp_average_running_requests", "Mean of sampled running requests.", "name"),
		kv:              of("llm_d_epp_average_kv_cache_utilization", "Mean of sampled KV cache use, 0 to 1, of the endpoints that tell it.", "name"),
		endpointQueue:   of("llm_d_epp_per_endpoint_queue_size", "Sampled waiting requests.", "name", "model_server_endpoint"),
		endpointPicks:   of("signalbox_endpoint_picks_total", "Picks of an endpoint, since it came.", "endpoint"),
		endpointFailing: of("signalbox_endpoint_scrape_failing", "1 if the newest scrape failed.", "endpoint"),
	}
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.messages, c.dropped, c.panics, c.refused, c.handoffs, c.waited, c.inbox,
		c.ready, c.queue, c.running, c.kv, c.endpointQueue, c.endpointPicks, c.endpointFailing,
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
	snap := c.pool.Snapshot()
	var queue, running, n, kv, kvTold float64
	for _, e := range snap.Endpoints {
		addr := string(e.Spec.Address)
		ch <- prometheus.MustNewConstMetric(c.endpointPicks, prometheus.CounterValue, float64(e.Picks.Load()), addr)
		failing := 0.0
		if e.Failing.Load() {
			failing = 1
		}
		ch <- prometheus.MustNewConstMetric(c.endpointFailing, prometheus.GaugeValue, failing, addr)
		if s := e.Sample(); s != nil {
			queue, running, n = queue+float64(s.Waiting), running+float64(s.Running), n+1
			if s.KVUsed >= 0 {
				kv, kvTold = kv+s.KVUsed, kvTold+1
			}
			ch <- prometheus.MustNewConstMetric(c.endpointQueue, prometheus.GaugeValue, float64(s.Waiting), c.name, addr)
		}
	}
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, c.name)
	}
	gauge(c.ready, float64(len(snap.Endpoints)))
	gauge(c.queue, queue/max(n, 1))
	gauge(c.running, running/max(n, 1))
	gauge(c.kv, kv/max(kvTold, 1))
}

// PoolInfo says which pool this process picks for.
func PoolInfo(name, namespace string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "signalbox_pool_info", Help: "Always 1; the pool that is picked for.",
		ConstLabels: prometheus.Labels{"name": name, "namespace": namespace},
	})
	g.Set(1)
	return g
}
