package app

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// pageBytes is the bound of the metrics page that ARCHITECTURE.md names.
const pageBytes = 15 << 20

// scrape is the metrics page as Prometheus asks for it.
func (t *tree) scrape(encoding string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", "text/plain;version=0.0.4")
	r.Header.Set("Accept-Encoding", encoding)
	t.admin.ServeHTTP(w, r)
	return w
}

func TestMadeUpModelsAreNotOnTheMetricsPage(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr, end := quietTree(t, io.Discard)
	defer end()
	id := messages.RequestID(0)
	ask := func(model, flow string, status int) {
		id++
		tr.requestOf(t, messages.Request{ID: id, Model: model}, flow, status)
	}
	for i := range 2000 {
		ask(fmt.Sprint("made-up-", i), fmt.Sprint("made-up-", i), 404)
	}
	tr.settled(t, 2000)
	if page := tr.scrape("identity").Body.String(); strings.Contains(page, "made-up") || len(page) > 256<<10 {
		t.Errorf("%d bytes, a made-up name among them: %t; want at most 256 KiB, and none", len(page),
			strings.Contains(page, "made-up"))
	}
	ask("real", "tenant", 200)
	ask("real", "tenant", 503)
	tr.settled(t, 2002)
	want := `llm_d_epp_request_total{fairness_id="tenant",model_name="real",priority="0",target_model_name="real"} 2`
	if page := tr.scrape("identity").Body.String(); !strings.Contains(page, want) {
		t.Errorf("%s is not on the page once the model was answered with 200", want)
	}
}

// A hundred thousand tenants, each with one good answer, leave a page that can be read, and little in memory.
func TestManyTenantsLeaveASmallPage(t *testing.T) {
	defer goleak.VerifyNone(t)
	const tenants = 100_000
	tr, end := quietTree(t, io.Discard, "--config-text",
		"{apiVersion: llm-d.ai/v1, kind: EndpointPickerConfig, featureGates: [flowControl], "+
			"plugins: [{type: concurrency-detector}], dataLayer: {injectDefaults: false}, "+
			"flowControl: {saturationDetector: {pluginRef: concurrency-detector}}}")
	defer end()
	held := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := held()
	for i := range tenants {
		tr.requestOf(t, messages.Request{ID: messages.RequestID(i + 1), Model: "real"}, fmt.Sprint("tenant-", i), 200)
	}
	tr.settled(t, tenants)
	series := 0
	page := tr.scrape("identity").Body.String()
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") {
			series++
		}
	}
	more := int64(held()) - int64(before)
	t.Logf("%d series in %d KiB, %d KiB held", series, len(page)>>10, more>>10)
	if series >= 20_000 || len(page) > pageBytes || more > 32<<20 {
		t.Errorf("%d series in %d bytes, %d bytes held; want less than 20 000, at most 15 MiB, at most 32 MiB", series,
			len(page), more)
	}
}

// largePage is a tree over 1 000 endpoints, each of which served all models, for all flows.
func largePage(b *testing.B, models, flows int) (_ *tree, end func()) {
	b.Helper()
	var entries []string
	for i := range 1000 {
		entries = append(entries, fmt.Sprintf("{name: vllm-llama-3-70b-7f9c4d-%d, namespace: inference, address: "+
			"127.1.%d.%d, port: 9}", i, i/250, 1+i%250))
	}
	tr, end := treeOver(b, io.Discard, strings.Join(entries, "\n"), "--zap-log-level", "error",
		"--refresh-metrics-interval", "10m")
	model := func(i int) string { return fmt.Sprintf("meta-llama/Llama-3.1-8B-Instruct-%d", i) }
	for i := range models * flows {
		tr.requestOf(b, messages.Request{ID: messages.RequestID(i + 1), Model: model(i % models)},
			fmt.Sprint("tenant-", i/models), 200)
	}
	tr.settled(b, float64(models*flows))
	for i := range min(models, endpoints.TallyLabels) {
		for _, e := range tr.picker.Pool().Snapshot().Endpoints {
			endpoints.LoadWriter{Endpoint: e}.CountModel(model(i))
		}
	}
	return tr, end
}

// BenchmarkMetricsPage is a scrape of a page as large as it may become, and of one that is large with good reason. The
// bar is 200 ms on two cores.
func BenchmarkMetricsPage(b *testing.B) {
	for name, c := range map[string]struct{ models, flows int }{"full": {400, 2}, "50 models, 100 flows": {50, 100}} {
		tr, end := largePage(b, c.models, c.flows)
		plain := tr.scrape("identity").Body.Len()
		if plain > pageBytes {
			b.Errorf("%s: %d bytes, want at most %d", name, plain, pageBytes)
		}
		for _, encoding := range []string{"identity", "gzip"} {
			b.Run(name+"/"+encoding, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					tr.scrape(encoding)
				}
				b.ReportMetric(float64(plain)/1e6, "MB")
			})
		}
		end()
	}
}
