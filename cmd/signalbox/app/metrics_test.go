package app

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/messages"
)

// referenceMetrics are the reference's metrics that Signalbox has: name, type, labels in alphabetical order, and the
// first and last bucket with their number. Dashboards and alerts depend on every one.
const referenceMetrics = `
average_kv_cache_utilization GAUGE name
average_queue_size GAUGE name
average_running_requests GAUGE name
datalayer_poll_errors_total COUNTER source_type
extproc_stream_duration_seconds HISTOGRAM - 0.001..600/14
extproc_streams_inflight GAUGE -
extproc_streams_total COUNTER code
flow_control_dispatch_cycle_duration_seconds HISTOGRAM - 0.0001..0.1/10
flow_control_pending_reclaim GAUGE inference_pool
flow_control_pool_saturation GAUGE inference_pool,stage
flow_control_reclaim_target GAUGE inference_pool
flow_control_request_queue_duration_seconds HISTOGRAM fairness_id,inference_pool,model_name,outcome,priority,target_model_name 0.0001..60/16
flow_control_requests_total COUNTER inference_pool,outcome,priority
flow_control_revocation_confirmation_seconds HISTOGRAM inference_pool 0.005..10/11
flow_control_revocations_total COUNTER inference_pool,outcome
inflight_requests GAUGE endpoint_name,fairness_id,namespace,priority,producer_name
inflight_tokens GAUGE endpoint_name,fairness_id,namespace,priority,producer_name
info GAUGE build_ref,commit
per_endpoint_queue_size GAUGE model_server_endpoint,name
plugin_duration_seconds HISTOGRAM extension_point,plugin_name,plugin_type 0.0001..0.1/10
prefix_indexer_hit_bytes HISTOGRAM plugin_name,plugin_type 0..65536/14
prefix_indexer_hit_ratio HISTOGRAM plugin_name,plugin_type 0..1/11
prefix_indexer_size GAUGE plugin_name,plugin_type
ready_endpoints GAUGE name
request_cached_tokens HISTOGRAM fairness_id,model_name,priority,target_model_name 1..1.048576e+06/19
request_duration_seconds HISTOGRAM fairness_id,model_name,priority,target_model_name 0.005..3600/35
request_error_total COUNTER error_code,fairness_id,model_name,priority,target_model_name
request_input_tokens HISTOGRAM fairness_id,model_name,priority,target_model_name 1..1.048576e+06/19
request_ntpot_seconds HISTOGRAM fairness_id,model_name,priority,target_model_name 0.001..10/13
request_output_tokens HISTOGRAM fairness_id,model_name,priority,target_model_name 1..8192/12
request_processing_duration_seconds HISTOGRAM - 0.0005..10/16
request_running GAUGE fairness_id,model_name,priority,target_model_name
request_size_bytes HISTOGRAM fairness_id,model_name,priority,target_model_name 64..1.073741824e+09/25
request_streaming_itl_seconds HISTOGRAM fairness_id,model_name,priority,target_model_name 0.001..2/15
request_streaming_tpot_seconds HISTOGRAM fairness_id,model_name,priority,target_model_name 0.0005..2/19
request_total COUNTER fairness_id,model_name,priority,target_model_name
request_ttft_seconds HISTOGRAM fairness_id,model_name,priority,streaming,target_model_name 0.005..120/24
response_size_bytes HISTOGRAM fairness_id,model_name,priority,target_model_name 1..65536/15
scheduler_attempts_total COUNTER endpoint_name,namespace,port,status,target_model_name
scheduler_e2e_duration_seconds HISTOGRAM - 0.0001..0.1/10
std_dev_kv_cache_utilization GAUGE name
std_dev_queue_size GAUGE name
std_dev_running_requests GAUGE name
`

// listener is a stream that keeps its answer.
type listener chan messages.StreamMsg

func (l listener) Tell(m messages.StreamMsg) bool {
	select {
	case l <- m:
		return true
	default:
		return false
	}
}

// quietTree is a tree over one endpoint that does not exist. Its log goes to out.
func quietTree(t testing.TB, out io.Writer, more ...string) (_ *tree, end func()) {
	t.Helper()
	return treeOver(t, out, `{name: a, address: 127.0.0.1, port: "9"}`, more...)
}

// treeOver is a tree over endpoints, which are given as the entries of the endpoints file, each on its line.
func treeOver(t testing.TB, out io.Writer, entries string, more ...string) (_ *tree, end func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	if err := os.WriteFile(file, []byte("endpoints:\n- "+strings.ReplaceAll(entries, "\n", "\n- ")+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	o, flags := newOptions(nil), pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.register(flags)
	if err := flags.Parse(append([]string{"--endpoints", file, "--shards", "2", "--pool-name", "pool"},
		more...)); err != nil {
		t.Fatal(err)
	}
	cfg, err := o.load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log, err := o.log.New(out)
	if err != nil {
		t.Fatal(err)
	}
	endpoints, err := openEndpoints(o, cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := buildTree(t.Context(), o, cfg, log, netip.AddrPort{})
	if err != nil {
		t.Fatal(err)
	}
	tr.follow(t.Context(), endpoints)
	tr.awaitEndpoints(t.Context())
	return tr, func() {
		if err := errors.Join(tr.close(t.Context()), log.Close()); err != nil {
			t.Error(err)
		}
	}
}

// request takes a request through the tree: status is its response's.
func (t *tree) request(tt testing.TB, id messages.RequestID, status int) {
	tt.Helper()
	t.requestOf(tt, messages.Request{ID: id, Model: "m"}, "f", status)
}

// requestOf takes a request of a flow through the tree.
func (t *tree) requestOf(tt testing.TB, r messages.Request, flow string, status int) {
	tt.Helper()
	now, answer, id := t.picker.System().Now(), make(listener, 2), r.ID
	r.Stream, r.Blocks = true, messages.ListOf[uint64](1)
	c, ok := t.picker.InForce().Start(messages.RequestArrived{
		Request: r, Flow: messages.FlowKey{Fairness: flow}, ArrivedAt: now, Deadline: now.Add(time.Hour),
		Stream: answer,
	})
	if !ok {
		tt.Fatalf("request %d was refused at the door", id)
	}
	select {
	case m := <-answer:
		if _, waits := m.(messages.AnswerDue); waits { // a page that room was seen on has become old meanwhile
			m = <-answer
		}
		if _, picked := m.(messages.PickMade); !picked {
			tt.Fatalf("request %d was told %+v", id, m)
		}
	case <-time.After(20 * time.Second):
		tt.Fatalf("request %d had no answer", id)
	}
	c.Post(messages.ResponseStarted{Status: status, At: now})
	c.Post(messages.FirstTokenSeen{At: now.Add(time.Microsecond)})
	c.Post(messages.ResponseEnded{At: now, ResponseBytes: 1, Usage: messages.Usage{Source: messages.UsageReported,
		PromptKnown: true, PromptTokens: 1, OutputTokens: 2},
		Pace: messages.Pace{Events: [messages.PaceBuckets]uint32{1}}})
}

// deprecated are the families that the reference counts in beside the present ones, and kept those that are there.
var (
	deprecated = regexp.MustCompile("^(inference_(objective|pool|extension)|llm_d_inference_scheduler)_")
	kept       = []string{"inference_extension_scheduler_attempts_total", "inference_extension_flow_control_queue_size",
		"inference_extension_flow_control_queue_bytes"}
)

func TestMetricsHaveTheReferencesNames(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr, end := quietTree(t, io.Discard, "--feature-gates", "flowControl")
	defer end()
	endpoints.SampleWriter{
		Endpoint: tr.picker.Pool().Snapshot().Endpoints[0],
	}.Publish(&endpoints.Sample{At: tr.picker.System().Now(), Values: endpointstest.Load(0, 0, 0)})
	tr.request(t, 1, 200)
	tr.request(t, 2, 500)
	var got []string
	families := tr.settled(t, 2)
	checkBuckets(t, families)
	for _, f := range families {
		if name, ours := strings.CutPrefix(f.GetName(), "llm_d_epp_"); ours {
			got = append(got, strings.TrimSpace(name+" "+f.GetType().String()+" "+shape(f)))
		} else if deprecated.MatchString(f.GetName()) && !slices.Contains(kept, f.GetName()) {
			t.Errorf("%s is there, which the reference has under another name too", f.GetName())
		}
	}
	slices.Sort(got)
	want := strings.Split(strings.TrimSpace(referenceMetrics), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics, want -, got +:\n%s", diff)
	}
}

// gateMetrics are those that there are once requests wait for room.
const gateMetrics = `
flow_control_capacity_utilization_bytes GAUGE inference_pool,priority
flow_control_capacity_utilization_requests GAUGE inference_pool,priority
flow_control_dispatch_cycle_duration_seconds HISTOGRAM - 0.0001..0.1/10
flow_control_global_capacity_utilization_bytes GAUGE inference_pool
flow_control_global_capacity_utilization_requests GAUGE inference_pool
flow_control_pending_reclaim GAUGE inference_pool
flow_control_pool_saturation GAUGE inference_pool,stage
flow_control_queue_bytes GAUGE fairness_id,inference_pool,model_name,priority,target_model_name
flow_control_queue_size GAUGE fairness_id,inference_pool,model_name,priority,target_model_name
flow_control_reclaim_target GAUGE inference_pool
flow_control_request_enqueue_duration_seconds HISTOGRAM fairness_id,outcome,priority 0.0001..0.1/10
flow_control_request_queue_duration_seconds HISTOGRAM ` +
	`fairness_id,inference_pool,model_name,outcome,priority,target_model_name 0.0001..60/16
flow_control_requests_total COUNTER inference_pool,outcome,priority
flow_control_revocation_confirmation_seconds HISTOGRAM inference_pool 0.005..10/11
flow_control_revocations_total COUNTER inference_pool,outcome
flow_control_stale_endpoints GAUGE detector
`

// legacyMetrics are those that an autoscaler reads by the names of before. The first calls a pod what it calls an
// endpoint now.
const legacyMetrics = `
inference_extension_flow_control_queue_bytes GAUGE fairness_id,inference_pool,model_name,priority,target_model_name
inference_extension_flow_control_queue_size GAUGE fairness_id,inference_pool,model_name,priority,target_model_name
inference_extension_scheduler_attempts_total COUNTER namespace,pod_name,port,status,target_model_name
`

// legacyNames returns the families that are neither ours nor by a name that the reference has now, with how much more
// than under the present name they add up to.
func legacyNames(families []*dto.MetricFamily) (shapes []string, totals map[string]float64) {
	all := sums(families)
	totals = map[string]float64{}
	for _, f := range families {
		name := f.GetName()
		if subsystem, _, _ := strings.Cut(name, "_"); slices.Contains([]string{"llm", "signalbox", "go", "process"},
			subsystem) {
			continue
		}
		shapes = append(shapes, name+" "+f.GetType().String()+" "+shape(f))
		_, rest, _ := strings.Cut(name, "_extension_")
		totals[rest] = all[name] - all["llm_d_epp_"+rest]
	}
	return shapes, totals
}

func TestGateHasTheReferencesMetrics(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr, end := quietTree(t, io.Discard, "--config-text", `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: [flowControl]
flowControl: {saturationDetector: {pluginRef: utilization-detector}, maxRequests: 10, maxBytes: 1M}
`)
	defer end()
	endpoints.SampleWriter{
		Endpoint: tr.picker.Pool().Snapshot().Endpoints[0],
	}.Publish(&endpoints.Sample{At: tr.picker.System().Now(), Values: endpointstest.Load(100, 0, 0)})
	now, answer := tr.picker.System().Now(), make(listener, 8)
	_, ok := tr.picker.InForce().Start(messages.RequestArrived{
		Request: messages.Request{ID: 1, Model: "m"}, Flow: messages.FlowKey{Fairness: "f"}, ArrivedAt: now,
		Deadline: now.Add(time.Hour), Stream: answer, Patience: 20 * time.Millisecond,
	})
	if !ok {
		t.Fatal("the request was refused at the door")
	}
	if _, due := (<-answer).(messages.AnswerDue); !due {
		t.Error("it did not wait")
	}
	if m, failed := (<-answer).(messages.PickFailed); !failed || m.Reason != messages.TTLExpired {
		t.Errorf("told %+v, want that its time was over", m)
	}
	endpoints.SampleWriter{
		Endpoint: tr.picker.Pool().Snapshot().Endpoints[0],
	}.Publish(&endpoints.Sample{At: tr.picker.System().Now(), Values: endpointstest.Load(0, 0, 0)})
	tr.request(t, 2, 200)
	var got []string
	families := tr.settled(t, 2)
	for _, f := range families {
		if name, ours := strings.CutPrefix(f.GetName(), "llm_d_epp_"); ours && strings.HasPrefix(name, "flow_control") {
			got = append(got, strings.TrimSpace(name+" "+f.GetType().String()+" "+shape(f)))
		}
	}
	slices.Sort(got)
	want := strings.Split(strings.TrimSpace(gateMetrics), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics, want -, got +:\n%s", diff)
	}
	checkBuckets(t, families)
	legacy, off := legacyNames(families)
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(legacyMetrics), "\n"), legacy); diff != "" {
		t.Errorf("families of other names, want -, got +:\n%s", diff)
	}
	for name, by := range off {
		if by != 0 {
			t.Errorf("%s: the older name has %v more than the present one", name, by)
		}
	}
}

// shape is a family's labels, and its buckets if it has some.
func shape(f *dto.MetricFamily) string {
	m := f.GetMetric()[0]
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, l.GetName())
	}
	if len(labels) == 0 {
		labels = []string{"-"}
	}
	out := strings.Join(labels, ",")
	if b := m.GetHistogram().GetBucket(); len(b) > 0 {
		out += fmt.Sprintf(" %v..%v/%d", b[0].GetUpperBound(), b[len(b)-1].GetUpperBound(), len(b))
	}
	return out
}

// stuck is a reader that takes nothing before it is freed.
type stuck chan struct{}

func (s stuck) Write(p []byte) (int, error) {
	<-s
	return len(p), nil
}

func TestRequestsGoOnWhileNothingReadsTheLog(t *testing.T) {
	defer goleak.VerifyNone(t)
	reader := make(stuck)
	tr, end := quietTree(t, reader, "-v5")
	const requests = 3000
	for id := range messages.RequestID(requests) {
		tr.request(t, id+1, 200)
	}
	if got := sums(tr.settled(t, requests)); got["signalbox_log_lines_dropped_total"] == 0 {
		t.Error("no line was dropped: the log was never full")
	}
	close(reader)
	end()
}

// settled waits until so many requests have come and none of them runs, and gives all metrics.
func (t *tree) settled(tt testing.TB, requests float64) []*dto.MetricFamily {
	tt.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	over := false
	for late := time.After(20 * time.Second); ; {
		families, err := t.registry.Gather()
		if err != nil {
			tt.Fatal(err)
		}
		got := sums(families)
		if got["llm_d_epp_request_total"] == requests && got["llm_d_epp_request_running"] == 0 {
			if over { // families are gathered one after the other, so some were before the last request was over
				return families
			}
			over = true
			continue
		}
		select {
		case <-look.C:
		case <-late:
			tt.Fatalf("%v requests came, %v run; want %v, 0", got["llm_d_epp_request_total"],
				got["llm_d_epp_request_running"], requests)
		}
	}
}

// sums adds up the counters and gauges of each family.
func sums(families []*dto.MetricFamily) map[string]float64 {
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return all
}
