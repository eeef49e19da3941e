package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/cow"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// media collects what producers find of the media of requests. As with other series of endpoints, those of one that
// has left the pool end.
type media struct {
	pool         func() *endpoints.Snapshot
	asked, found *prometheus.Desc
	ratio        *prometheus.HistogramVec

	mu  sync.Mutex // of the list, not of what it counts
	all map[producer]*mediaCounts
}

// producer has the labels of a producer.
type producer struct{ typ, name string }

// mediaCounts are those of one producer, in which all loops count.
type mediaCounts struct {
	asked mediaCounters
	found cow.Map[messages.EndpointID, *mediaCounters]
	ratio prometheus.Observer
}

type mediaCounters [messages.MediumKinds]atomic.Uint64

func (c *mediaCounters) add(n *messages.MediaCounts) {
	for kind, more := range n {
		if more > 0 {
			c[kind].Add(uint64(more))
		}
	}
}

func newMedia(pool func() *endpoints.Snapshot) *media {
	labels := []string{"plugin_type", "plugin_name", "modality"}
	return &media{
		pool: pool, all: map[producer]*mediaCounts{},
		asked: prometheus.NewDesc("llm_d_epp_encoder_cache_queries_total",
			"Media of requests, of which it was looked up where they were sent before.", labels, nil),
		found: prometheus.NewDesc("llm_d_epp_encoder_cache_hits_total",
			"Media of requests that an endpoint of the pool, to which the request could go, was sent before.",
			append(labels, "pod"), nil),
		ratio: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "llm_d_epp_encoder_cache_hit_ratio",
			Help:    "Share of a request's media that an endpoint was sent before, one for each that it could go to.",
			Buckets: []float64{0, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1},
		}, labels[:2]),
	}
}

// of returns the counts of a producer.
func (m *media) of(s stepLabels) *mediaCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	labels := producer{s.typ, s.name}
	if m.all[labels] == nil {
		m.all[labels] = &mediaCounts{ratio: m.ratio.WithLabelValues(s.typ, s.name)}
	}
	return m.all[labels]
}

// forget ends the series of a producer, if it has any.
func (m *media) forget(s stepLabels) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if labels := (producer{s.typ, s.name}); m.all[labels] != nil {
		delete(m.all, labels)
		m.ratio.DeleteLabelValues(s.typ, s.name)
	}
}

// hit adds which media of those that were asked for an endpoint was sent before.
func (c *mediaCounts) hit(at messages.EndpointID, found, asked *messages.MediaCounts) {
	n := found.Sum()
	if n > 0 {
		counters, known := c.found.Get(at)
		if !known {
			counters = c.enter(at)
		}
		counters.add(found)
	}
	c.ratio.Observe(float64(n) / float64(asked.Sum()))
}

// enter returns the counts of an endpoint, which it adds.
func (c *mediaCounts) enter(at messages.EndpointID) (entered *mediaCounters) {
	c.found.Change(func(now map[messages.EndpointID]*mediaCounters) map[messages.EndpointID]*mediaCounters {
		if entered = now[at]; entered != nil {
			return nil
		}
		entered = new(mediaCounters)
		next := make(map[messages.EndpointID]*mediaCounters, len(now)+1)
		maps.Copy(next, now)
		next[at] = entered
		return next
	})
	return entered
}

// keep drops the counts of endpoints that are not among these.
func (c *mediaCounts) keep(there map[messages.EndpointID]bool) {
	c.found.Change(func(now map[messages.EndpointID]*mediaCounters) map[messages.EndpointID]*mediaCounters {
		next := make(map[messages.EndpointID]*mediaCounters, len(now))
		for at, counters := range now {
			if there[at] {
				next[at] = counters
			}
		}
		if len(next) == len(now) {
			return nil
		}
		return next
	})
}

// Describe sends the descriptions of the metrics.
func (m *media) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.asked
	ch <- m.found
	m.ratio.Describe(ch)
}

// Collect sends the metrics, and forgets what was counted of endpoints that have left the pool.
func (m *media) Collect(ch chan<- prometheus.Metric) {
	snap := m.pool()
	there := map[messages.EndpointID]bool{}
	for _, e := range snap.Endpoints {
		there[e.ID] = true
	}
	listed := snap.WithSeries()
	pods, room := podsOf(listed), mediaPageBytes
	m.mu.Lock()
	defer m.mu.Unlock()
	for labels, c := range m.all {
		send(ch, m.asked, &c.asked, labels)
		c.keep(there)
		found := c.found.All()
		for i, e := range listed {
			if counters := found[e.ID]; counters != nil && room > 0 {
				names := len(labels.typ) + len(labels.name) + len(pods[i])
				room -= send(ch, m.found, counters, labels, pods[i]) * (hitBytes + names)
			}
		}
	}
	m.ratio.Collect(ch)
}

const (
	// mediaPageBytes is how much of the metrics page hits by endpoint may take. Endpoints beyond have none.
	mediaPageBytes = 512 << 10

	// hitBytes is the length of a series of hits on the page, without the values of its labels but for modality.
	hitBytes = len(`llm_d_epp_encoder_cache_hits_total{modality="unknown",plugin_name="",plugin_type="",pod=""} 1e+18`)
)

// send sends what was counted of each kind, and returns how many series that were.
func send(
	ch chan<- prometheus.Metric, d *prometheus.Desc, c *mediaCounters, labels producer, pod ...string,
) (series int) {
	for kind := range messages.MediumKinds {
		if n := c[kind].Load(); n > 0 {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n),
				append([]string{labels.typ, labels.name, kind.String()}, pod...)...)
			series++
		}
	}
	return series
}

// podsOf returns what stands for each endpoint as a pod in the metrics of the reference: its namespace and name, or its
// address where it has none or shares it.
func podsOf(all []*endpoints.Endpoint) (pods []string) {
	pods = namesOf(all)
	for i, e := range all {
		if pods[i] == e.Spec.Name && e.Spec.Namespace != "" {
			pods[i] = e.Spec.Namespace + "/" + e.Spec.Name
		}
	}
	return pods
}
