package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/signalbox-epp/signalbox/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const instance = "00000000000000ab-"

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// recorder stands for the recorder's inbox: it notes the query and answers at once, or refuses it, or never answers.
type recorder struct {
	asked  *messages.RequestQueried
	answer *messages.RecordsAnswered // nil = never
	rings  messages.RingsAnswered
	full   bool
}

func (r *recorder) Post(m messages.RecorderMsg) bool {
	if r.full {
		return false
	}
	if q, ok := m.(messages.RingsQueried); ok {
		return q.Admin.Tell(r.rings)
	}
	q := m.(messages.RequestQueried)
	r.asked = &q
	if r.answer != nil && !q.Admin.Tell(*r.answer) {
		panic("the answer was refused")
	}
	return true
}

func answering(records ...messages.Record) *recorder {
	return &recorder{answer: &messages.RecordsAnswered{Records: messages.ListOf(records...), Lost: 7}}
}

func config(rec *recorder) Config {
	return Config{
		Gatherer: prometheus.NewRegistry(), Recorder: rec,
		FormatID: func(id messages.RequestID) string { return instance + strconv.FormatUint(uint64(id), 10) },
		ParseID: func(s string) (messages.RequestID, bool) {
			n, err := strconv.ParseUint(strings.TrimPrefix(s, instance), 10, 64)
			return messages.RequestID(n), err == nil && strings.HasPrefix(s, instance)
		},
		Address: func(id messages.EndpointID) messages.Address {
			if id.Slot >= 1000 {
				return "" // not known any more
			}
			return messages.Address(fmt.Sprintf("10.0.0.%d:8000", id.Slot))
		},
		Incarnations: func(a messages.Address) []messages.EndpointID {
			var slot uint32
			if _, err := fmt.Sscanf(string(a), "10.0.0.%d:8000", &slot); err != nil {
				return nil
			}
			return []messages.EndpointID{{Slot: slot, Generation: 9}}
		},
		Now: func() time.Time { return noon },
	}
}

func filterOfStatus(from, to int) messages.RecordFilter {
	return messages.RecordFilter{Status: messages.StatusRange{From: from, To: to}}
}

func filterOfReasons(r ...messages.Reason) messages.RecordFilter {
	return messages.RecordFilter{Reasons: messages.ListOf(r...)}
}

// get asks as a peer on this machine.
func get(cfg Config, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:50000", "localhost:9090"
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	NewHandler(cfg).ServeHTTP(w, r)
	return w
}

func TestMetricsAndHealthAreOpenToAll(t *testing.T) {
	registry := prometheus.NewRegistry()
	picks := prometheus.NewCounter(prometheus.CounterOpts{Name: "signalbox_picks_total", Help: "Picks."})
	registry.MustRegister(picks)
	picks.Add(3)
	cfg := config(answering())
	cfg.Gatherer = registry
	cfg.Ready = func() error { return nil }
	notReady := cfg
	notReady.Ready = func() error { return errors.New("no endpoints\x1b[2J") }
	for name, c := range map[string]struct {
		cfg    Config
		path   string
		status int
		body   string
	}{
		"metrics":   {cfg, "/metrics", 200, "signalbox_picks_total 3\n"},
		"healthz":   {cfg, "/healthz", 200, "ok\n"},
		"readyz":    {cfg, "/readyz", 200, "ok\n"},
		"not ready": {notReady, "/readyz", 503, `no endpoints\x1b[2J` + "\n"},
		"alive":     {notReady, "/healthz", 200, "ok\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := get(c.cfg, c.path, func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1234" })
			if w.Code != c.status || !strings.HasSuffix(w.Body.String(), c.body) {
				t.Errorf("GET %s = %d %q, want %d ending in %q", c.path, w.Code, w.Body, c.status, c.body)
			}
		})
	}
}

func TestDebugAnswersLoopbackPeersOnly(t *testing.T) {
	header := func(k, v string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(k, v) } }
	peer := func(a string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = a } }
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	for name, c := range map[string]struct {
		change func(*http.Request)
		open   bool
		status int
	}{
		"IPv4":             {peer("127.0.0.1:1"), false, 200},
		"IPv6":             {peer("[::1]:1"), false, 200},
		"mapped":           {peer("[::ffff:127.0.0.1]:1"), false, 200},
		"by address":       {host("127.0.0.1:9090"), false, 200},
		"by IPv6 address":  {host("[::1]:9090"), false, 200},
		"stranger":         {peer("192.0.2.1:1"), false, 403},
		"IPv6 stranger":    {peer("[2001:db8::1]:1"), false, 403},
		"no address":       {peer("@"), false, 403},
		"forwarded":        {header("X-Forwarded-For", "192.0.2.1"), false, 403},
		"forwarded, new":   {header("Forwarded", "for=192.0.2.1"), false, 403},
		"by another name":  {host("evil.example:9090"), false, 403},
		"open to all":      {peer("192.0.2.1:1"), true, 200},
		"open, other name": {host("epp.example"), true, 200},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/debug/requests", "/debug/requests/x", "/debug/endpoints", "/debug/config"} {
				cfg := config(answering(messages.Record{Request: 1}))
				cfg.OpenDebug = c.open
				cfg.Endpoints = func() []EndpointView { return nil }
				cfg.Configuration = func() ConfigurationView { return troubled() }
				w := get(cfg, path, c.change)
				if w.Code != c.status {
					t.Errorf("GET %s = %d, want %d: %s", path, w.Code, c.status, w.Body)
				}
				if c.status == 403 && (code(t, w) != "not-loopback" || cfg.Recorder.(*recorder).asked != nil) {
					t.Errorf("GET %s refused as %s, recorder asked: %v", path, w.Body, cfg.Recorder.(*recorder).asked)
				}
			}
		})
	}
}

// code is the code of an error body, which must be JSON of the one form.
func code(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var f failure
	d := json.NewDecoder(w.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil || f.Error == "" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("error body is %+v (%v), type %q", f, err, w.Header().Get("Content-Type"))
	}
	return f.Code
}

func TestErrors(t *testing.T) {
	partial := &recorder{answer: &messages.RecordsAnswered{Partial: true}}
	for name, c := range map[string]struct {
		rec    *recorder
		path   string
		status int
		code   string
	}{
		"busy":             {&recorder{full: true}, "/debug/requests", 503, "busy"},
		"busy, one":        {&recorder{full: true}, "/debug/requests/x", 503, "busy"},
		"late":             {&recorder{}, "/debug/requests", 503, "late"},
		"nothing in time":  {partial, "/debug/requests/x", 503, "partial"},
		"not found":        {answering(), "/debug/requests/x", 404, "not-found"},
		"ours, not found":  {answering(), "/debug/requests/" + instance + "9", 404, "not-found"},
		"no number":        {answering(), "/debug/requests?n=many", 400, "bad-number"},
		"nothing asked":    {answering(), "/debug/requests?n=0", 400, "bad-number"},
		"too many":         {answering(), "/debug/requests?n=1001", 400, "bad-number"},
		"no such form":     {answering(), "/debug/requests?format=xml", 400, "bad-format"},
		"misspelt":         {answering(), "/debug/requests?modell=a", 400, "unknown-parameter"},
		"of another page":  {answering(), "/debug/requests?newest=3", 400, "unknown-parameter"},
		"in a request":     {answering(), "/debug/requests/x?status=503", 400, "unknown-parameter"},
		"in endpoints":     {answering(), "/debug/endpoints?name=a", 400, "unknown-parameter"},
		"in config":        {answering(), "/debug/config?all", 400, "unknown-parameter"},
		"in rings":         {answering(), "/debug/rings?n=3", 400, "unknown-parameter"},
		"in the list":      {answering(), "/?all", 400, "unknown-parameter"},
		"twice":            {answering(), "/debug/requests?model=a&model=b", 400, "repeated-parameter"},
		"no query":         {answering(), "/debug/requests?model=%zz", 400, "bad-query"},
		"half a query":     {answering(), "/debug/requests?model=a;limit=3", 400, "bad-query"},
		"no duration":      {answering(), "/debug/requests?ended_within=2", 400, "bad-duration"},
		"no status":        {answering(), "/debug/requests?status=6xx", 400, "bad-status"},
		"short status":     {answering(), "/debug/requests?status=50", 400, "bad-status"},
		"two classes":      {answering(), "/debug/requests?status=44xx", 400, "bad-status"},
		"no reason":        {answering(), "/debug/requests?reason=tll-expired", 400, "unknown-reason"},
		"no endpoint":      {answering(), "/debug/requests?endpoint=vllm-1", 404, "no-such-endpoint"},
		"no limit":         {answering(), "/debug/requests?limit=0", 400, "bad-number"},
		"no such path":     {answering(), "/debug/pprof", 404, "no-such-path"},
		"endpoints hidden": {answering(), "/debug/endpoints", 404, "not-shown"},
		"config hidden":    {answering(), "/debug/config", 404, "not-shown"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(c.rec)
			cfg.AnswerWithin = time.Millisecond
			if c.rec.answer != nil {
				cfg.AnswerWithin = time.Minute
			}
			w := get(cfg, c.path)
			if got := code(t, w); w.Code != c.status || got != c.code {
				t.Errorf("GET %s = %d %s, want %d %s", c.path, w.Code, got, c.status, c.code)
			}
		})
	}
	post := get(config(answering()), "/debug/requests", func(r *http.Request) { r.Method = http.MethodPost })
	if post.Code != 405 || code(t, post) != "method-not-allowed" {
		t.Errorf("POST = %d, want 405", post.Code)
	}
}

func TestClientThatLeavesEndsTheWait(t *testing.T) {
	cfg := config(&recorder{})
	cfg.AnswerWithin = 20 * time.Second
	server := httptest.NewServer(NewHandler(cfg))
	began := time.Now()
	client := http.Client{Timeout: 20 * time.Millisecond}
	defer client.CloseIdleConnections()
	resp, err := client.Get(server.URL + "/debug/requests")
	if err == nil {
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		t.Errorf("answered %d %q, want none", resp.StatusCode, body)
	}
	server.Close() // returns when all handlers have
	if took := time.Since(began); took > cfg.AnswerWithin/2 {
		t.Errorf("the handler waited %v for a client that left", took)
	}
}

func TestLateAnswerBlocksNobody(t *testing.T) {
	rec := &recorder{}
	cfg := config(rec)
	cfg.AnswerWithin = time.Millisecond
	get(cfg, "/debug/requests")
	if first, second := rec.asked.Admin.Tell(messages.RecordsAnswered{}),
		rec.asked.Admin.Tell(messages.RecordsAnswered{}); !first || second {
		t.Errorf("late answers taken: %v, %v, want true, false", first, second)
	}
}

func TestWhatTheRecorderIsAsked(t *testing.T) {
	long := strings.Repeat("a", 127) + "é" + "tail"
	for name, c := range map[string]struct {
		path string
		want messages.RequestQueried
	}{
		"newest":       {"/debug/requests", messages.RequestQueried{Newest: 50}},
		"some":         {"/debug/requests?n=3", messages.RequestQueried{Newest: 3}},
		"by client id": {"/debug/requests?x-request-id=a%2Fb", messages.RequestQueried{IDs: messages.ListOf("a/b")}},
		"ours":         {"/debug/requests/" + instance + "12", messages.RequestQueried{Request: 12}},
		"theirs":       {"/debug/requests/a%2Fb", messages.RequestQueried{IDs: messages.ListOf("a/b")}},
		"foreign": {"/debug/requests/00000000000000cd-12",
			messages.RequestQueried{IDs: messages.ListOf("00000000000000cd-12")}},
		"cut": {"/debug/requests/" + long,
			messages.RequestQueried{IDs: messages.ListOf(strings.Repeat("a", 127))}},
		"long, no text": {"/debug/requests?x-request-id=" + strings.Repeat("x%FF", 100),
			messages.RequestQueried{IDs: messages.ListOf(strings.Repeat("x\uFFFD", 32))}},
		"dots": {"/debug/requests/%2E%2E", messages.RequestQueried{IDs: messages.ListOf("..")}},
		"of a chat": {"/debug/requests/chatcmpl-a",
			messages.RequestQueried{IDs: messages.ListOf("chatcmpl-a", "a")}},
		"of a log": {"/debug/requests/cmpl-a-0-0a1b2c3d",
			messages.RequestQueried{IDs: messages.ListOf("cmpl-a-0-0a1b2c3d", "a-0-0a1b2c3d", "a")}},
		"limit": {"/debug/requests?limit=7", messages.RequestQueried{Newest: 7}},
		"of a model": {"/debug/requests?model=" + long,
			messages.RequestQueried{Newest: 50, Filter: messages.RecordFilter{Model: strings.Repeat("a", 127)}}},
		"status": {"/debug/requests?status=503&limit=20",
			messages.RequestQueried{Newest: 20, Filter: filterOfStatus(503, 503)}},
		"class": {"/debug/requests?status=4XX",
			messages.RequestQueried{Newest: 50, Filter: filterOfStatus(400, 499)}},
		"client's 503": {"/debug/requests?x-request-id=a&status=503", messages.RequestQueried{IDs: messages.ListOf("a"),
			Filter: filterOfStatus(503, 503)}},
		"reason": {"/debug/requests?reason=rejected-ttl-expired",
			messages.RequestQueried{Newest: 50, Filter: filterOfReasons(messages.TTLExpired)}},
		"as listed": {"/debug/requests?reason=ttl-expired",
			messages.RequestQueried{Newest: 50, Filter: filterOfReasons(messages.TTLExpired)}},
		"served": {"/debug/requests?reason=none",
			messages.RequestQueried{Newest: 50, Filter: filterOfReasons(messages.NoReason)}},
		"by name": {"/debug/requests?endpoint=vllm-1%1B",
			messages.RequestQueried{Newest: 50,
				Filter: messages.RecordFilter{Endpoints: messages.ListOf(messages.EndpointID{Slot: 1,
					Generation: 9})}}},
		"by full name": {"/debug/requests?endpoint=llm/vllm-2%1B",
			messages.RequestQueried{Newest: 50,
				Filter: messages.RecordFilter{Endpoints: messages.ListOf(messages.EndpointID{Slot: 2,
					Generation: 9})}}},
		"by address": {"/debug/requests?endpoint=10.0.0.2:8000",
			messages.RequestQueried{Newest: 50, Filter: messages.RecordFilter{Elsewhere: "10.0.0.2:8000",
				Endpoints: messages.ListOf(messages.EndpointID{Slot: 2, Generation: 9})}}},
		"outside the pool": {"/debug/requests?endpoint=[::1]:80",
			messages.RequestQueried{Newest: 50, Filter: messages.RecordFilter{Elsewhere: "[::1]:80"}}},
	} {
		t.Run(name, func(t *testing.T) {
			rec := answering(messages.Record{Request: 1})
			cfg := config(rec)
			cfg.Endpoints = func() []EndpointView { return Views(poolOfThree(), noon, 2*time.Second) }
			w := get(cfg, c.path)
			if rec.asked == nil {
				t.Fatalf("GET %s = %d, recorder not asked", c.path, w.Code)
			}
			got := *rec.asked
			got.Admin = nil
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("GET %s asks %+v, want %+v", c.path, got, c.want)
			}
		})
	}
}

// What is refused names what was probably meant, and all that is known.
func TestUnknownNamesAreAnsweredWithTheKnown(t *testing.T) {
	for path, want := range map[string]string{
		"/debug/requests?modell=a":        `unknown parameter "modell", did you mean model?; known are ended_within, endpoint, format, limit, model, n, reason, status, x-request-id`,
		"/debug/requests?newer=3":         `unknown parameter "newer"; known are ended_within, endpoint, format, limit, model, n, reason, status, x-request-id`,
		"/debug/rings?loops=3":            `unknown parameter "loops", did you mean loop?; known are format, loop, newest`,
		"/debug/endpoints?%1B[2J":         `unknown parameter "\x1b[2J"; known are format`,
		"/debug/requests?reason=expired":  `unknown reason "expired"; known are any, none, invalid-request, body-too-large, `,
		"/debug/requests?reason=internl":  `unknown reason "internl", did you mean internal?; known are any, none, `,
		"/debug/requests?endpoint=10.0.1": `unknown endpoint "10.0.1"; known are vllm-0\x1b, 10.0.0.0:8000, `,
		"/debug/requests?model=a%zz":      `the query cannot be read: invalid URL escape "%zz"`,
	} {
		cfg := config(answering())
		cfg.Endpoints = func() []EndpointView { return Views(poolOfThree(), noon, 2*time.Second) }
		w := get(cfg, path)
		var f failure
		if err := json.Unmarshal(w.Body.Bytes(), &f); err != nil || !strings.HasPrefix(f.Error, want) ||
			cfg.Recorder.(*recorder).asked != nil {
			t.Errorf("GET %s = %d %s\nwant %s", path, w.Code, f.Error, want)
		}
	}
}

func TestPathsAreListed(t *testing.T) {
	full := config(answering())
	full.Endpoints = func() []EndpointView { return nil }
	full.Configuration = func() ConfigurationView { return troubled() }
	full.Reload, full.Restore = func() error { return nil }, func() error { return nil }
	full.Profiles = true
	shown, _ := showing(messages.FlowsAnswered{}, "")
	full.Flow = shown.Flow
	for name, c := range map[string]struct {
		cfg    Config
		path   string
		change func(*http.Request)
	}{
		"paths":        {full, "/", nil},
		"paths-few":    {config(answering()), "/", nil},
		"paths-json":   {config(answering()), "/?format=json", nil},
		"paths-remote": {full, "/", func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" }},
	} {
		t.Run(name, func(t *testing.T) {
			w := get(c.cfg, c.path, func(r *http.Request) {
				if c.change != nil {
					c.change(r)
				}
			})
			if w.Code != 200 {
				t.Errorf("%d", w.Code)
			}
			transcript(t, name, w)
		})
	}
	for _, path := range []string{"/nothing", "/index.html", "/debug/nothing"} {
		if w := get(full, path); w.Code != 404 {
			t.Errorf("GET %s = %d, want 404", path, w.Code)
		}
	}
}

// Every path that is listed answers, and every path of /debug is listed.
func TestListedPathsAnswer(t *testing.T) {
	cfg := config(answering(messages.Record{Request: 1}))
	cfg.Endpoints = func() []EndpointView { return nil }
	cfg.Configuration = func() ConfigurationView { return troubled() }
	cfg.Profiles = true
	var list indexView
	if err := json.Unmarshal(get(cfg, "/?format=json").Body.Bytes(), &list); err != nil || len(list.Paths) < 8 {
		t.Fatalf("%d paths, %v", len(list.Paths), err)
	}
	for _, p := range list.Paths {
		if p.Path == "/debug/rings" {
			continue // the recorder of this test has none; TestRings asks for it
		}
		if w := get(cfg, strings.ReplaceAll(p.Path, "{id}", "x")); w.Code != 200 {
			t.Errorf("GET %s = %d %s", p.Path, w.Code, w.Body)
		}
	}
}
