package signalbox

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/prefix"
	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	testLoops  = 3
	remembered = 30 // requests that have ended
)

// stand is a stepped picker over one endpoint, whose metrics pages the test writes.
type stand struct {
	*Picker
	t        *testing.T
	registry *prometheus.Registry
	asked    []page
	turned   []string
	ended    []messages.Record
}

// page is a metrics page that was asked for and has not been answered.
type page struct {
	number uint32
	to     messages.Port[messages.ScraperMsg]
}

func newStand(t *testing.T, seed uint64) *stand {
	t.Helper()
	s := &stand{t: t, registry: prometheus.NewRegistry()}
	p, err := New(s.settings(seed), s.world())
	if err != nil {
		t.Fatal(err)
	}
	s.Picker = p
	s.discover(1)
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// discover tells the pool that there are so many endpoints.
func (s *stand) discover(n int) {
	s.t.Helper()
	var specs []messages.EndpointSpec
	for i := range n {
		at := messages.Address("127.0.0.1:" + strconv.Itoa(i+1))
		specs = append(specs, messages.EndpointSpec{Name: string(at), Namespace: "n", Address: at})
	}
	s.Discovery().Post(messages.EndpointsDiscovered{Version: uint64(n), Endpoints: messages.TakeList(specs)})
	s.await("the endpoints", func() bool { return len(s.Pool().Snapshot().Endpoints) == n })
}

func (s *stand) settings(seed uint64) Config {
	cfg, err := config.Default(config.Settings{Destinations: 1, Stale: time.Hour})
	if err != nil {
		s.t.Fatal(err)
	}
	cfg.Plan.Observe(s)
	return Config{
		Runtime: runtime.Config{Mode: runtime.Stepped, Loops: testLoops, Seed: seed,
			Start: time.Unix(1_800_000_000, 0)},
		Plan: cfg.Plan, Queueing: cfg.Queueing,
		Limits: cycle.Limits{
			Queue: time.Minute, Pick: time.Minute, FirstToken: time.Hour, ResponseIdle: time.Hour, Logged: time.Hour,
		},
		Scraper:  scraper.Config{Scraping: messages.Scraping{Metrics: true}},
		Records:  Records{Entries: remembered, Bytes: 3 << 20},
		PoolName: "pool",
	}
}

func (s *stand) world() World {
	return World{
		Metrics: s.registry, Fetcher: s, Checker: s,
		Report: func(r *messages.Record) { s.ended = append(s.ended, *r) },
		Status: func(messages.Reason) int { return 503 },
		Turned: func(_ messages.EndpointSpec, failure string) { s.turned = append(s.turned, failure) },
		Panicked: func(p runtime.Panic, _ []string) {
			s.t.Errorf("%s panicked at %s: %v\n%s", p.Actor, p.Message, p.Value, p.Stack)
		},
	}
}

func (s *stand) FetchMetrics(
	_ messages.EndpointSpec, _ string, number uint32, to messages.Port[messages.ScraperMsg],
) bool {
	s.asked = append(s.asked, page{number, to})
	return true
}

func (*stand) FetchModels(messages.EndpointSpec, uint32, messages.Port[messages.ScraperMsg]) bool {
	return false
}

func (*stand) Check(messages.EndpointID, messages.Address, messages.Port[messages.OutlierMsg]) bool {
	return false
}

func (*stand) PluginDecided(int, int) {}

func (*stand) PluginRan(int, time.Duration) {}
func (*stand) ScoreClamped(int)             {}
func (*stand) ScoreNaN(int)                 {}
func (*stand) AllStale()                    {}

func (*stand) RunFailed(string, messages.Reason) {}
func (*stand) ShadowPicked(string, bool)         {}

// await steps until something is so.
func (s *stand) await(what string, so func() bool) {
	s.t.Helper()
	for range 10_000 {
		if so() {
			return
		}
		s.System().Step()
	}
	s.t.Fatalf("never: %s", what)
}

// answer answers the next request for a page: with a page if failure is "", or else with that failure.
func (s *stand) answer(failure string) {
	s.t.Helper()
	s.await("a page is asked for", func() bool { return len(s.asked) > 0 })
	next := s.asked[0]
	s.asked = s.asked[1:]
	next.to.Post(messages.ScrapeFinished{
		Number: next.number, Failure: failure,
		Reading: endpointstest.Told{
			attributes.StartTime: 1, attributes.KVBlockTokens: 16, attributes.KVBlocks: 1000,
			attributes.ActiveLoRAs: []string{"adapter"},
		}.Reading("vllm"),
	})
	runtimetest.Inspect(s.System()).StepUntil(time.Millisecond)
}

// endpoint returns the first endpoint that was discovered.
func (s *stand) endpoint() *endpoints.Endpoint { return s.Pool().Snapshot().ByAddress("127.0.0.1:1") }

// counted returns the sum of a metric over the series that have a label of this value; "" = over all.
func (s *stand) counted(name, label string) (sum float64) {
	s.t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			has := func(l *dto.LabelPair) bool { return l.GetValue() == label }
			if f.GetName() == name && (label == "" || slices.ContainsFunc(m.GetLabel(), has)) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// told is the address of a stream.
type told []messages.StreamMsg

func (s *told) Tell(m messages.StreamMsg) bool {
	*s = append(*s, m)
	return true
}

// begin has a request picked for.
func (s *stand) begin(id messages.RequestID) messages.Port[messages.CycleMsg] {
	s.t.Helper()
	return s.beginWith(messages.Request{ID: id, Model: "m", PromptTokens: 10})
}

func (s *stand) beginWith(r messages.Request) messages.Port[messages.CycleMsg] {
	s.t.Helper()
	now, stream := s.System().Now(), &told{}
	c, ok := s.InForce().Start(messages.RequestArrived{
		Request: r, ArrivedAt: now, Deadline: now.Add(time.Hour), Stream: stream,
	})
	if !ok {
		s.t.Fatalf("request %d was refused", r.ID)
	}
	s.await("an answer for "+strconv.Itoa(int(r.ID)), func() bool { return len(*stream) > 0 })
	if _, picked := (*stream)[0].(messages.PickMade); !picked {
		s.t.Fatalf("request %d was told %+v", r.ID, (*stream)[0])
	}
	return c
}

// What comes of a scrape reaches the endpoint's load and failing mark, the outlier actor, and World.Turned.
func TestScrapeIsToldToAllThatCountOnIt(t *testing.T) {
	s := newStand(t, 1)
	const failures = "signalbox_endpoint_failures_total"
	s.answer("")
	if e := s.endpoint(); e.Sample() == nil || e.Failing() {
		t.Fatalf("after a page: sample %+v, failing %t", e.Sample(), e.Failing())
	}
	s.begin(1)
	if l := s.endpoint().Counters(); l.Since != 1 || l.Inflight != 1 {
		t.Errorf("after a pick: %d since the sample, %d in flight, want 1 and 1", l.Since, l.Inflight)
	}
	s.answer("")
	s.answer("")
	if l := s.endpoint().Counters(); l.Since != 0 || l.Inflight != 1 {
		t.Errorf("after a later page: %d since the sample, %d in flight, want 0 and 1", l.Since, l.Inflight)
	}
	if n := s.counted(failures, ""); n != 0 {
		t.Errorf("%v failures before there were any", n)
	}
	s.answer("refused")
	kind := messages.ScrapeFailed
	if n := s.counted(failures, kind.String()); n != 1 || !s.endpoint().Failing() {
		t.Errorf("after a failure: %v told to the outlier actor, failing %t, want 1, true", n, s.endpoint().Failing())
	}
	s.answer("")
	if s.endpoint().Failing() {
		t.Error("a page came, and the endpoint is still marked as failing")
	}
	if len(s.turned) != 2 || s.turned[0] != "refused" || s.turned[1] != "" {
		t.Errorf("turned: %q, want a failure and its end", s.turned)
	}
}

// A pod that has the address of one that went begins without what that one had: requests, tokens, prompts. The end of
// a request of the one before changes nothing of it, and a slot that is given out again is clean.
func TestAddressOfAPodThatWentBeginsAnew(t *testing.T) {
	s := newStand(t, 1)
	s.answer("")
	blocks := messages.ListOf[uint64](1, 2, 3)
	held := func(e *endpoints.Endpoint) int {
		out := make([]int, e.ID.Slot+1)
		s.Prefixes().Match(blockindex.Prompt{Model: "m", Blocks: blocks}, out)
		return out[e.ID.Slot]
	}
	isNew := func(e *endpoints.Endpoint, when string) {
		t.Helper()
		if l := e.Counters(); l.Inflight != 0 || l.Tokens != 0 || l.Since != 0 || held(e) != 0 || e.Picks() != 0 {
			t.Errorf("%s: %s has %+v, %d blocks, %d picks; want none", when, e.Spec.Name, l, held(e), e.Picks())
		}
	}
	first, again := s.endpoint(), false
	for version := uint64(2); !again; version++ {
		before := s.endpoint()
		request := s.beginWith(messages.Request{
			ID: messages.RequestID(version), Model: "m", PromptTokens: 48, Blocks: blocks,
		})
		s.await("the prompt is known", func() bool { return held(before) == 3 })
		if before.Inflight() != 1 {
			t.Fatalf("%s has %d requests, want 1", before.Spec.Name, before.Inflight())
		}
		spec := messages.EndpointSpec{
			Name: "pod-" + strconv.Itoa(int(version)), Namespace: "n", Address: before.Spec.Address,
		}
		s.Discovery().Post(messages.EndpointsDiscovered{Version: version, Endpoints: messages.ListOf(spec)})
		s.await("the next pod", func() bool { return s.endpoint().Spec.Name == spec.Name })
		next := s.endpoint()
		if next.ID == before.ID {
			t.Fatalf("%s is still %v", spec.Name, next.ID)
		}
		isNew(next, "while a request of the one before runs")
		request.Post(messages.ResponseStarted{Status: 200, At: s.System().Now()})
		request.Post(messages.ResponseEnded{At: s.System().Now(), ResponseBytes: 1})
		s.await("the request ends", func() bool { return before.Inflight() == 0 })
		runtimetest.Inspect(s.System()).StepUntil(time.Minute)
		isNew(next, "after the end of a request of the one before")
		if again = next.ID.Slot == first.ID.Slot; !again && version > 20 {
			t.Fatal("the slot is never given out again")
		}
	}
}

// A model's name is a label of metrics once an endpoint says that it has the model; what clients make up never is.
func TestModelsOfEndpointsAreLabels(t *testing.T) {
	s := newStand(t, 1)
	s.answer("")
	for id, model := range []string{"adapter", "made-up"} {
		s.Refused(messages.RequestRefused{Record: messages.Record{
			Request: messages.RequestID(id + 1), Model: model,
			Flow: messages.FlowKey{Fairness: messages.DefaultFairness}, Status: 413,
		}})
	}
	runtimetest.Inspect(s.System()).StepUntil(time.Millisecond)
	for model, want := range map[string]float64{"adapter": 1, "made-up": 0, "other": 1} {
		if n := s.counted("llm_d_epp_request_error_total", model); n != want {
			t.Errorf("%v refused requests have the label %q, want %v", n, model, want)
		}
	}
}

// All scrapers share what pages may cost us: each of many endpoints is scraped less often.
func TestScrapersKnowHowManyTheyAre(t *testing.T) {
	s := newStand(t, 1)
	s.answer("")
	alone := s.endpoint().Sample().Interval
	const many = 200
	s.discover(many)
	for range 3 * many {
		s.answer("")
	}
	if now := s.endpoint().Sample().Interval; now < alone*3/2 {
		t.Errorf("a page every %v among %d endpoints, every %v alone, want half as long again at least", now, many,
			alone)
	}
}

// runs reports whether a request runs on the loop that its number names.
func (s *stand) runs(id messages.RequestID) bool {
	return s.loops[id%testLoops].book.Running(id) != nil
}

// All that comes for a request goes to the loop that its number names.
func TestRequestStaysOnTheLoopOfItsNumber(t *testing.T) {
	s := newStand(t, 1)
	s.answer("")
	for id := messages.RequestID(1); id <= 2*testLoops; id++ {
		c := s.begin(id)
		if !s.runs(id) {
			t.Errorf("request %d is not on loop %d", id, id%testLoops)
		}
		c.Post(messages.StreamGone{Logged: true, Log: messages.LogSeen})
		runtimetest.Inspect(s.System()).StepUntil(time.Millisecond)
		s.Ended(messages.ExchangeLogged{Request: id})
		s.await("the end of "+strconv.Itoa(int(id)), func() bool { return !s.runs(id) })
	}
	s.Refused(messages.RequestRefused{Record: messages.Record{Request: 99, Status: 413}})
	runtimetest.Inspect(s.System()).StepUntil(time.Millisecond)
	if n := len(s.ended); n != 2*testLoops+1 || s.ended[n-1].Request != 99 {
		t.Errorf("%d requests reported, want %d, the refused one last: %+v", n, 2*testLoops+1, s.ended)
	}
}

func TestLoopsLearnTogether(t *testing.T) {
	s := newStand(t, 1)
	a, b := s.cycleDeps(0, s.loops[0].book), s.cycleDeps(1, s.loops[1].book)
	if a.Estimates != b.Estimates || a.Estimates == nil {
		t.Error("loops have estimates of their own")
	}
}

// Close ends all actors, releases what they needed, and leaves nothing.
func TestCloseReleasesOnceNoActorIsLeft(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := &stand{t: t, registry: prometheus.NewRegistry()}
	w, released := s.world(), 0
	w.Release = func() {
		if released++; s.Discovery().Post(messages.EndpointsDiscovered{Version: 9}) {
			t.Error("released while the pool takes messages")
		}
	}
	cfg := s.settings(1)
	cfg.Runtime.Mode = runtime.Combining
	var err error
	if s.Picker, err = New(cfg, w); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil || released != 1 {
		t.Errorf("close: %v, released %d times, want once", err, released)
	}
}

func TestPickerThatCannotBeginLeavesNothing(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := &stand{t: t, registry: prometheus.NewRegistry()}
	if _, err := prefix.NewMetrics(s.registry); err != nil {
		t.Fatal(err)
	}
	w := s.world()
	w.Release = func() { t.Error("released by New") }
	cfg := s.settings(1)
	cfg.Runtime.Mode = runtime.Combining
	if p, err := New(cfg, w); err == nil || p != nil {
		t.Errorf("a registry that has the metrics already gives %v, %v, want an error", p, err)
	}
}

// tally counts the plugins of one plan.
type tally struct{ ran int }

func (*tally) PluginDecided(int, int) {}

func (c *tally) PluginRan(int, time.Duration) { c.ran++ }
func (*tally) ScoreClamped(int)               {}
func (*tally) ScoreNaN(int)                   {}
func (*tally) AllStale()                      {}

func (*tally) RunFailed(string, messages.Reason) {}
func (*tally) ShadowPicked(string, bool)         {}

// A request runs under the configuration that it began with, and scrapers go by the one in force.
func TestRequestsKeepTheirConfiguration(t *testing.T) {
	s := newStand(t, 1)
	s.answer("")
	cfg, err := config.Default(config.Settings{Destinations: 1, Stale: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var later tally
	cfg.Plan.Observe(&later)
	before := s.InForce()
	s.Bring(s.Prepare(2, cfg.Plan, cfg.Queueing, messages.Scraping{}))
	s.begin(1)
	plugins := later.ran
	if plugins == 0 || s.InForce() == before {
		t.Fatalf("%d plugins ran under the configuration in force, want some", plugins)
	}
	now, stream := s.System().Now(), &told{}
	if _, ok := before.Start(messages.RequestArrived{
		Request: messages.Request{ID: 2, Model: "m"}, Configuration: 1, ArrivedAt: now, Deadline: now.Add(time.Hour),
		Stream: stream,
	}); !ok {
		t.Fatal("the request was refused")
	}
	s.await("an answer", func() bool { return len(*stream) > 0 })
	if later.ran != plugins {
		t.Errorf("%d plugins of the later configuration ran for a request of the one before", later.ran-plugins)
	}
	asked := len(s.asked)
	s.discover(3) // their scrapers start under the configuration in force, which reads no pages
	runtimetest.Inspect(s.System()).StepUntil(time.Minute)
	if n := len(s.asked) - asked; n != 0 {
		t.Errorf("%d pages were asked for, want none", n)
	}
}
