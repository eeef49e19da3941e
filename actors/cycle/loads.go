package cycle

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
)

// loads collects the load and the picks of endpoints from the pool when Prometheus scrapes us. It keeps nothing of an
// endpoint that has left: the endpoint's series end, and begin at 0 if it comes back. Endpoints with the same labels
// share a series.
type loads struct {
	pool     *endpoints.Published
	failures *endpoints.Tally

	attempts, legacy, requests, tokens, inflight *prometheus.Desc
}

func newLoads(pool *endpoints.Published, failures *endpoints.Tally) *loads {
	// The reference splits what is in flight by flow. Our load counters do not: the last two labels stay empty.
	inflight := []string{"endpoint_name", "namespace", "producer_name", "fairness_id", "priority"}
	return &loads{
		pool: pool, failures: failures,
		attempts: prometheus.NewDesc(prefix+"scheduler_attempts_total",
			"Schedulings by result, of the endpoints that are in the pool.",
			[]string{"status", "target_model_name", "endpoint_name", "namespace", "port"}, nil),
		legacy: prometheus.NewDesc(legacyPrefix+"scheduler_attempts_total",
			"The older name of "+prefix+"scheduler_attempts_total.",
			[]string{"status", "target_model_name", "pod_name", "namespace", "port"}, nil),
		requests: prometheus.NewDesc(prefix+"inflight_requests",
			"Requests that were sent to an endpoint of the pool and have not ended.", inflight, nil),
		tokens: prometheus.NewDesc(prefix+"inflight_tokens", "Prompt tokens of those, estimated.", inflight, nil),
		inflight: prometheus.NewDesc("signalbox_endpoint_inflight_requests",
			"Requests that were sent to an endpoint of the pool and have not ended.", []string{"endpoint"}, nil),
	}
}

// Describe sends the descriptions of the metrics.
func (l *loads) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{l.attempts, l.legacy, l.requests, l.tokens, l.inflight} {
		ch <- d
	}
}

// counts are picks by model.
type counts = iter.Seq2[string, uint64]

// name is an endpoint's name as the reference's metrics have it.
type name struct{ name, namespace string }

// target is where picks went, as labels name it.
type target struct {
	name
	port string
}

func compareTargets(a, b target) int {
	return cmp.Or(
		strings.Compare(a.name.name, b.name.name), strings.Compare(a.namespace, b.namespace),
		strings.Compare(a.port, b.port),
	)
}

// Collect sends the metrics of the endpoints in the snapshot in force.
func (l *loads) Collect(ch chan<- prometheus.Metric) {
	held, picks := map[name]endpoints.Counters{}, map[target][]counts{}
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	for _, e := range l.pool.Snapshot().WithSeries() {
		address, load := string(e.Spec.Address), e.Counters()
		gauge(l.inflight, load.Inflight, address)
		to := target{name{e.Spec.Name, e.Spec.Namespace}, address[strings.LastIndexByte(address, ':')+1:]}
		sum := held[to.name]
		held[to.name] = endpoints.Counters{Inflight: sum.Inflight + load.Inflight, Tokens: sum.Tokens + load.Tokens}
		picks[to] = append(picks[to], e.Models())
	}
	for to, sum := range held {
		gauge(l.requests, sum.Inflight, to.name, to.namespace, "inflight-load-producer", "", "")
		gauge(l.tokens, sum.Tokens, to.name, to.namespace, "inflight-load-producer", "", "")
	}
	l.collectAttempts(ch, picks)
}

// collectAttempts sends picks by endpoint and model. There may be some ten thousand series. They are sent in the order
// of the page, because sorting them here costs less than there. Where the page has no room for the models of an
// endpoint, its picks are sent as one series.
func (l *loads) collectAttempts(ch chan<- prometheus.Metric, picks map[target][]counts) {
	a := attempts{
		desc: l.attempts, legacy: l.legacy, to: ch, room: attemptPageBytes, names: map[string]*dto.LabelPair{},
	}
	a.add(target{}, []counts{l.failures.All()}, "failure")
	for _, to := range slices.SortedFunc(maps.Keys(picks), compareTargets) {
		a.add(to, picks[to], "success")
	}
}

const (
	// attemptPageBytes is how much of the metrics page picks by endpoint and model may take, under both names of the
	// metric. Beyond, each endpoint has one series of each.
	attemptPageBytes = 3 << 20

	// attemptBytes is the length of both series of a model on the page, without the values of their labels but for
	// status.
	attemptBytes = len(prefix+
		`scheduler_attempts_total{endpoint_name="",namespace="",port="",status="success",target_model_name=""} `) +
		len(legacyPrefix+
			`scheduler_attempts_total{namespace="",pod_name="",port="",status="success",target_model_name=""} `) +
		2*(numberBytes+len("\n"))
)

// attempts sends the series of picks.
type attempts struct {
	desc, legacy *prometheus.Desc
	to           chan<- prometheus.Metric
	room         int                       // bytes of the page that are left
	names        map[string]*dto.LabelPair // by model: all series of a model share the pair
	shown        []attempt                 // those of the endpoint that add handles, reused
}

// attempt is a series as it is sent.
type attempt struct {
	desc   *prometheus.Desc
	model  string
	labels []*dto.LabelPair
	count  float64
}

// Desc returns the metric's description.
func (a *attempt) Desc() *prometheus.Desc { return a.desc }

// Write gives the series to the registry.
func (a *attempt) Write(to *dto.Metric) error {
	to.Label, to.Counter = a.labels, &dto.Counter{Value: &a.count}
	return nil
}

func pair(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

// add sends the picks of one endpoint, or of several with the same name.
func (a *attempts) add(of target, tallies []counts, status string) {
	a.shown = a.shown[:0]
	for _, t := range tallies {
		for model, n := range t {
			a.shown = append(a.shown, attempt{model: model, count: float64(n)})
		}
	}
	slices.SortFunc(a.shown, func(a, b attempt) int { return strings.Compare(a.model, b.model) })
	fixed := attemptBytes + 2*(shownBytes(of.name.name)+shownBytes(of.namespace)+len(of.port))
	bytes := 0
	for i := range a.shown {
		bytes += fixed + 2*shownBytes(a.shown[i].model)
	}
	if bytes <= a.room {
		a.room -= bytes
	} else {
		for i := range a.shown {
			a.shown[i].model = other
		}
	}
	a.send(of, status)
}

// send sends what is shown, of which several may have the same model by now, under both names of the metric.
func (a *attempts) send(of target, status string) {
	shared := []*dto.LabelPair{
		pair("endpoint_name", of.name.name), pair("namespace", of.namespace), pair("port", of.port),
		pair("status", status),
	}
	legacy := []*dto.LabelPair{shared[1], pair("pod_name", of.name.name), shared[2], shared[3]}
	for i := 0; i < len(a.shown); {
		next := a.shown[i]
		for i++; i < len(a.shown) && a.shown[i].model == next.model; i++ {
			next.count += a.shown[i].count
		}
		if a.names[next.model] == nil {
			a.names[next.model] = pair("target_model_name", next.model)
		}
		older := next
		next.desc, next.labels = a.desc, append(shared[:4:4], a.names[next.model])
		older.desc, older.labels = a.legacy, append(legacy[:4:4], a.names[next.model])
		a.to <- &next
		a.to <- &older
	}
}
