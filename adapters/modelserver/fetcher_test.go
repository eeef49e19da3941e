package modelserver

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-epp/signalbox/messages"
)

// ear is a sink that a test waits on.
type ear chan messages.ScraperMsg

func (e ear) Post(m messages.ScraperMsg) bool { e <- m; return true }

// scene is a server, a fetcher and an ear. Its end checks that nothing runs on and nothing was told twice.
type scene struct {
	t       *testing.T
	server  *httptest.Server
	fetcher *Fetcher
	ear     ear
}

func newScene(t *testing.T, cfg Config, handler http.HandlerFunc) *scene {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	if cfg.Attributes == nil {
		cfg.Attributes = everything
	}
	f, err := NewFetcher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{t: t, server: httptest.NewServer(handler), fetcher: f, ear: make(ear, 1000)}
	t.Cleanup(s.end)
	return s
}

func (s *scene) end() {
	s.fetcher.Close()
	s.server.CloseClientConnections()
	s.server.Close()
	if n := len(s.ear); n > 0 {
		s.t.Errorf("%d messages that nobody asked for, the first: %+v", n, <-s.ear)
	}
}

func (s *scene) spec() messages.EndpointSpec {
	return messages.EndpointSpec{Name: "a", Address: messages.Address(s.server.Listener.Addr().String())}
}

func (s *scene) told() messages.ScraperMsg {
	s.t.Helper()
	select {
	case m := <-s.ear:
		return m
	case <-time.After(10 * time.Second):
		s.t.Fatal("nothing was told")
		return nil
	}
}

func (s *scene) scrape(number uint32) messages.ScrapeFinished {
	s.t.Helper()
	if !s.fetcher.FetchMetrics(s.spec(), "", number, s.ear) {
		s.t.Fatal("refused")
	}
	m, ok := s.told().(messages.ScrapeFinished)
	if !ok || m.Number != number {
		s.t.Fatalf("told %+v, want ScrapeFinished %d", m, number)
	}
	return m
}

func (s *scene) failsWith(number uint32, part string) {
	s.t.Helper()
	m := s.scrape(number)
	if !strings.Contains(m.Failure, part) {
		s.t.Errorf("failure %q, want it to say %q", m.Failure, part)
	}
	if m.PageBytes != 0 || !reflect.DeepEqual(m.Reading, messages.Reading{}) {
		s.t.Errorf("a failure with a page: %+v", m)
	}
}

func say(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
}

func TestPageIsFetchedReadAndToldOnce(t *testing.T) {
	p := page(t, "vllm-0.32.0/metrics_lora_under_load.txt")
	var asked atomic.Int32
	var peers sync.Map
	s := newScene(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" && r.Method == http.MethodGet && r.Header.Get("Accept-Encoding") == "" {
			asked.Add(1)
		}
		peers.Store(r.RemoteAddr, true)
		_, _ = w.Write(p)
	})
	for i := range uint32(5) {
		got := s.scrape(i)
		if got.Took <= 0 || got.Took > time.Second {
			t.Errorf("took %v", got.Took)
		}
		got.Took = 0
		want := messages.ScrapeFinished{Number: i, PageBytes: len(p), Reading: Scan(p, "vllm", everything)}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
	connections := 0
	peers.Range(func(any, any) bool { connections++; return true })
	if asked.Load() != 5 || connections != 1 {
		t.Errorf("%d requests as they should be on %d connections, want 5 on one", asked.Load(), connections)
	}
}

func TestFetchFailures(t *testing.T) {
	for name, c := range map[string]struct {
		cfg     Config
		handler http.HandlerFunc
		want    string
	}{
		"status": {Config{}, func(w http.ResponseWriter,
			_ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}, "status 503"},
		"too long, announced": {Config{PageBytes: 10}, say("vllm:num_requests_waiting 3\n"), "28 bytes, limit 10"},
		"too long, not announced": {Config{PageBytes: 10}, func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				_, _ = fmt.Fprintln(w, "vllm:num_requests_waiting 3")
				_ = http.NewResponseController(w).Flush()
			}
		}, "more than 10 bytes"},
		"nothing known": {Config{}, say("up 1\n"), "without the load of any engine"},
		"empty":         {Config{}, say(""), "0 bytes without the load"},
		"redirect to another host": {Config{}, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/metrics", http.StatusFound)
		}, "another host"},
		"redirects without end": {Config{}, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}, "more than 3 redirects"},
		"silence": {Config{Timeout: 50 * time.Millisecond},
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "timeout"},
		"cut in the page": {Config{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = fmt.Fprintln(w, "vllm:num_requests_waiting 3")
		}, "unexpected EOF"},
		"closed without an answer": {Config{}, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			"EOF"},
	} {
		t.Run(name, func(t *testing.T) { newScene(t, c.cfg, c.handler).failsWith(7, c.want) })
	}
}

func TestNobodyListens(t *testing.T) {
	s := newScene(t, Config{}, say(""))
	s.server.Listener.Close()
	s.failsWith(1, "refused")
}

func TestRedirectOnTheSameHostIsFollowed(t *testing.T) {
	s := newScene(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			http.Redirect(w, r, "/metrics/", http.StatusTemporaryRedirect)
			return
		}
		say("vllm:num_requests_waiting 3\n")(w, r)
	})
	if got := s.scrape(1); toldBy(got.Reading).Waiting != 3 {
		t.Errorf("got %+v", got)
	}
}

func TestPortAndPathFromConfiguration(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		say(map[string]string{"/prom": "vllm:num_requests_waiting 9\n"}[r.URL.Path])(w, r)
	}))
	defer other.Close()
	s := newScene(t, Config{Pages: Pages{Metrics: Page{Port: other.Listener.Addr().(*net.TCPAddr).Port, Path: "/prom"},
		Models: Page{Path: "/list"}}},
		func(w http.ResponseWriter, r *http.Request) { say(`{"data":[{"id":"at `+r.URL.Path+`"}]}`)(w, r) })
	if got := s.scrape(1); toldBy(got.Reading).Waiting != 9 {
		t.Errorf("got %+v", got)
	}
	s.fetcher.FetchModels(s.spec(), 2, s.ear)
	if got, want := s.told(), (messages.ModelsListed{Number: 2,
		Models: messages.ListOf("at /list")}); !reflect.DeepEqual(got,
		want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestModelsAreListed(t *testing.T) {
	body := string(page(t, "vllm-0.32.0/models_lora.json"))
	s := newScene(t, Config{}, func(w http.ResponseWriter, r *http.Request) { say(body)(w, r) })
	s.fetcher.FetchModels(s.spec(), 3, s.ear)
	if got, want := s.told(), (messages.ModelsListed{Number: 3,
		Models: messages.ListOf("tiny", "lora-a", "lora-b")}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	body = "no list"
	s.fetcher.FetchModels(s.spec(), 4, s.ear)
	if got := s.told().(messages.ModelsListed); got.Number != 4 ||
		!strings.Contains(got.Failure, "invalid character") || got.Models.Len() != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestCloseEndsWhatRunsAndWaits(t *testing.T) {
	s := newScene(t, Config{Timeout: time.Minute, Concurrent: 3},
		func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	const fetches = 10 // three that hang and seven that wait for their turn
	for i := range uint32(fetches) {
		s.fetcher.FetchMetrics(s.spec(), "", i, s.ear)
	}
	s.fetcher.Close()
	if len(s.ear) != fetches {
		t.Fatalf("%d told when Close returned, want %d", len(s.ear), fetches)
	}
	seen := map[uint32]bool{}
	for range fetches {
		m := s.told().(messages.ScrapeFinished)
		if m.Failure != "the fetcher was closed" || seen[m.Number] {
			t.Errorf("told %+v, want each number once, as closed", m)
		}
		seen[m.Number] = true
	}
	if s.fetcher.FetchMetrics(s.spec(), "", 1, s.ear) || s.fetcher.FetchModels(s.spec(), 1, s.ear) {
		t.Error("a closed fetcher took a fetch")
	}
}

func TestFetchesAtOnceAreBounded(t *testing.T) {
	var now, most atomic.Int32
	s := newScene(t, Config{Concurrent: 4, Timeout: 10 * time.Second}, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		say("vllm:num_requests_waiting 3\n")(w, r)
	})
	for i := range uint32(200) {
		s.fetcher.FetchMetrics(s.spec(), "", i, s.ear)
	}
	for range 200 {
		if m := s.told().(messages.ScrapeFinished); m.Failure != "" {
			t.Errorf("failed: %s", m.Failure)
		}
	}
	if most.Load() > 4 {
		t.Errorf("%d at once, want at most 4", most.Load())
	}
}

func TestWaitForATurnEndsAtTheTimeout(t *testing.T) {
	s := newScene(t, Config{Concurrent: 1, Timeout: 100 * time.Millisecond},
		func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s.fetcher.metricsBounds.turns <- struct{}{}
	s.failsWith(1, "no turn")
	<-s.fetcher.metricsBounds.turns
}

// Metrics pages that all hang leave the model lists at their pace.
func TestMetricsPagesThatHangTakeNoTurnOfModelLists(t *testing.T) {
	const most = 2
	hang := make(chan struct{}, 2*most)
	s := newScene(t, Config{Concurrent: most, Timeout: time.Minute}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			hang <- struct{}{}
			<-r.Context().Done()
			return
		}
		say(`{"data":[{"id":"m"}]}`)(w, r)
	})
	for i := range uint32(2 * most) { // as many wait for their turn
		s.fetcher.FetchMetrics(s.spec(), "", i, s.ear)
	}
	for range most {
		<-hang
	}
	for i := range uint32(5) {
		s.fetcher.FetchModels(s.spec(), i, s.ear)
		if got, ok := s.told().(messages.ModelsListed); !ok || got.Failure != "" || got.Models.Len() != 1 {
			t.Fatalf("list %d: %+v", i, got)
		}
	}
	s.fetcher.Close()
	for range 2 * most {
		s.told()
	}
}

// Each of an endpoint's pages is asked for while the other one hangs.
func TestLookAsksForBothPagesAtOnce(t *testing.T) {
	var meet sync.WaitGroup
	meet.Add(2)
	s := newScene(t, Config{Timeout: time.Minute}, func(w http.ResponseWriter, r *http.Request) {
		meet.Done()
		meet.Wait() // no page comes before both are asked for
		if r.URL.Path == "/metrics" {
			say("vllm:num_requests_waiting 3\n")(w, r)
			return
		}
		say(`{"data":[{"id":"m"}]}`)(w, r)
	})
	got := s.fetcher.Look(s.spec())
	if got.NoMetrics+got.NoModels != "" || got.Engine != "vllm" || len(got.Models) != 1 {
		t.Errorf("got %+v", got)
	}
}

type panics struct{}

func (panics) RoundTrip(*http.Request) (*http.Response, error) { panic("in\nthe transport") }

// A further source has turns, a page and attributes of its own: one that hangs holds up no other.
func TestFurtherSourcesHaveTheirOwnTurns(t *testing.T) {
	free := make(chan struct{})
	watts := func(metric string) []Extraction {
		return []Extraction{{Attribute: "a/b", Producer: "mine", Metric: metric}}
	}
	cfg := Config{Concurrent: 1, Timeout: time.Minute, Pages: Pages{Attributes: everything, Further: []Further{
		{Source: "hangs", Page: Page{Path: "/hangs"}, Extract: watts("x")},
		{Source: "gpu", Page: Page{Path: "/gpu"}, Extract: watts("watts")},
	}}}
	s := newScene(t, cfg, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hangs":
			<-free
		case "/gpu":
			say("watts 5\nvllm:num_requests_waiting 9\n")(w, r)
		default:
			say("vllm:num_requests_waiting 3\nwatts 9\n")(w, r)
		}
	})
	for range 3 {
		s.fetcher.FetchMetrics(s.spec(), "hangs", 1, s.ear)
	}
	s.fetcher.Read(cfg.Pages) // turns stay taken
	s.fetcher.FetchMetrics(s.spec(), "gpu", 2, s.ear)
	got, _ := s.told().(messages.ScrapeFinished)
	value := messages.Extracted{Attribute: "a/b", Producer: "mine", Value: 5}
	if got.Source != "gpu" || got.Number != 2 || got.Reading.Numbers.Len() != 1 ||
		got.Reading.Numbers.At(0) != value {
		t.Errorf("got %+v, want %+v alone", got, value)
	}
	if m := s.scrape(3); m.Source != "" || toldBy(m.Reading).Waiting != 3 {
		t.Errorf("the metrics page says %+v", m)
	}
	s.fetcher.FetchMetrics(s.spec(), "gone", 4, s.ear)
	if got, _ := s.told().(messages.ScrapeFinished); got.Source != "gone" || got.Number != 4 || got.Failure == "" {
		t.Errorf("a source that the configuration does not have: %+v", got)
	}
	close(free)
	for range 3 {
		if got, _ := s.told().(messages.ScrapeFinished); got.Source != "hangs" || got.Failure != "" {
			t.Errorf("got %+v, want the pages that hung", got)
		}
	}
}

func TestPanicIsToldAsAFailure(t *testing.T) {
	s := newScene(t, Config{}, say(""))
	s.fetcher.verifying.Transport = panics{}
	s.failsWith(5, `panic: "in\nthe transport"`)
	s.fetcher.FetchModels(s.spec(), 6, s.ear)
	if got := s.told().(messages.ModelsListed); got.Number != 6 || !strings.Contains(got.Failure, "panic") {
		t.Errorf("got %+v", got)
	}
	if len(s.fetcher.metricsBounds.turns)+len(s.fetcher.modelsBounds.turns) != 0 {
		t.Error("a panic kept its turn")
	}
}

func TestConfigThatCannotWork(t *testing.T) {
	for want, cfg := range map[string]Config{
		`metrics scheme: got "ftp"`: {Pages: Pages{Metrics: Page{Scheme: "ftp"}}},
		"models port: got 70000":    {Pages: Pages{Models: Page{Port: 70000}}},
		"gpu port: got 70000":       {Pages: Pages{Further: []Further{{Source: "gpu", Page: Page{Port: 70000}}}}},
		"hints parse":               {Pages: hints(Further{URL: "http://a:b/c"})},
		`metrics path: got "m"`:     {Pages: Pages{Metrics: Page{Path: "m"}}},
		"concurrent -1":             {Concurrent: -1},
	} {
		if _, err := NewFetcher(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
