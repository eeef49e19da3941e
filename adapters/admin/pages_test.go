package admin

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/messages"
)

var update = flag.Bool("update", false, "write the transcripts in testdata")

// served is a request with all there is: of five endpoints one is filtered out, one is stale.
func served() messages.Record {
	return messages.Record{
		Agent: "OpenAI/Python 2.1.0", Path: "/v1/chat/completions", API: messages.ChatAPI,
		Request: 42, ClientID: "a1b2", Model: "llama-3", Flow: messages.FlowKey{Fairness: "team-a", Priority: 1},
		Stream:    true,
		ArrivedAt: noon.Add(-5 * time.Second), Ended: 1234 * time.Millisecond, QueueWait: 12300 * time.Microsecond,
		Decided: 12461 * time.Microsecond,
		Headers: 210 * time.Millisecond, FirstToken: 230 * time.Millisecond, PromptTokens: 812, BodyBytes: 3250,
		Status: 200, ResponseBytes: 34567,
		Served: messages.EndpointID{Slot: 3, Generation: 1}, Usage: messages.Usage{Source: messages.UsageReported,
			PromptKnown: true, PromptTokens: 800, CachedTokens: 640, CachedKnown: true, OutputTokens: 120},
		Events: messages.ListOf(
			messages.RecordEvent{Name: "RequestArrived", Waited: 1200, Took: 34000},
			messages.RecordEvent{Name: "Dispatched", At: 12400 * time.Microsecond, Waited: 900,
				Took: 61 * time.Microsecond},
			messages.RecordEvent{Name: "FirstTokenSeen", At: 230 * time.Millisecond, Waited: 2100, Took: 800},
		),
		Dropped: 2,
		Decision: messages.Decision{PoolVersion: 9, Pool: 5, Endpoints: ids(5),
			Profiles: messages.ListOf(messages.ProfileRun{
				Profile: "default",
				Filters: messages.ListOf(messages.FilterRun{Plugin: "decode-filter",
					Kept: messages.ListOf(true, true, true, false, true)}),
				Scorers: messages.ListOf(
					messages.ScorerRun{Plugin: "queue-scorer", Weight: 2,
						Scores: messages.ListOf[float32](0.5, 1, 0, -1, -1)},
					messages.ScorerRun{Plugin: "prefix-cache-scorer", Weight: 3,
						Scores: messages.ListOf[float32](0.25, 0.3, 1, -1, -1)},
				),
				Totals: messages.ListOf[float32](1.75, 2.9, 3, -1, -1), Ranked: messages.ListOf[uint32](2, 1),
				Runner: 1, Reads: messages.ListOf("queued-requests", "kv-cache-usage"),
				Values: messages.ListOf(3, 0.421875, 0, float32(math.NaN())),
				Ages:   [2]time.Duration{400 * time.Millisecond, 1100 * time.Millisecond},
			})},
	}
}

func ids(n int) messages.List[messages.EndpointID] {
	list := make([]messages.EndpointID, n)
	for i := range list {
		list[i] = messages.EndpointID{Slot: uint32(i + 1), Generation: 1}
	}
	return messages.TakeList(list)
}

// crowd is a request over a hundred endpoints and many scorers, whose client means harm.
func crowd() messages.Record {
	const n = 100
	kept, totals := make([]bool, n), make([]float32, n)
	var runs []messages.ScorerRun
	for i := range n {
		kept[i], totals[i] = i%10 != 0, -1
	}
	for _, name := range []string{"queue", "kv-cache-utilization", "prefix-cache", "lora-affinity",
		"running-requests-size", "active-request"} {
		scores := make([]float32, n)
		for i := range n {
			scores[i] = -1
			if kept[i] {
				scores[i] = float32((i*7+len(name)*13)%n) / float32(n)
				totals[i] = max(totals[i], 0) + 1.5*scores[i]
			}
		}
		runs = append(runs, messages.ScorerRun{Plugin: name + "-scorer", Weight: 1.5,
			Scores: messages.TakeList(scores)})
	}
	return messages.Record{
		Request: 1234567, ClientID: "\x1b[31m" + strings.Repeat("x", 100) + "\u202e", Model: "evil\r\nmodel\u009b" +
			strings.Repeat("字", 60),
		Flow: messages.FlowKey{Fairness: "a\tb"}, ArrivedAt: noon.Add(-50 * time.Hour), Running: true, Status: 200,
		Served: messages.EndpointID{Slot: 2, Generation: 1},
		Decision: messages.Decision{Endpoints: ids(n), Stale: true, Profiles: messages.ListOf(messages.ProfileRun{
			Profile: "default", Filters: messages.ListOf(messages.FilterRun{Plugin: "label-selector-filter",
				Kept: messages.TakeList(kept)}),
			Scorers: messages.TakeList(runs), Totals: messages.TakeList(totals),
			Ranked: messages.ListOf[uint32](1, 2, 3), Runner: 31, Within: 0.002,
		})},
	}
}

// unplaced is a request whose filters left nothing.
func unplaced() messages.Record {
	return messages.Record{
		Request: 43, Flow: messages.FlowKey{Fairness: "default"}, ArrivedAt: noon.Add(-90 * time.Second),
		Ended:   300 * time.Microsecond,
		Decided: 240 * time.Microsecond, Reason: messages.NoEndpoints,
		Events: messages.ListOf(messages.RecordEvent{Name: "Dispatched", At: 200 * time.Microsecond,
			Took: 40 * time.Microsecond}),
		Decision: messages.Decision{PoolVersion: 9, Pool: 6, Endpoints: ids(2), Primary: -1,
			Profiles: messages.ListOf(messages.ProfileRun{
				Profile: "default", Runner: -1, Filters: messages.ListOf(
					messages.FilterRun{Plugin: "decode-filter", Kept: messages.ListOf(true, false)},
					messages.FilterRun{Plugin: "label-selector-filter", Kept: messages.ListOf(false, false)},
				),
			})},
	}
}

// elsewhere is a request that an endpoint apart from the pick served, and that ended badly.
func elsewhere() messages.Record {
	r := served()
	r.Served, r.Reason, r.Usage = messages.EndpointID{Slot: 1, Generation: 1}, messages.ResponseIdle,
		messages.Usage{Source: messages.UsageNotLearned}
	return r
}

// byEnvoy is a request for which Envoy reached no model server.
func byEnvoy() messages.Record {
	r := served()
	r.Served, r.Status, r.FirstToken, r.Usage = messages.EndpointID{}, 503, 0, messages.Usage{}
	r.Local = "upstream_reset_before_response_started{connection_failure}"
	return r
}

// bypassed is a request of the light lane: its body bypassed us, and the access log told its end.
func bypassed() messages.Record {
	r := served()
	r.Bypassed, r.Usage = true, messages.Usage{Source: messages.UsageEstimated, OutputTokens: 118}
	return r
}

// headersOnly is one whose access log has no time of the first byte of its body, and whose like was never seen in full.
func headersOnly() messages.Record {
	r := bypassed()
	r.FirstToken, r.Usage = 0, messages.Usage{Source: messages.UsageNotLearned}
	return r
}

// bypasses is one whose response runs on.
func bypasses() messages.Record {
	r := bypassed()
	r.Running, r.Ended, r.FirstToken, r.ResponseBytes, r.Usage = true, 0, 0, 0, messages.Usage{}
	return r
}

// endedByEnvoy is one that Envoy answered by itself; its access log entry has not come.
func endedByEnvoy() messages.Record {
	r := byEnvoy()
	r.Bypassed, r.Running, r.Ended, r.ResponseBytes = true, true, 0, 0
	return r
}

// stranger is a request that a server outside the pool served.
func stranger() messages.Record {
	r := served()
	r.Served, r.Elsewhere = messages.EndpointID{}, "10.0.9.9:8000"
	return r
}

// prefilled is a request for which two profiles picked; it still waits for response headers.
func prefilled() messages.Record {
	r := served()
	one := r.Decision.Profiles.At(0)
	two := one
	one.Profile, two.Profile = "prefill", "decode"
	three := messages.ProfileRun{Profile: "encode", Optional: true, Runner: -1,
		Failed: "rejected-no-endpoints: filter encode-filter left no endpoint"}
	two.Ranked, two.Runner = messages.ListOf[uint32](1), 2
	tried := messages.ProfileRun{Profile: "tried", Shadow: true, Runner: -1,
		Failed: "internal: panic: index out of range"}
	r.Decision.Profiles, r.Decision.Primary = messages.ListOf(one, two, three, tried), 1
	r.Decision.Stages = messages.ListOf(messages.Stage{Run: 0, At: int(one.Ranked.At(0)), Probe: true})
	r.Decision.Headers = messages.ListOf(messages.Header{Name: "x-prefiller-host-port", Value: "10.0.0.1:8000"})
	r.Served, r.Status, r.Running, r.Ended, r.Headers, r.FirstToken = messages.EndpointID{Slot: 2, Generation: 1}, 0,
		true, 0, 0, 0
	r.Usage = messages.Usage{}
	return r
}

// rejected is a request for which no endpoint was looked for.
func rejected() messages.Record {
	return messages.Record{
		Request: 44, Model: "llama-3", Target: "llama-3\r\ncanary", Flow: messages.FlowKey{Fairness: "default"},
		ArrivedAt: noon.Add(-2 * time.Second),
		Ended:     1500 * time.Millisecond, QueueWait: 1500 * time.Millisecond, Reason: messages.TTLExpired,
	}
}

// waited is a request under a configuration with a gate, of which this became.
func waited(r messages.Record, w messages.Wait) messages.Record {
	r.Wait = w
	return r
}

// inVain waited for room until its time was over.
func inVain() messages.Record {
	r := waited(rejected(), messages.Wait{
		Outcome: messages.OutcomeEvictedTTL, Cause: messages.NoRoom, Ahead: 17, Failed: 3,
	})
	none := messages.ListOf(false, false)
	r.Decision = messages.Decision{PoolVersion: 9, Pool: 2, Endpoints: ids(2), Primary: -1,
		Profiles: messages.ListOf(messages.ProfileRun{
			Profile: "default", Runner: -1, Failed: "rejected-saturated: no endpoint that it may use has room",
			Filters: messages.ListOf(messages.FilterRun{Plugin: "concurrency-detector", Kept: none}),
		})}
	return r
}

// waits is a request that waits for room.
func waits() messages.Record {
	r := waited(rejected(), messages.Wait{
		Outcome: messages.OutcomeNotYetFinalized, Cause: messages.OthersWaited, Ahead: 1,
	})
	r.Ended, r.Running, r.Reason = 0, true, messages.NoReason
	return r
}

func TestTranscripts(t *testing.T) {
	one := "/debug/requests/x"
	for name, c := range map[string]struct {
		path    string
		records []messages.Record
	}{
		"served":         {one, []messages.Record{served()}},
		"bypassed":       {one, []messages.Record{bypassed()}},
		"bypassed-json":  {one + "?format=json", []messages.Record{bypassed()}},
		"headers-only":   {one, []messages.Record{headersOnly()}},
		"bypasses":       {one, []messages.Record{bypasses()}},
		"ended-by-envoy": {one, []messages.Record{endedByEnvoy()}},
		"served-json":    {one + "?format=json", []messages.Record{served()}},
		"elsewhere":      {one, []messages.Record{elsewhere()}},
		"by-envoy":       {one, []messages.Record{byEnvoy()}},
		"stranger":       {one, []messages.Record{stranger()}},
		"prefilled":      {one, []messages.Record{prefilled()}},
		"unplaced":       {one, []messages.Record{unplaced()}},
		"rejected":       {one, []messages.Record{rejected()}},
		"in-vain":        {one, []messages.Record{inVain()}},
		"in-vain-json":   {one + "?format=json", []messages.Record{inVain()}},
		"waits":          {one, []messages.Record{waits()}},
		"not-let-in": {one, []messages.Record{waited(rejected(), messages.Wait{
			Outcome: messages.OutcomeRejectedCapacity, Cause: messages.NoRoom,
		})}},
		"found-room": {one, []messages.Record{waited(served(), messages.Wait{
			Outcome: messages.OutcomeDispatched,
		})}},
		"crowd":          {one, []messages.Record{crowd()}},
		"crowd-all":      {one + "?all", []messages.Record{crowd()}},
		"list":           {"/debug/requests", []messages.Record{crowd(), rejected(), unplaced(), served()}},
		"list-short":     {"/debug/requests?n=1", []messages.Record{rejected(), served()}},
		"list-json":      {"/debug/requests?format=json", []messages.Record{rejected(), crowd()}},
		"list-none":      {"/debug/requests", nil},
		"several":        {one, []messages.Record{rejected(), served()}},
		"endpoints":      {"/debug/endpoints", nil},
		"endpoints-json": {"/debug/endpoints?format=json", nil},
		"config":         {"/debug/config", nil},
		"unknown-place": {one, []messages.Record{{Request: 1, Served: messages.EndpointID{Slot: 1000, Generation: 2},
			Status: 502, ArrivedAt: noon}}},
		"list-sent": {"/debug/requests?endpoint=10.0.0.3:8000", []messages.Record{byEnvoy(), stranger(), served()}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(answering(c.records...))
			cfg.Endpoints = func() []EndpointView { return Views(poolOfThree(), noon, 2*time.Second) }
			cfg.Configuration = func() ConfigurationView { return troubled() }
			transcript(t, name, get(cfg, c.path))
		})
	}
}

// Without a scrape there will never be a sample, which is said instead of a word that has one wait for it.
// What is not known of a proxy is said to be unknown.
func TestProxies(t *testing.T) {
	known := func(s string) *string { return &s }
	cfg := config(answering())
	cfg.Proxies = func() []ProxyView {
		return []ProxyView{
			{From: "10.0.0.1", Node: known("edge-1"), Version: known("1.40.0"), Lane: known("light+full"),
				Connections: 2, Light: 190, Full: 10,
				AccessLog: "seen", XDS: true, SinceSeconds: 3600},
			{From: "10.0.0.2", Lane: known("light"), Connections: 1, Light: 7, AccessLog: "missing",
				SinceSeconds: 12.5},
			{From: "2001:db8::1", Node: known("odd\x1b[2J"), AccessLog: "none", SinceSeconds: 0.5},
		}
	}
	transcript(t, "proxies", get(cfg, "/debug/proxies"))
	transcript(t, "proxies-json", get(cfg, "/debug/proxies?format=json"))
	cfg.Proxies = func() []ProxyView { return nil }
	transcript(t, "proxies-none", get(cfg, "/debug/proxies"))
}

func TestEndpointsThatAreNotScrapedAreShownAsSuch(t *testing.T) {
	cfg := config(answering())
	cfg.Endpoints = func() []EndpointView { return Views(poolOfThree(), noon, 2*time.Second)[2:] }
	cfg.NotScraped = func() string { return "no plugin reads samples" }
	transcript(t, "not-scraped", get(cfg, "/debug/endpoints"))
	transcript(t, "not-scraped-json", get(cfg, "/debug/endpoints?format=json"))
}

// TestNarrowTables leave out what matters least, and are never wider than they must be.
func TestNarrowTables(t *testing.T) {
	cfg := config(answering(crowd(), rejected(), unplaced(), served(), byEnvoy()))
	cfg.Endpoints = func() []EndpointView { return Views(ward(), noon, 2*time.Second) }
	var all strings.Builder
	for _, path := range []string{"/debug/endpoints?format=json", "/debug/requests?format=json"} {
		var endpoints EndpointsPage
		var requests RequestsPage
		body := get(cfg, path).Body.Bytes()
		if err := errors.Join(json.Unmarshal(body, &endpoints), json.Unmarshal(body, &requests)); err != nil {
			t.Fatal(err)
		}
		for _, columns := range []int{120, 80, 60, 1} {
			text := requests.Table(columns)
			if len(endpoints.Endpoints) > 0 {
				text = endpoints.Table(columns)
			}
			fmt.Fprintf(&all, "%d columns\n%s\n", columns, text)
			tooWide := func(line string) bool { return columnsOf(line) > columns }
			if columns >= 80 && slices.ContainsFunc(strings.Split(text, "\n"), tooWide) {
				t.Errorf("not within %d columns:\n%s", columns, text)
			}
		}
	}
	golden(t, filepath.Join("testdata", "narrow.txt"), all.String())
}

// transcript compares a page with the file of its name. A text must fit a terminal and do no harm to it.
func transcript(t *testing.T, name string, w *httptest.ResponseRecorder) {
	t.Helper()
	got := w.Body.String()
	for line := range strings.SplitSeq(got, "\n") {
		if columnsOf(line) > width && w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("line of %d columns, limit %d: %s", columnsOf(line), width, line)
		}
		if i := strings.IndexFunc(line, func(r rune) bool { return !seen(r) }); i >= 0 {
			t.Errorf("character at %d is not harmless: %q", i, line)
		}
	}
	golden(t, filepath.Join("testdata", name+".txt"), got)
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s, -want +got:\n%s", file, diff)
	}
}

func poolOfThree() *endpoints.Snapshot {
	var list []*endpoints.Endpoint
	for i := range uint32(3) {
		e := endpoints.New(messages.EndpointID{Slot: i, Generation: 1}, messages.EndpointSpec{
			Name: fmt.Sprintf("vllm-%d\x1b", i), Namespace: "llm",
			Address: messages.Address(fmt.Sprintf("10.0.0.%d:8000", i)),
		})
		list = append(list, e)
	}
	told := endpointstest.Told{
		attributes.WaitingRequests: 3, attributes.RunningRequests: 8, attributes.KVCacheUsage: 0.456,
		attributes.KVBlockTokens: 0, attributes.KVBlocks: 0, attributes.MaxLoRAs: 4,
		attributes.ActiveLoRAs: []string{"a"},
	}.Values()
	told.Numbers = append(told.Numbers, messages.Extracted{Attribute: "example.com/cost", Producer: "custom", Value: 3})
	endpoints.SampleWriter{Endpoint: list[0]}.Publish(&endpoints.Sample{At: noon.Add(-40 * time.Millisecond),
		Engine: "vllm", Values: told})
	endpoints.LoadWriter{Endpoint: list[0]}.Add(endpoints.Work{Prompt: 500}, time.Time{})
	endpoints.LoadWriter{Endpoint: list[0]}.CountPick()
	endpoints.SampleWriter{Endpoint: list[1]}.Publish(&endpoints.Sample{At: noon.Add(-time.Minute), Engine: "sglang",
		Values: endpointstest.Load(0, 0, -1)})
	endpoints.SampleWriter{Endpoint: list[2]}.ScrapeFailed()
	watts := messages.Extracted{Attribute: "example.com/watts\x1b", Producer: "power", Value: 250.5}
	for i, p := range []endpoints.Page{
		{At: noon.Add(-time.Second), Interval: time.Second,
			Values: endpoints.Values{Numbers: []messages.Extracted{watts}}},
		{At: noon.Add(-time.Minute), Failing: true}, {Failing: true},
	} {
		p.Source = "gpu-page"
		to := endpoints.SampleWriter{Endpoint: list[i]}
		to.PublishPages(to.Pages().With(p))
	}
	return endpoints.NewSnapshot(4, list)
}

// TestJSONKeepsValuesExact decodes what programs get, by the names that they rely on.
func TestJSONKeepsValuesExact(t *testing.T) {
	evil := crowd()
	w := get(config(answering(evil)), "/debug/requests/x",
		func(r *http.Request) { r.Header.Set("Accept", "text/html, application/json;q=0.9") })
	var got struct {
		Requests []struct {
			ID       string   `json:"id"`
			ClientID string   `json:"x_request_id"`
			Model    string   `json:"model"`
			Running  bool     `json:"running"`
			Seconds  float64  `json:"age_seconds"`
			Duration *float64 `json:"duration_seconds"`
			Decision struct {
				Profiles []struct {
					Margin    float32 `json:"margin"`
					Endpoints []struct {
						Address   string     `json:"address"`
						Rank      int        `json:"rank"`
						Total     *float32   `json:"total"`
						Scores    []*float32 `json:"scores"`
						DroppedBy string     `json:"dropped_by"`
					} `json:"endpoints"`
				} `json:"profiles"`
			} `json:"decision"`
		} `json:"requests"`
		Lost uint64 `json:"lost_records"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Requests) != 1 || got.Lost != 7 {
		t.Fatalf("%d requests, %d lost, error %v", len(got.Requests), got.Lost, err)
	}
	r := got.Requests[0]
	if r.ID != instance+"1234567" || r.ClientID != evil.ClientID || r.Model != evil.Model || !r.Running ||
		r.Seconds != 180000 || r.Duration != nil {
		t.Errorf("request is %q %q %q, %v, %v s, lasted %v", r.ID, r.ClientID, r.Model, r.Running, r.Seconds,
			r.Duration)
	}
	list := r.Decision.Profiles[0].Endpoints
	first, last := list[0], list[99]
	if len(list) != 100 || first.Total == nil || len(first.Scores) != 6 || first.DroppedBy != "" {
		t.Errorf("best of %d is %+v", len(list), first)
	}
	if last.Total != nil || last.Scores[0] != nil || last.DroppedBy != "label-selector-filter" {
		t.Errorf("last is %+v, want a dropped one without scores", last)
	}
}

func TestEveryReasonHasWords(t *testing.T) {
	for r := messages.NoReason + 1; r.String() != "unknown"; r++ {
		if int(r) >= len(because) || because[r] == "" {
			t.Errorf("reason %s has no words", r)
		}
	}
}

func TestShortDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 5: "5ns", 1500: "1.50µs", 999999: "1000µs", 12345678: "12.3ms", 999 * time.Millisecond: "999ms",
		59 * time.Second: "59.0s", 61 * time.Second: "1m01s", 90 * time.Minute: "1h30m", 72 * time.Hour: "3d",
		-time.Second: "-1.00s",
	} {
		if got := short(d); got != want {
			t.Errorf("short(%d) = %q, want %q", d, got, want)
		}
	}
}

// TestTornRecordsEndNothing shows records whose lists do not agree.
func TestTornRecordsEndNothing(t *testing.T) {
	torn := served()
	run := torn.Decision.Profiles.At(0)
	run.Ranked, run.Runner, run.Totals = messages.ListOf[uint32](9, 2), 77, messages.ListOf[float32](1)
	run.Filters = messages.ListOf(messages.FilterRun{Plugin: "f"})
	torn.Decision.Profiles = messages.ListOf(run)
	torn.Reason = 200
	for _, form := range []string{"text", "json"} {
		if w := get(config(answering(torn)), "/debug/requests/x?format="+form); w.Code != 200 {
			t.Errorf("%s: %d %s", form, w.Code, w.Body)
		}
	}
}

// troubled is a configuration that was brought back and whose file holds a bad one.
func troubled() ConfigurationView {
	return ConfigurationView{
		Config: "profile default\n", Number: 7, Since: noon, Source: "/etc/signalbox/config.yaml", SHA256: "0a1b2c",
		Restored: 5, Before: 6, Waits: []string{"the endpoints file"},
		Problem: &ConfigurationProblem{Since: noon, Text: "config.yaml:\nline 3: plugins[0].type: unknown"},
	}
}
