package cycle

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
)

// loads read the endpoints' load and picks off the pool when Prometheus asks, so that nothing is kept of an endpoint that
// has gone: its series end with it, and begin at 0 if it comes back. Endpoints with the same labels are one series.
type loads struct {
	pool     *endpoints.Pool
	failures *endpoints.Tally

	attempts, requests, tokens, inflight *prometheus.Desc
}

func newLoads(pool *endpoints.Pool, failures *endpoints.Tally) *loads {
	// The reference splits what is in flight by flow. A load cell does not: these two labels stay empty.
	inflight := []string{"endpoint_name", "namespace", "producer_name", "fairness_id", "priority"}
	return &loads{
		pool: pool, failures: failures,
		attempts: prometheus.NewDesc(prefix+"scheduler_attempts_total", "Scheduling cycles, by what they came to, of the endpoints that are in the pool.",
			[]string{"status", "target_model_name", "endpoint_name", "namespace", "port"}, nil),
		requests: prometheus.NewDesc(prefix+"inflight_requests", "Requests that were sent to an endpoint of the pool and have not ended.", inflight, nil),
		tokens:   prometheus.NewDesc(prefix+"inflight_tokens", "Prompt tokens of those, estimated.", inflight, nil),
		inflight: prometheus.NewDesc("signalbox_endpoint_inflight_requests", "Requests that were sent to an endpoint of the pool and have not ended.",
			[]string{"endpoint"}, nil),
	}
}

// Describe names the metrics.
func (l *loads) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{l.attempts, l.requests, l.tokens, l.inflight} {
		ch <- d
	}
}

// name is what the reference calls an endpoint.
type name struct{ name, namespace string }

// target is where picks went.
type target struct {
	name
	port, model string
}

// Collect reads the snapshot in force.
func (l *loads) Collect(ch chan<- prometheus.Metric) {
	type load struct{ requests, tokens int }
	held, picks := map[name]load{}, map[target]uint64{}
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	for _, e := range l.pool.Snapshot().Endpoints {
		address := string(e.Spec.Address)
		gauge(l.inflight, e.Load().Inflight(), address)
		who := name{e.Spec.Name, e.Spec.Namespace}
		sum := held[who]
		held[who] = load{sum.requests + e.Load().Inflight(), sum.tokens + e.Load().Tokens()}
		e.Models.Each(func(model string, n uint64) {
			picks[target{who, address[strings.LastIndexByte(address, ':')+1:], model}] += n
		})
	}
	for who, sum := range held {
		gauge(l.requests, sum.requests, who.name, who.namespace, "inflight-load-producer", "", "")
		gauge(l.tokens, sum.tokens, who.name, who.namespace, "inflight-load-producer", "", "")
	}
	attempts := func(n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(l.attempts, prometheus.CounterValue, float64(n), labels...)
	}
	for to, n := range picks {
		attempts(n, "success", to.model, to.name.name, to.namespace, to.port)
	}
	l.failures.Each(func(model string, n uint64) { attempts(n, "failure", model, "", "", "") })
}
