package scraper

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// Target is the endpoint whose samples a scraper owns.
type Target interface {
	// Sample returns the newest sample, also one of an earlier incarnation of the scraper; nil = none.
	Sample() *endpoints.Sample
	// Publish brings a sample into force.
	Publish(*endpoints.Sample)
	// BeginScrape notes that a scrape begins and returns its number.
	BeginScrape() uint32
	// Pages returns the newest pages of further sources; nil = none.
	Pages() *endpoints.Pages
	// PublishPages brings pages of further sources into force.
	PublishPages(*endpoints.Pages)
	// SampleInForce notes that the sample of a scrape was published.
	SampleInForce(number uint32)
	// ScrapeFailed notes that the newest scrape brought no sample.
	ScrapeFailed()
	// Inflight returns the number of requests that were sent to the endpoint and have not ended.
	Inflight() int
}

// Fetcher fetches pages. Each method returns at once, and posts the outcome to the port exactly once. It returns false
// if the fetcher is closed, and then posts nothing.
type Fetcher interface {
	// FetchMetrics fetches the page of a source; "" = the metrics page.
	FetchMetrics(
		spec messages.EndpointSpec, source string, number uint32, to messages.Port[messages.ScraperMsg],
	) bool
	FetchModels(spec messages.EndpointSpec, number uint32, to messages.Port[messages.ScraperMsg]) bool
}

// Config holds what all scrapers have in common. ScrapingReplaced replaces its first two fields.
type Config struct {
	messages.Scraping               // of the configuration in force
	Number            uint64        // of that configuration
	Timeout           time.Duration // of a fetch, as the fetcher has it; 0 = 1 s
	Endpoints         func() int    // number of endpoints that are scraped, this one included; nil = 1

	// Turned, if not nil, is called at the first of several failures in a row to get an endpoint's metrics page
	// (failure says why), and at the success that ends them (failure is ""). It must not block.
	Turned func(spec messages.EndpointSpec, failure string)

	// Served, if not nil, is called with the names of the models and LoRA adapters of each list and page that comes. It
	// must not block.
	Served func(models ...string)
}

// Scraper is the actor of one endpoint.
type Scraper struct {
	cfg      Config
	target   Target
	fetcher  Fetcher
	metrics  *Metrics
	assigned messages.EndpointAssigned // its first message
	page     source
	list     source
	further  []*further
	alarm    alarm
	server   server
}

// server is what pages and lists have told of the endpoint's model server.
type server struct {
	pageBytes int       // of the newest page
	engine    string    // as in messages.Reading
	models    []string  // of the newest list
	askedNew  time.Time // when the list was last asked for because of an adapter that it did not have
	startedAt float64   // of its process, in unix seconds; 0 before a page named it
	restarted bool      // the server restarted, and the pool has not taken EndpointRestarted
	totals    totals
}

// New returns a scraper that waits for EndpointAssigned.
func New(cfg Config, target Target, fetcher Fetcher, metrics *Metrics) *Scraper {
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Second)
	if cfg.Endpoints == nil {
		cfg.Endpoints = func() int { return 1 }
	}
	if cfg.Served == nil {
		cfg.Served = func(...string) {}
	}
	return &Scraper{cfg: cfg, target: target, fetcher: fetcher, metrics: metrics}
}

// Receive follows an endpoint from assignment to withdrawal.
func (s *Scraper) Receive(ctx runtime.Context[messages.ScraperMsg], m messages.ScraperMsg) {
	switch m := m.(type) {
	case messages.EndpointAssigned:
		s.onEndpointAssigned(ctx, m)
	case messages.ScrapeDue:
		s.onScrapeDue(ctx, m)
	case messages.ScrapeFinished:
		s.onScrapeFinished(ctx, m)
	case messages.ModelsListed:
		s.onModelsListed(ctx, m)
	case messages.ScrapingReplaced:
		s.onScrapingReplaced(ctx, m)
	case messages.EndpointWithdrawn:
		ctx.Stop()
	}
}

// Stopped gives up the scrape that runs, for nothing will take its answer.
func (s *Scraper) Stopped(runtime.Context[messages.ScraperMsg]) {
	if s.page.pending {
		s.target.ScrapeFailed()
	}
	for _, f := range s.further {
		if f.pending {
			s.furtherFailed(f)
		}
	}
}

func (s *Scraper) onEndpointAssigned(ctx runtime.Context[messages.ScraperMsg], m messages.EndpointAssigned) {
	s.assigned = m
	first := ctx.Now().Add(time.Duration(ctx.Rand().Int64N(int64(startSpread))))
	s.page.due, s.list.due = first, first
	s.list.number = uint32(ctx.Now().UnixNano()) // differs from the numbers of earlier incarnations
	s.choose(ctx)
	if known := s.target.Sample(); known != nil { // a panic must not hide a restart of the server
		s.server.startedAt = max(known.BuiltIn(attributes.StartTime), 0)
	}
	s.arm(ctx)
}

// onScrapingReplaced goes on by another configuration: with the sample, the failures, the interval and the server that
// it knows. Pages that are read otherwise from now on are read soon, for the sample lacks what is new.
func (s *Scraper) onScrapingReplaced(ctx runtime.Context[messages.ScraperMsg], m messages.ScrapingReplaced) {
	if m.Number <= s.cfg.Number {
		return
	}
	s.cfg.Number, s.cfg.Scraping = m.Number, m.Scraping
	s.choose(ctx)
	if m.Scraping.Anew {
		soon := ctx.Now().Add(time.Duration(ctx.Rand().Int64N(int64(startSpread))))
		s.page.due, s.list.due = soon, soon
		for _, f := range s.further {
			f.due = soon
		}
	}
	s.step(ctx)
}

func (s *Scraper) onScrapeDue(ctx runtime.Context[messages.ScraperMsg], m messages.ScrapeDue) {
	if m.Generation != s.alarm.generation {
		return
	}
	s.step(ctx)
}

func (s *Scraper) onScrapeFinished(ctx runtime.Context[messages.ScraperMsg], m messages.ScrapeFinished) {
	if m.Source != "" {
		s.onFurtherFinished(ctx, m)
		return
	}
	if !s.page.pending || m.Number != s.page.number {
		return // this fetch was given up
	}
	if m.Failure != "" {
		s.metrics.metrics.fail()
		s.pageFailed(m.Failure)
	} else {
		s.pageCame(ctx, m)
	}
	s.step(ctx)
}

func (s *Scraper) onModelsListed(ctx runtime.Context[messages.ScraperMsg], m messages.ModelsListed) {
	if !s.list.pending || m.Number != s.list.number {
		return
	}
	s.list.pending = false
	switch {
	case s.cfg.Models == "": // nothing reads the list any more
	case m.Failure != "":
		s.metrics.models.fail()
		s.listFailed()
	default:
		s.metrics.models.succeed(ctx.Now().Sub(s.list.began))
		s.listCame(m.Models)
	}
	s.step(ctx)
}

// listCame publishes a model list.
func (s *Scraper) listCame(models messages.List[string]) {
	s.list.answered, s.list.failures = true, 0
	s.server.models = models.Append([]string{})
	s.cfg.Served(s.server.models...)
	names := endpoints.NameList{Attribute: attributes.Models.Name, Values: s.server.models}
	s.publish(endpoints.Page{
		Source: s.cfg.Models, At: s.list.began, Interval: s.listEvery(),
		Values: endpoints.Values{Lists: []endpoints.NameList{names}},
	})
}

// listFailed notes that the newest fetch of the model list brought none. The last list stays, and ages.
func (s *Scraper) listFailed() {
	s.list.failures++
	if s.cfg.Models != "" {
		s.publishFailure(s.cfg.Models)
	}
}

// pageCame publishes a sample. Publish comes before SampleInForce: a reader between the two counts some picks twice,
// but never misses one.
func (s *Scraper) pageCame(ctx runtime.Context[messages.ScraperMsg], m messages.ScrapeFinished) {
	s.metrics.metrics.succeed(m.Took)
	s.metrics.pageBytes.Add(float64(m.PageBytes))
	if s.cfg.Turned != nil && s.page.failures > 0 {
		s.cfg.Turned(s.assigned.Spec, "")
	}
	first := !s.page.answered
	s.page.pending, s.page.answered, s.page.failures = false, true, 0
	s.server.pageBytes = m.PageBytes
	s.server.engine = cmp.Or(m.Reading.Engine, s.server.engine)
	every := s.interval()
	sample := s.sample(m.Reading, every)
	s.noticeRestart(sample)
	s.noticeAdapters(ctx.Now(), sample)
	s.cfg.Served(sample.Names(attributes.ActiveLoRAs)...)
	s.cfg.Served(sample.Names(attributes.WaitingLoRAs)...)
	s.cfg.Served(sample.Names(attributes.ResidentLoRAs)...)
	s.cfg.Served(sample.Names(attributes.HostLoRAs)...)
	s.target.Publish(sample)
	s.target.SampleInForce(s.page.number)
	if first { // endpoints that were discovered together are spread over an interval
		s.page.due = ctx.Now().Add(time.Duration(ctx.Rand().Int64N(int64(every))))
	}
}

// pageFailed notes that the newest scrape brought no sample.
func (s *Scraper) pageFailed(why string) {
	s.page.pending = false
	s.page.failures++
	s.target.ScrapeFailed()
	if s.cfg.Turned != nil && s.page.failures == 1 {
		s.cfg.Turned(s.assigned.Spec, why)
	}
}

func (s *Scraper) sample(r messages.Reading, every time.Duration) *endpoints.Sample {
	sample := &endpoints.Sample{
		At: s.page.began, Interval: every, Number: s.page.number, Engine: s.server.engine,
		Values: s.server.totals.values(r, s.page.began),
	}
	var before endpoints.Places
	if last := s.target.Sample(); last != nil {
		before = last.Places
	}
	sample.Places = before.Next(s.page.inflight, &sample.Values)
	return sample
}

// sameStart is how many seconds two start times that pages give of one process may differ, for clocks are corrected.
const sameStart = 2

// noticeRestart tells the pool when the server's process is another one than before. A page that does not say when the
// process started says what the page before it did.
func (s *Scraper) noticeRestart(page *endpoints.Sample) {
	started := page.BuiltIn(attributes.StartTime)
	if math.IsNaN(started) {
		if s.server.startedAt > 0 {
			page.Numbers = append(page.Numbers,
				messages.Extracted{Attribute: attributes.StartTime.Name, Value: s.server.startedAt})
		}
		return
	}
	if s.server.startedAt > 0 && math.Abs(started-s.server.startedAt) > sameStart {
		s.server.restarted = true
		s.metrics.restarts.Inc()
		s.server.models, s.list.due, s.list.answered = nil, s.page.began, false
		s.withdraw(func(source string) bool { return source == s.cfg.Models })
	}
	s.server.startedAt = started
	if s.server.restarted { // a pool that does not take this, being restarted itself, is told at the next page
		s.server.restarted = !s.assigned.Pool.Tell(messages.EndpointRestarted{Endpoint: s.assigned.Endpoint})
	}
}

// noticeAdapters asks for the model list early when the page names an adapter that the list does not have, unless the
// configuration says how often it is asked for.
func (s *Scraper) noticeAdapters(now time.Time, page *endpoints.Sample) {
	if s.cfg.ModelsEvery > 0 || !s.list.answered || now.Sub(s.server.askedNew) < newAdapterPause {
		return
	}
	for _, name := range page.Names(attributes.ActiveLoRAs) {
		if !slices.Contains(s.server.models, name) {
			s.server.askedNew, s.list.due, s.list.answered = now, now, false
			return
		}
	}
}
