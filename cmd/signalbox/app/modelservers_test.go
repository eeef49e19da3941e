package app

import (
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
	"github.com/signalbox-epp/signalbox/messages"
)

// pageServer has one page at one path, and tells of each request for it. Any other path fails the test.
type pageServer struct {
	*httptest.Server
	asked chan time.Time
	text  atomic.Pointer[string]
}

func newPageServer(t *testing.T, path, text string, serve func(http.Handler) *httptest.Server) *pageServer {
	s := &pageServer{asked: make(chan time.Time, 10_000)}
	s.text.Store(&text)
	s.Server = serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			t.Errorf("asked for %s, want %s only", r.URL.Path, path)
		}
		s.asked <- time.Now()
		_, _ = io.WriteString(w, *s.text.Load())
	}))
	t.Cleanup(s.Close)
	return s
}

// overTLS serves with a certificate that no root of the system vouches for.
func overTLS(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that a client gives up
	s.StartTLS()
	return s
}

func (s *pageServer) port() string { return s.URL[strings.LastIndex(s.URL, ":")+1:] }

// times waits until the page was asked for so many times, and says how long that took from the first one on.
func (s *pageServer) times(t *testing.T, n int) time.Duration {
	t.Helper()
	var first, last time.Time
	late := time.After(20 * time.Second)
	for i := range n {
		select {
		case last = <-s.asked:
		case <-late:
			t.Fatalf("asked %d times within 20 s, want %d", i, n)
		}
		if i == 0 {
			first = last
		}
	}
	return last.Sub(first)
}

// until waits for the only endpoint of a tree to be as wanted.
func (t *tree) until(tt *testing.T, what string, is func(*endpoints.Endpoint) bool) *endpoints.Endpoint {
	tt.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for late := time.After(20 * time.Second); ; {
		e := t.picker.Pool().Snapshot().Endpoints[0]
		if is(e) {
			return e
		}
		select {
		case <-look.C:
		case <-late:
			tt.Fatalf("%s: not within 20 s; sample %+v, failing %t", what, e.Sample(), e.Failing())
		}
	}
}

const sourcesText = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: metrics-data-source
  parameters: {scheme: %s, path: /stats, port: %s, interval: %s%s}
- type: core-metrics-extractor
  parameters: {engineLabelKey: example.com/engine}
- type: models-data-source
  parameters: {scheme: %s, path: /list, port: %s, interval: %s%s}
dataLayer:
  sources: [{pluginRef: metrics-data-source}, {pluginRef: models-data-source}]
`

const (
	twoEngines = "vllm:num_requests_waiting 3\nsglang:num_queue_reqs 7\n"
	oneModel   = `{"data":[{"id":"m"}]}`
	labelled   = `{name: a, address: 127.0.0.1, port: "%s", labels: {example.com/engine: sglang, llm-d.ai/engine-type: vllm}}`
)

// What a configuration says of sources and labels is what model servers are asked: where, how, how often.
func TestSourcesAreAskedAsConfigured(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) }) // after the servers' ends
	own := newPageServer(t, "nothing", "", httptest.NewServer)
	for name, c := range map[string]struct {
		metrics, models     string // schemes
		everyPage, everyOne time.Duration
	}{
		"metrics over TLS, often":  {"https", "http", 20 * time.Millisecond, 400 * time.Millisecond},
		"models over TLS, as well": {"http", "https", 400 * time.Millisecond, 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			serve := map[string]func(http.Handler) *httptest.Server{"http": httptest.NewServer, "https": overTLS}
			page := newPageServer(t, "/stats", twoEngines, serve[c.metrics])
			list := newPageServer(t, "/list", oneModel, serve[c.models])
			text := fmt.Sprintf(sourcesText, c.metrics, page.port(), c.everyPage, "", c.models, list.port(), c.everyOne,
				"")
			machine := lateness.Begin()
			tr, end := treeOver(t, io.Discard, fmt.Sprintf(labelled, own.port()), "--config-text", text)
			defer end()
			intervals := map[*pageServer]time.Duration{page: c.everyPage, list: c.everyOne}
			took := map[*pageServer]time.Duration{}
			for of := range intervals {
				of.times(t, 2) // the first interval of a page is shorter, so that endpoints part ways
				took[of] = of.times(t, 4)
			}
			_, late := machine.End()
			for of, every := range intervals {
				if took := took[of]; took < 3*every-500*time.Millisecond || took > 3*every+2*time.Second+2*late {
					t.Errorf("asked 4 times within %v, want one every %v; the machine is late by %v", took, every, late)
				}
			}
			e := tr.until(t, "models", func(e *endpoints.Endpoint) bool {
				return e.Sample() != nil && len(e.Pages().Names(attributes.Models)) > 0
			})
			if s := e.Sample(); s.Engine != "sglang" || s.BuiltIn(attributes.WaitingRequests) != 7 ||
				e.Pages().Names(attributes.Models)[0] != "m" {
				t.Errorf("sample %+v, want 7 requests waiting at an sglang with model m", s)
			}
		})
	}
}

// A certificate is verified exactly where the configuration wants it.
func TestCertificatesAreVerifiedAsConfigured(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) }) // after the servers' ends
	const verify = ", insecureSkipVerify: false"
	for name, c := range map[string]struct{ metrics, models string }{
		"metrics": {verify, ""}, "models": {"", verify},
	} {
		t.Run(name, func(t *testing.T) {
			page := newPageServer(t, "/stats", twoEngines, overTLS)
			list := newPageServer(t, "/list", oneModel, overTLS)
			text := fmt.Sprintf(sourcesText, "https", page.port(), "10ms", c.metrics, "https", list.port(), "10ms",
				c.models)
			tr, end := treeOver(t, io.Discard, fmt.Sprintf(labelled, "9"), "--config-text", text)
			defer end()
			refused, answered, source := page, list, "metrics-data-source"
			if c.models != "" {
				refused, answered, source = list, page, "models-data-source"
			}
			answered.times(t, 3)
			tr.failed(t, source)
			if n := len(refused.asked); n > 0 {
				t.Errorf("%s: %d requests over a connection whose certificate no CA has signed", source, n)
			}
		})
	}
}

// failed waits until a fetch from this source has failed.
func (t *tree) failed(tt *testing.T, source string) {
	tt.Helper()
	t.until(tt, source+" fails", func(*endpoints.Endpoint) bool {
		families, err := t.registry.Gather()
		if err != nil {
			tt.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "llm_d_epp_datalayer_poll_errors_total" && m.GetLabel()[0].GetValue() == source &&
					m.GetCounter().GetValue() > 0 {
					return true
				}
			}
		}
		return false
	})
}

const onlyText = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: %s
- type: metrics-data-source
  parameters: {interval: 10ms}
`

// The prefix index must forget a server that restarts, also when no plugin reads load, and a page has none.
func TestRestartIsNoticedWhereOnlyPrefixesAreRead(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	page := newPageServer(t, "/metrics", "process_start_time_seconds 1000\nvllm:num_requests_waiting 3\n"+
		`vllm:cache_config_info{block_size="16",num_gpu_blocks="500"} 1`+"\n",
		httptest.NewServer)
	at := fmt.Sprintf(`{name: a, address: 127.0.0.1, port: "%s"}`, page.port())
	tr, end := treeOver(t, io.Discard, at, "--config-text", fmt.Sprintf(onlyText, "prefix-cache-scorer"))
	defer end()
	first := tr.until(t, "a sample", func(e *endpoints.Endpoint) bool { return e.Sample() != nil })
	if s := first.Sample(); s.BuiltIn(attributes.StartTime) != 1000 || s.BuiltIn(attributes.KVBlocks) != 500 ||
		s.BuiltIn(attributes.KVBlockTokens) != 16 || s.BuiltIn(attributes.WaitingRequests) != 3 {
		t.Errorf("sample %+v, want the start at 1000, the cache's size, and the load", s)
	}
	tr.request(t, 1, 200)
	tr.held(t, first, 1)
	restarted := "process_start_time_seconds 2000\n"
	page.text.Store(&restarted)
	next := tr.until(t, "another incarnation", func(e *endpoints.Endpoint) bool { return e.ID != first.ID })
	tr.held(t, first, 0)
	tr.held(t, next, 0)
}

// held waits until an endpoint holds so many blocks of the prompt that request sends.
func (t *tree) held(tt *testing.T, of *endpoints.Endpoint, blocks int) {
	tt.Helper()
	prompt := blockindex.Prompt{Model: "m", Blocks: messages.ListOf[uint64](1)}
	t.until(tt, fmt.Sprintf("%d blocks in slot %d", blocks, of.ID.Slot), func(*endpoints.Endpoint) bool {
		out := make([]int, of.ID.Slot+1)
		t.picker.Prefixes().Match(prompt, out)
		return out[of.ID.Slot] == blocks
	})
}

// Where no plugin reads anything of a page, none is asked for: not while the model list is fetched a hundred times.
func TestPagesThatNoPluginReadsAreNotAskedFor(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	page := newPageServer(t, "/metrics", "", httptest.NewServer)
	list := newPageServer(t, "/list", oneModel, httptest.NewServer)
	at := fmt.Sprintf(`{name: a, address: 127.0.0.1, port: "%s"}`, page.port())
	text := fmt.Sprintf(onlyText, "active-request-scorer") +
		"- type: models-data-source\n  parameters: {path: /list, interval: 10ms, port: " +
		list.port() + "}\ndataLayer: {sources: [{pluginRef: models-data-source}]}\n"
	_, end := treeOver(t, io.Discard, at, "--config-text", text)
	list.times(t, 100)
	end()
	if n := len(page.asked); n > 0 {
		t.Errorf("asked for %d pages, want none", n)
	}
}

const enginesText = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: metrics-data-source
  parameters: {interval: 10ms}
- type: core-metrics-extractor
  parameters:
    defaultEngine: mine
    engineConfigs:
    - name: mine
      queuedRequestsSpec: "requests{state=queued}"
      customMetrics: [{attributeKey: example.com/watts, metricSpec: watts}]
    - {name: yours, customMetrics: [{attributeKey: example.com/watts, metricSpec: power}]}
- type: queue-scorer
- type: endpoint-attribute-filter
  parameters:
    attributeKey: example.com/watts
    onMissing: Fail
    algorithm: {threshold: {operator: LessThan, value: 300}}
`

// Engines that no code knows are read by configuration alone.
func TestEnginesOfTheFileDecide(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	var entries []string
	for i, text := range []string{
		"requests{state=\"queued\"} 9\nwatts 100\n", "requests{state=\"queued\"} 2\nwatts 200\n",
		"requests{state=\"queued\"} 0\nwatts 400\n", "power 250\n",
	} {
		engine := ""
		if i == 3 {
			engine = ", labels: {llm-d.ai/engine-type: yours}"
		}
		at := newPageServer(t, "/metrics", text, httptest.NewServer).port()
		entries = append(entries, fmt.Sprintf(`{name: %c, address: 127.0.0.1, port: "%s"%s}`, 'a'+i, at, engine))
	}
	tr, end := treeOver(t, io.Discard, strings.Join(entries, "\n"), "--config-text", enginesText)
	defer end()
	all := tr.picker.Pool().Snapshot().Endpoints
	watts := func(e *endpoints.Endpoint) float64 {
		return e.Sample().Value("example.com/watts", "core-metrics-extractor")
	}
	tr.until(t, "the samples", func(*endpoints.Endpoint) bool {
		return !slices.ContainsFunc(all, func(e *endpoints.Endpoint) bool { return e.Sample() == nil })
	})
	for i, want := range []struct {
		waiting float64
		watts   float64
	}{{9, 100}, {2, 200}, {0, 400}, {-1, 250}} {
		waiting := all[i].Sample().BuiltIn(attributes.WaitingRequests)
		if math.IsNaN(waiting) {
			waiting = -1
		}
		if waiting != want.waiting || watts(all[i]) != want.watts {
			t.Errorf("endpoint %d: %v requests wait, %v watts, want %+v", i, waiting, watts(all[i]), want)
		}
	}
	tr.request(t, 1, 200)
	for i, e := range all {
		if got := e.Picks(); (got == 1) != (i == 1) {
			t.Errorf("endpoint %d got %d requests, want one for the second endpoint alone", i, got)
		}
	}
}

const furtherText = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: metrics-data-source, parameters: {interval: 10ms}}
- {type: metrics-data-source, name: gpu, parameters: {interval: 20ms, port: %s, path: /gpu}}
- {type: metrics-data-source, name: unread, parameters: {port: %s, path: /unread}}
- type: prometheus-extractor
  name: power
  parameters: {attributes: [{name: example.com/watts, metric: watts}]}
- type: prometheus-extractor
  name: nothing
  parameters: {attributes: [{name: example.com/nothing, metric: nothing}]}
- type: queue-scorer
- type: endpoint-attribute-filter
  parameters: {attributeKey: example.com/watts, algorithm: {threshold: {operator: LessThan, value: 300}}}
dataLayer:
  sources:
  - pluginRef: metrics-data-source
  - {pluginRef: gpu, extractors: [{pluginRef: power}], select: {gpu: "yes"}}
  - {pluginRef: unread, extractors: [{pluginRef: nothing}]}
`

// Endpoints with a label have a second source, which decides with the first.
// A source that no plugin reads is not asked.
func TestFurtherSourcesDecide(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	gpu := newPageServer(t, "/gpu", "watts 400\n", httptest.NewServer)
	var entries []string
	for i, labels := range []string{"", `, labels: {gpu: "yes"}`} {
		text := fmt.Sprintf("vllm:num_requests_waiting %d\n", 5-i)
		at := newPageServer(t, "/metrics", text, httptest.NewServer).port()
		entries = append(entries, fmt.Sprintf(`{name: %c, address: 127.0.0.1, port: "%s"%s}`, 'a'+i, at, labels))
	}
	text := fmt.Sprintf(furtherText, gpu.port(), gpu.port())
	tr, end := treeOver(t, io.Discard, strings.Join(entries, "\n"), "--config-text", text)
	defer end()
	all := tr.picker.Pool().Snapshot().Endpoints
	reports := func(want float64) {
		t.Helper()
		tr.until(t, "the samples", func(*endpoints.Endpoint) bool {
			p := all[1].Pages().Of("gpu")
			return all[0].Sample() != nil && all[1].Sample() != nil && p != nil &&
				p.Value("example.com/watts", "power") == want
		})
	}
	reports(400) // the second has the shorter queue, and takes too much power
	tr.request(t, 1, 200)
	if a, b := all[0].Picks(), all[1].Picks(); a != 1 || b != 0 {
		t.Errorf("picks %d and %d, want all for the first, whose watts are unknown", a, b)
	}
	less := "watts 200\n"
	gpu.text.Store(&less)
	reports(200)
	tr.request(t, 2, 200)
	if a, b := all[0].Picks(), all[1].Picks(); a != 1 || b != 1 {
		t.Errorf("picks %d and %d, want the next for the second", a, b)
	}
	if all[0].Pages().Of("gpu") != nil {
		t.Error("an endpoint that is not selected was asked")
	}
}

const powerText = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: metrics-data-source
  parameters: {interval: 10ms}
- type: core-metrics-extractor
- type: prometheus-extractor
  name: power
  parameters:
    attributes:
    - {name: example.com/watts, metric: gpu_watts, labels: {gpu: "1"}}
    - {name: example.com/errors, metric: errors_total, aggregation: ratio, per: answers_total}
    - {name: example.com/unread, metric: nobody_asks}
- type: endpoint-attribute-scorer
  parameters: {attributeKey: example.com/watts}
- type: endpoint-attribute-filter
  parameters:
    attributeKey: example.com/errors
    producer: power
    algorithm: {threshold: {operator: LessThan, value: 0.5}}
dataLayer:
  sources:
  - pluginRef: metrics-data-source
    extractors: [{pluginRef: core-metrics-extractor}, {pluginRef: power}]
`

// A metric that no code knows decides by configuration alone.
func TestAnyMetricDecides(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	page := func(watts, errors int) string {
		return fmt.Sprintf("gpu_watts{gpu=\"0\"} 1\ngpu_watts{gpu=\"1\"} %d\nerrors_total %d\nanswers_total 10\n",
			watts, errors)
	}
	var pages []*pageServer
	var entries []string
	for i, watts := range []int{400, 100, 50} {
		failures := 0
		if i == 2 { // it needs the least power, and fails
			failures = 9
		}
		pages = append(pages, newPageServer(t, "/metrics", page(watts, failures), httptest.NewServer))
		entries = append(entries, fmt.Sprintf(`{name: %c, address: 127.0.0.1, port: "%s"}`, 'a'+i, pages[i].port()))
	}
	tr, end := treeOver(t, io.Discard, strings.Join(entries, "\n"), "--config-text", powerText)
	defer end()
	// reports waits until every sample has these watts, and picks.
	picks := func(want ...float64) (of []uint64) {
		t.Helper()
		all := tr.picker.Pool().Snapshot().Endpoints
		tr.until(t, "the samples", func(*endpoints.Endpoint) bool {
			for i, e := range all {
				if s := e.Sample(); s == nil || s.Value("example.com/watts", "power") != want[i] {
					return false
				}
			}
			return true
		})
		for id := range messages.RequestID(4) {
			tr.request(t, 1+id+messages.RequestID(want[0]), 200)
		}
		for i, e := range all {
			of = append(of, e.Picks())
			if n := len(slices.DeleteFunc(slices.Clone(e.Sample().Numbers), builtIn)); n != 2 {
				t.Errorf("endpoint %d has %d attributes, want those that plugins read", i, n)
			}
		}
		return of
	}
	if got := picks(400, 100, 50); !slices.Equal(got, []uint64{0, 4, 0}) {
		t.Errorf("picks %v, want all for the second", got)
	}
	less := page(20, 4)
	pages[0].text.Store(&less)
	if got := picks(20, 100, 50); !slices.Equal(got, []uint64{4, 4, 0}) {
		t.Errorf("picks %v, want those that followed for the first", got)
	}
}

func builtIn(e messages.Extracted) bool { return e.Producer == "" }
