package scraper_test

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

var (
	id   = messages.EndpointID{Slot: 3, Generation: 2}
	spec = messages.EndpointSpec{Name: "a", Address: "10.0.0.1:8000"}
)

// scene is one scraper among an endpoint, a fetcher that writes down what it was asked, and a pool.
type scene struct {
	t       *testing.T
	stage   *runtimetest.Stage[messages.ScraperMsg]
	pool    *runtimetest.Probe[messages.PoolMsg]
	target  endpoints.SampleWriter
	fetcher *fetcher
	metrics *prometheus.Registry
	turns   []string // what Turned heard
	begun   int      // of fetcher.pages, how many asks() has seen
}

type fetch struct {
	at     time.Time
	of     messages.EndpointSpec
	number uint32
}

type fetcher struct {
	stage        *runtimetest.Stage[messages.ScraperMsg]
	pages, lists []fetch
	further      map[string][]fetch // by source
	closed       bool
}

func (f *fetcher) FetchMetrics(
	of messages.EndpointSpec, source string, n uint32, _ messages.Port[messages.ScraperMsg],
) bool {
	if source != "" {
		f.further[source] = append(f.further[source], fetch{f.stage.Clock(), of, n})
		return !f.closed
	}
	if !f.closed {
		f.pages = append(f.pages, fetch{f.stage.Clock(), of, n})
	}
	return !f.closed
}

func (f *fetcher) FetchModels(of messages.EndpointSpec, n uint32, _ messages.Port[messages.ScraperMsg]) bool {
	if !f.closed {
		f.lists = append(f.lists, fetch{f.stage.Clock(), of, n})
	}
	return !f.closed
}

func newScene(t *testing.T, cfg scraper.Config) *scene {
	t.Helper()
	s := &scene{t: t, stage: runtimetest.NewStage[messages.ScraperMsg](t),
		pool:   runtimetest.NewProbe[messages.PoolMsg](t),
		target: endpoints.SampleWriter{Endpoint: endpoints.New(id, spec)}, metrics: prometheus.NewRegistry()}
	s.fetcher = &fetcher{stage: s.stage, further: map[string][]fetch{}}
	m, err := scraper.NewMetrics(s.metrics)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Turned = func(of messages.EndpointSpec, failure string) { s.turns = append(s.turns, of.Name+": "+failure) }
	s.stage.Play(scraper.New(cfg, s.target, s.fetcher, m))
	s.stage.Tell(messages.EndpointAssigned{Endpoint: id, Spec: spec, Pool: s.pool})
	return s
}

// asks runs the clock until the scraper asks for a page, and says when it did after the last time.
func (s *scene) asks() (after time.Duration, number uint32) {
	s.t.Helper()
	last := s.stage.Clock()
	if s.begun > 0 {
		last = s.fetcher.pages[s.begun-1].at
	}
	for range 40_000 {
		if len(s.fetcher.pages) > s.begun {
			f := s.fetcher.pages[s.begun]
			s.begun++
			return f.at.Sub(last), f.number
		}
		s.stage.Advance(time.Millisecond)
	}
	s.t.Fatal("no page was asked for within 40 s")
	return 0, 0
}

func (s *scene) asksAfter(want time.Duration) (number uint32) {
	s.t.Helper()
	after, number := s.asks()
	if (after - want).Abs() > time.Millisecond { // the clock of asks moves by that much
		s.t.Errorf("asked %v after the last time, want %v", after, want)
	}
	return number
}

// answer returns a page of 1000 bytes with this load.
func answer(number uint32, waiting float64) messages.ScrapeFinished {
	return answerOf(number, endpointstest.Told{
		attributes.WaitingRequests: waiting, attributes.RunningRequests: 2, attributes.KVCacheUsage: 0.5,
	})
}

// answerOf returns a page of 1000 bytes that says this.
func answerOf(number uint32, told endpointstest.Told) messages.ScrapeFinished {
	return messages.ScrapeFinished{Number: number, Took: 20 * time.Millisecond, PageBytes: 1000,
		Reading: told.Reading("vllm")}
}

// waiting returns the requests that wait by a sample.
func waiting(s *endpoints.Sample) float64 { return s.BuiltIn(attributes.WaitingRequests) }

func failure(number uint32) messages.ScrapeFinished {
	return messages.ScrapeFinished{Number: number, Failure: "status 500"}
}

// settled runs the scraper past the first page and past the random time of the second.
func (s *scene) settled() {
	s.t.Helper()
	for range 2 {
		_, n := s.asks()
		s.stage.Tell(answer(n, 0))
	}
}

// counts compares a counter with want. labels are the values of its labels, in the order of their names.
func (s *scene) counts(name string, want float64, labels ...string) {
	s.t.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		i := slices.IndexFunc(f.GetMetric(), func(m *dto.Metric) bool {
			return slices.EqualFunc(m.GetLabel(), labels,
				func(l *dto.LabelPair, v string) bool { return l.GetValue() == v })
		})
		if i < 0 {
			s.t.Errorf("%s%v: not there", name, labels)
		} else if got := f.GetMetric()[i].GetCounter().GetValue(); got != want {
			s.t.Errorf("%s%v: %v, want %v", name, labels, got, want)
		}
		return
	}
	s.t.Errorf("%s: not there", name)
}

func TestMetricsFollowTheRulesOfPrometheus(t *testing.T) {
	s := newScene(t, scraper.Config{Scraping: messages.Scraping{Metrics: true}})
	problems, err := testutil.GatherAndLint(s.metrics,
		"signalbox_fetches_total", "signalbox_fetch_duration_seconds", "signalbox_metrics_page_bytes_total",
		"signalbox_endpoint_restarts_total")
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
