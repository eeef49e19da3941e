package telemetry

import (
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// showing returns a snapshot of endpoints with these names in the namespace n, in their slots.
func showing(names ...string) *endpoints.Snapshot {
	var all []*endpoints.Endpoint
	for i, name := range names {
		all = append(all, endpoints.New(messages.EndpointID{Slot: uint32(i), Generation: 1}, messages.EndpointSpec{
			Name: name, Namespace: "n", Address: messages.Address(fmt.Sprint("10.0.0.", i, ":80")),
		}))
	}
	return endpoints.NewSnapshot(uint64(len(all)), all)
}

// What is found of media is counted by kind and endpoint, as long as that is in the pool and a plan has the producer.
func TestMediaAreCounted(t *testing.T) {
	const queries, hits, ratio = "llm_d_epp_encoder_cache_queries_total", "llm_d_epp_encoder_cache_hits_total",
		"llm_d_epp_encoder_cache_hit_ratio"
	reg, snap := prometheus.NewPedanticRegistry(), showing("a", "b", "")
	p := NewPlugins(reg, zap.NewNop(), func() *endpoints.Snapshot { return snap })
	page := func(want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), queries, hits); err != nil {
			t.Error(err)
		}
	}
	plan := planOf(nil)
	o := p.Observe(plan)
	if n, err := testutil.GatherAndCount(reg, queries, hits, ratio); n != 0 || err != nil {
		t.Errorf("%d series without a producer, %v", n, err)
	}
	o.steps = append(o.steps, meters{media: p.mediaOf(stepLabels{"DataProducer", "t", "p"})})
	of := messages.MediaCounts{messages.Image: 2, messages.Video: 2}
	o.MediaAsked(0, of)
	for slot, found := range []messages.MediaCounts{of, {}, {messages.Image: 1}} {
		o.MediaFound(0, messages.EndpointID{Slot: uint32(slot), Generation: 1}, found, of)
	}
	o.MediaFound(0, messages.EndpointID{Slot: 0, Generation: 1}, messages.MediaCounts{messages.Image: 1}, of)
	all := `# HELP ` + queries + ` Media of requests, of which it was looked up where they were sent before.
# TYPE ` + queries + ` counter
` + queries + `{modality="image",plugin_name="p",plugin_type="t"} 2
` + queries + `{modality="video",plugin_name="p",plugin_type="t"} 2
# HELP ` + hits + ` Media of requests that an endpoint of the pool, to which the request could go, was sent before.
# TYPE ` + hits + ` counter
` + hits + `{modality="image",plugin_name="p",plugin_type="t",pod="n/a"} 3
`
	page(all + hits + `{modality="image",plugin_name="p",plugin_type="t",pod="10.0.0.2:80"} 1
` + hits + `{modality="video",plugin_name="p",plugin_type="t",pod="n/a"} 2
`)
	h := p.media.ratio.WithLabelValues("t", "p").(prometheus.Histogram)
	if err := testutil.CollectAndCompare(h, strings.NewReader(`# HELP `+ratio+` Share of a request's media that an `+
		`endpoint was sent before, one for each that it could go to.
# TYPE `+ratio+` histogram
`+buckets(ratio, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 4)), ratio); err != nil {
		t.Error(err)
	}
	snap = showing("a")
	page(all + hits + `{modality="video",plugin_name="p",plugin_type="t",pod="n/a"} 2
`)
	if n := len(o.steps[0].media.found.All()); n != 1 {
		t.Errorf("counts of %d endpoints are kept, want that of the one that is there", n)
	}
	p.media.forget(stepLabels{"DataProducer", "t", "p"})
	page("")
	goruntime.KeepAlive(plan)
}

// buckets is a histogram with these counts, of the endpoints of the test above: 1, 0, 1/4 and 1/4 of the media.
func buckets(name string, counts ...int) string {
	var b strings.Builder
	for i, n := range counts {
		fmt.Fprintf(&b, "%s_bucket{plugin_name=\"p\",plugin_type=\"t\",le=\"%v\"} %d\n", name, float64(i)/10, n)
	}
	fmt.Fprintf(&b, "%s_bucket{plugin_name=\"p\",plugin_type=\"t\",le=\"+Inf\"} 4\n", name)
	fmt.Fprintf(&b, "%s_sum{plugin_name=\"p\",plugin_type=\"t\"} %v\n", name, 1.5)
	fmt.Fprintf(&b, "%s_count{plugin_name=\"p\",plugin_type=\"t\"} 4\n", name)
	return b.String()
}

// Many endpoints leave room on the page for other things.
func TestHitsOfManyEndpointsAreBounded(t *testing.T) {
	var names []string
	for i := range 5000 {
		names = append(names, fmt.Sprint("vllm-", strings.Repeat("x", 40), i))
	}
	snap, reg := showing(names...), prometheus.NewRegistry()
	p := NewPlugins(reg, zap.NewNop(), func() *endpoints.Snapshot { return snap })
	c, one := p.mediaOf(stepLabels{"DataProducer", "t", "p"}), messages.MediaCounts{1, 1, 1, 1, 1}
	for i := range names[:1000] {
		c.hit(messages.EndpointID{Slot: uint32(i), Generation: 1}, &one, &one)
	}
	bytes := 0
	families, err := reg.Gather()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			bytes += len(f.GetName()) + 2
			for _, l := range m.GetLabel() {
				bytes += len(l.GetName()) + len(l.GetValue()) + 4
			}
		}
	}
	if err != nil || bytes > 600<<10 || bytes < 400<<10 {
		t.Errorf("%d bytes of the page, want some 512 KiB; %v", bytes, err)
	}
}

var _ schedule.MediaObserver = (*Observer)(nil)
