package cycle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// bench is the metrics of all cycles over a pool, whose endpoints serve the models m and n.
type bench struct {
	*testing.T
	reg  *prometheus.Registry
	pool *endpoints.Published
	all  *Families
}

func newBench(t *testing.T, specs ...messages.EndpointSpec) *bench {
	b := &bench{T: t, reg: prometheus.NewRegistry(), pool: endpoints.NewPublished()}
	b.all = NewFamilies(b.reg, b.pool, "pool")
	b.all.Served("m", "n")
	b.all.labels.flows.Add("f")
	b.publish(1, specs...)
	return b
}

// publish puts endpoints of one generation in force.
func (b *bench) publish(generation uint32, specs ...messages.EndpointSpec) {
	var es []*endpoints.Endpoint
	for i, s := range specs {
		es = append(es, endpoints.New(messages.EndpointID{Slot: uint32(i), Generation: generation}, s))
	}
	endpoints.Publisher{Published: b.pool}.Publish(endpoints.NewSnapshot(uint64(generation), es), nil)
}

func (b *bench) gather() map[string]*dto.MetricFamily {
	b.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		b.Fatal(err)
	}
	all := map[string]*dto.MetricFamily{}
	for _, f := range families {
		all[f.GetName()] = f
	}
	return all
}

// values returns a family's series, each by its label values, in the order of the label names; a histogram's is "count
// sum".
func (b *bench) values(family string) map[string]string {
	b.Helper()
	out := map[string]string{}
	for _, m := range b.gather()[family].GetMetric() {
		key := ""
		for _, l := range m.GetLabel() {
			key += l.GetValue() + "|"
		}
		if h := m.GetHistogram(); h != nil {
			out[key] = fmt.Sprint(h.GetSampleCount(), " ", h.GetSampleSum())
			continue
		}
		out[key] = fmt.Sprint(m.GetCounter().GetValue() + m.GetGauge().GetValue())
	}
	return out
}

func (b *bench) want(family string, want map[string]string) {
	b.Helper()
	if got := b.values(family); fmt.Sprint(got) != fmt.Sprint(want) {
		b.Errorf("%s: got %v, want %v", family, got, want)
	}
}

// live takes a request through its life.
func (b *bench) live(r *messages.Record, to *endpoints.Endpoint) {
	a := b.all.arrived(r)
	a.onDispatched(r.QueueWait)
	a.onScheduled(time.Millisecond, messages.NoReason)
	a.onPicked(to, 3, 4)
	a.onAnswered(2 * time.Millisecond)
	a.responded(r)
	a.ended(r)
}

var (
	spec     = messages.EndpointSpec{Name: "a", Namespace: "ns", Address: "10.0.0.1:8000"}
	streamed = messages.Record{
		Model: "m", Flow: messages.FlowKey{Fairness: "f", Priority: 2}, Stream: true, Status: 200,
		QueueWait:  time.Second,
		FirstToken: 2 * time.Second, Ended: 6 * time.Second, BodyBytes: 100, ResponseBytes: 50,
		Usage: messages.Usage{Source: messages.UsageReported, PromptKnown: true, PromptTokens: 20,
			CachedTokens: 10, CachedKnown: true, OutputTokens: 5},
	}
	refused = messages.Record{
		Model: "m", Flow: streamed.Flow, Status: 429, Reason: messages.NoCapacity, Ended: time.Second,
	}
)

// The events of streamed responses that were answered well are counted by the time from one to the next.
func TestPaceOfStreams(t *testing.T) {
	const family = "llm_d_epp_request_streaming_itl_seconds"
	b := newBench(t, spec)
	pace := messages.Pace{Events: [messages.PaceBuckets]uint32{1: 2, 15: 1}, Sum: 3 * time.Second}
	plain, failed := streamed, streamed
	plain.Stream, failed.Status = false, 500
	for _, r := range []*messages.Record{&plain, &failed} {
		a := b.all.arrived(r)
		a.paced(r, &pace)
		a.ended(r)
	}
	b.want(family, nil)
	for range 2 {
		a := b.all.arrived(&streamed)
		a.paced(&streamed, &pace)
		a.ended(&streamed)
	}
	b.want(family, map[string]string{"f|m|2|m|": "6 6"})
	got := b.gather()[family].GetMetric()[0].GetHistogram().GetBucket()
	for i, want := range map[int]uint64{0: 0, 1: 4, 14: 4} {
		if n := got[i].GetCumulativeCount(); n != want || len(got) != 15 {
			t.Errorf("%d up to %v s, in %d buckets; want %d in 15", n, got[i].GetUpperBound(), len(got), want)
		}
	}
}

func TestServedRequestIsMeasured(t *testing.T) {
	b := newBench(t, spec)
	b.live(&streamed, b.pool.Snapshot().Endpoints[0])
	for family, want := range map[string]string{
		"request_total": "1", "request_running": "0", "request_duration_seconds": "1 6", "request_size_bytes": "1 100",
		"response_size_bytes": "1 50", "request_input_tokens": "1 20", "request_cached_tokens": "1 10",
		"request_output_tokens": "1 5",
		"request_ntpot_seconds": "1 1.2", "request_streaming_tpot_seconds": "1 1",
	} {
		b.want("llm_d_epp_"+family, map[string]string{"f|m|2|m|": want})
	}
	b.want("llm_d_epp_request_ttft_seconds", map[string]string{"f|m|2|true|m|": "1 2", "f|m|2|false|m|": "0 0"})
	b.want("signalbox_output_tokens_total", map[string]string{"reported|": "5", "estimated|": "0"})
	b.want("llm_d_epp_request_error_total", nil)
	b.want("llm_d_epp_request_processing_duration_seconds", map[string]string{"": "1 0.002"})
	b.want(
		"llm_d_epp_prefix_indexer_hit_ratio",
		map[string]string{"approx-prefix-cache-producer|approx-prefix-cache-producer|": "1 0.75"},
	)
	b.want(
		"llm_d_epp_prefix_indexer_hit_bytes",
		map[string]string{"approx-prefix-cache-producer|approx-prefix-cache-producer|": "1 768"},
	)
	b.want("llm_d_epp_flow_control_requests_total", map[string]string{"pool|Dispatched|2|": "1"})
	b.want(
		"llm_d_epp_flow_control_request_queue_duration_seconds", map[string]string{"f|pool|m|Dispatched|2|m|": "1 1"},
	)
	b.want("llm_d_epp_scheduler_attempts_total", map[string]string{"a|ns|8000|success|m|": "1"})
	b.want("inference_extension_scheduler_attempts_total", map[string]string{"ns|a|8000|success|m|": "1"})
}

// A request counts under the name of its model once that is known, and under unknown if it names none.
func TestSplitRequestsCountByModel(t *testing.T) {
	b := newBench(t, spec)
	by := schedule.HandlerLabels{Type: "disagg-profile-handler", Name: "pd"}
	for _, c := range []struct {
		model, how string
		status     int
	}{
		{"m", "prefill-decode", 200}, {"m", "prefill-decode", 500}, {"m", "decode-only", 200}, {"", "decode-only", 200},
		{"new", "decode-only", 200}, {"made up", "decode-only", 404},
	} {
		r := streamed
		r.Model, r.Status = c.model, c.status
		a := b.all.arrived(&r)
		a.onSplit(split{by, c.how})
		a.responded(&r)
		a.ended(&r)
	}
	b.want("llm_d_epp_disagg_decision_total", map[string]string{
		"prefill-decode|m|pd|disagg-profile-handler|":    "2",
		"decode-only|m|pd|disagg-profile-handler|":       "1",
		"decode-only|unknown|pd|disagg-profile-handler|": "1",
		"decode-only|new|pd|disagg-profile-handler|":     "1",
		"decode-only|other|pd|disagg-profile-handler|":   "1",
	})
}

func TestRequestWithoutAResponseHasNoResponseSize(t *testing.T) {
	b := newBench(t)
	b.all.Refused(&refused)
	b.want("llm_d_epp_response_size_bytes", map[string]string{"f|m|2|m|": "0 0"})
	b.want("llm_d_epp_request_error_total", map[string]string{"rejected-saturated|f|m|2|m|": "1"})
	empty := messages.Record{Model: "m", Flow: streamed.Flow, Status: 500, Ended: time.Second}
	b.all.Refused(&empty) // a response without a body has a size
	b.want("llm_d_epp_response_size_bytes", map[string]string{"f|m|2|m|": "1 0"})
	odd := messages.Record{Model: "m", Flow: streamed.Flow, Status: 7777}
	b.all.Refused(&odd)
	b.want("llm_d_epp_request_error_total", map[string]string{
		"rejected-saturated|f|m|2|m|": "1", "500|f|m|2|m|": "1", "other|f|m|2|m|": "1",
	})
}

func TestTimePerTokenNeedsTwoTokensOfAStream(t *testing.T) {
	b := newBench(t, spec)
	to := b.pool.Snapshot().Endpoints[0]
	for _, spoil := range []func(*messages.Record){
		func(r *messages.Record) { r.Stream = false },
		func(r *messages.Record) { r.Usage.OutputTokens = 1 },
		func(r *messages.Record) { r.FirstToken = 0 },
	} {
		r := streamed
		spoil(&r)
		b.live(&r, to)
	}
	b.want("llm_d_epp_request_streaming_tpot_seconds", map[string]string{"f|m|2|m|": "0 0"})
}

func TestPickThatFailsIsAnAttempt(t *testing.T) {
	b := newBench(t)
	a := b.all.arrived(&refused)
	a.onScheduled(time.Millisecond, messages.NoEndpoints)
	b.want("llm_d_epp_scheduler_attempts_total", map[string]string{"|||failure|m|": "1"})
	b.want("inference_extension_scheduler_attempts_total", map[string]string{"|||failure|m|": "1"})
}

func TestHitsAreLeftOutWhereNobodyLooked(t *testing.T) {
	b := newBench(t, spec)
	a, e := b.all.arrived(&streamed), b.pool.Snapshot().Endpoints[0]
	a.onPicked(e, -1, 4)
	a.onPicked(e, 0, 0)
	b.want(
		"llm_d_epp_prefix_indexer_hit_ratio",
		map[string]string{"approx-prefix-cache-producer|approx-prefix-cache-producer|": "0 0"},
	)
}

func TestEndpointsOfOneNameAreOneSeries(t *testing.T) {
	other := spec
	other.Address = "10.0.0.2:8000"
	b := newBench(t, spec, other)
	for _, e := range b.pool.Snapshot().Endpoints {
		endpoints.LoadWriter{Endpoint: e}.Add(endpoints.Work{Prompt: 10}, time.Time{})
		b.live(&streamed, e)
	}
	b.want("llm_d_epp_scheduler_attempts_total", map[string]string{"a|ns|8000|success|m|": "2"})
	b.want("llm_d_epp_inflight_requests", map[string]string{"a||ns||inflight-load-producer|": "2"})
	b.want("llm_d_epp_inflight_tokens", map[string]string{"a||ns||inflight-load-producer|": "20"})
	b.want("signalbox_endpoint_inflight_requests", map[string]string{"10.0.0.1:8000|": "1", "10.0.0.2:8000|": "1"})
}

func TestEndpointsThatGoLeaveNothing(t *testing.T) {
	b := newBench(t)
	series := func() int {
		n := 0
		for _, f := range b.gather() {
			n += len(f.GetMetric())
		}
		return n
	}
	first := 0
	for i := range 1000 {
		b.publish(uint32(i+1), messages.EndpointSpec{
			Name: fmt.Sprint("server-", i), Namespace: "ns", Address: messages.Address(
				fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250),
			),
		})
		e := b.pool.Snapshot().Endpoints[0]
		held := endpoints.LoadWriter{Endpoint: e}.Add(endpoints.Work{Prompt: 1}, time.Time{})
		b.live(&streamed, e)
		endpoints.LoadWriter{Endpoint: e}.Remove(held)
		if i == 0 {
			first = series()
		}
	}
	if n := series(); n != first {
		t.Errorf("%d series after 1000 endpoints, %d after one", n, first)
	}
	if n := len(b.all.labels.sets.All()); n != 1 {
		t.Errorf("%d sets of labels, want one", n)
	}
}

func TestMeteringARequestAllocatesNothing(t *testing.T) {
	b := newBench(t, spec)
	e := b.pool.Snapshot().Endpoints[0]
	failed := streamed
	failed.Status = 503
	madeUp := failed
	madeUp.Model, madeUp.Flow.Fairness = "nothing serves this", "nor this"
	for name, r := range map[string]*messages.Record{"served": &streamed, "refused": &refused, "failed": &failed,
		"made up": &madeUp} {
		b.live(r, e)
		if n := testing.AllocsPerRun(100, func() { b.live(r, e) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

// exemplars are those of a histogram: the bucket, the label, the value.
func exemplars(family string, h *dto.Histogram) (all []string) {
	for _, bucket := range h.GetBucket() {
		if e := bucket.GetExemplar(); e != nil {
			label := e.GetLabel()[0]
			all = append(all, fmt.Sprint(family, " ", bucket.GetUpperBound(), " ", label.GetName(), "=",
				label.GetValue(), " ", e.GetValue()))
		}
	}
	return all
}

// A bucket names one of its requests, once a second.
func TestBucketsNameRequests(t *testing.T) {
	b := newBench(t, spec)
	b.all.ShowRequests(func(id messages.RequestID) string { return fmt.Sprint("id-", id) })
	r, to := streamed, b.pool.Snapshot().Endpoints[0]
	for i, took := range []time.Duration{6 * time.Second, 6 * time.Second, 90 * time.Minute, 7 * time.Second} {
		r.Request, r.Ended = messages.RequestID(i+1), took
		r.ArrivedAt = time.Unix(1000, 0).Add(-took) // they all end in one second
		b.live(&r, to)
	}
	r.Request, r.Ended, r.ArrivedAt = 5, 6*time.Second, time.Unix(1001, 0).Add(-6*time.Second)
	b.live(&r, to)
	var got []string
	for _, family := range []string{"request_duration_seconds", "request_ttft_seconds"} {
		for _, m := range b.gather()["llm_d_epp_"+family].GetMetric() {
			got = append(got, exemplars(family, m.GetHistogram())...)
		}
	}
	want := []string{
		"request_duration_seconds 6 request_id=id-5 6", "request_duration_seconds 8 request_id=id-4 7",
		"request_duration_seconds +Inf request_id=id-3 5400", "request_ttft_seconds 2 request_id=id-5 2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("exemplars\n%q, want\n%q", got, want)
	}
}
