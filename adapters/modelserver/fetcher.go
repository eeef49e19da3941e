package modelserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/messages"
)

// DefaultTimeout is the time that one fetch may take.
const DefaultTimeout = time.Second

// DefaultPageBytes is the length of the longest page that is read.
const DefaultPageBytes = 8 << 20

// Config says how pages are fetched. The zero value of a field means its default.
type Config struct {
	Pages
	Timeout    time.Duration // of one fetch, waiting for its turn included; 0 = DefaultTimeout
	PageBytes  int64         // the longest metrics page that is read; DefaultPageBytes by default
	ListBytes  int64         // the longest model list that is read; 1 MiB by default
	Concurrent int           // fetches of each page at once; 64 by default. More wait for their turn
}

// Pages are what is read of endpoints, and where. A Fetcher that runs takes others. The zero value of a field means its
// default.
type Pages struct {
	Attributes []attributes.Attribute // of those that are built in; others are not looked for
	Metrics    Page                   // path "/metrics" by default
	Models     Page                   // path "/v1/models" by default
	// keys of labels that may name an endpoint's engine, the first that is set counts
	EngineLabels []string
	Engines      []Engine // beside those that are built in, or in place of one of the same name
	// Engine is that of endpoints whose labels name none that is known; "" = found from the page.
	Engine  string
	Extract []Extraction // beside Attributes
	Further []Further    // beside these pages
	// LoadOptional has metrics pages without load be read, though load is looked for.
	LoadOptional bool
}

// Equal reports whether both read the same.
func (p Pages) Equal(other Pages) bool {
	return slices.Equal(p.Attributes, other.Attributes) && p.Metrics == other.Metrics && p.Models == other.Models &&
		slices.Equal(p.EngineLabels, other.EngineLabels) && p.Engine == other.Engine &&
		p.LoadOptional == other.LoadOptional &&
		slices.EqualFunc(p.Engines, other.Engines, func(a, b Engine) bool { return a.equal(&b) }) &&
		slices.EqualFunc(p.Extract, other.Extract, func(a, b Extraction) bool { return a.equal(b) }) &&
		slices.EqualFunc(p.Further, other.Further, func(a, b Further) bool { return a.equal(b) })
}

// Further is a page that is read beside the metrics page. The zero value of a field of its Page means its default.
type Further struct {
	Source   string // its name, never ""
	Document bool   // it is a JSON document, and what is extracted are its fields
	Page     Page   // path "/metrics" by default
	Extract  []Extraction

	// A document of the whole pool, which no endpoint has: where it is, or that Push brings it; none = each endpoint
	// has its own.
	URL, File string
	Pushed    bool
	Objects   string        // of which kind objects are that Tell brings; "" = none
	Every     time.Duration // the time for which all endpoints share what was read of URL or File
}

// shared reports whether it is one page for the whole pool.
func (p *Further) shared() bool { return p.URL != "" || p.File != "" || p.Pushed || p.Objects != "" }

func (p Further) equal(other Further) bool {
	return p.Source == other.Source && p.Document == other.Document && p.Page == other.Page &&
		p.URL == other.URL && p.File == other.File && p.Pushed == other.Pushed && p.Objects == other.Objects &&
		p.Every == other.Every &&
		slices.EqualFunc(p.Extract, other.Extract, func(a, b Extraction) bool { return a.equal(b) })
}

// Check returns an error if no fetcher can read such pages.
func (p Pages) Check() error {
	p = p.withDefaults()
	for _, of := range []struct {
		name string
		page Page
	}{{"metrics", p.Metrics}, {"models", p.Models}} {
		if err := of.page.check(); err != nil {
			return fmt.Errorf("model servers: %s %w", of.name, err)
		}
	}
	for _, f := range p.Further {
		err := f.Page.check()
		if f.URL != "" && err == nil {
			_, err = url.Parse(f.URL)
		}
		if err != nil {
			return fmt.Errorf("model servers: %s %w", f.Source, err)
		}
	}
	return nil
}

func (p Pages) withDefaults() Pages {
	p.Metrics.Scheme, p.Metrics.Path = cmp.Or(p.Metrics.Scheme, "http"), cmp.Or(p.Metrics.Path, "/metrics")
	p.Models.Scheme, p.Models.Path = cmp.Or(p.Models.Scheme, "http"), cmp.Or(p.Models.Path, "/v1/models")
	p.Further = slices.Clone(p.Further)
	for i := range p.Further {
		f := &p.Further[i].Page
		f.Scheme, f.Path = cmp.Or(f.Scheme, "http"), cmp.Or(f.Path, "/metrics")
	}
	return p
}

// Page says where each endpoint serves a page. The zero value of a field means its default.
type Page struct {
	Scheme         string // "http" by default, or "https"
	Path           string
	Port           int  // 0 = the endpoint's own
	AnyCertificate bool // with https: accept any certificate; false = verify it against the system's roots

	// With https, files that are read anew when they change, in PEM:
	CAFile                   string // certificates in place of the system's roots, unless any is accepted
	CertificateFile, KeyFile string // the certificate to show; both or none
}

func (c Config) withDefaults() Config {
	c.Pages = c.Pages.withDefaults()
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.PageBytes = cmp.Or(c.PageBytes, DefaultPageBytes)
	c.ListBytes = cmp.Or(c.ListBytes, 1<<20)
	c.Concurrent = cmp.Or(c.Concurrent, 64)
	return c
}

func (c Config) check() error {
	if err := c.Pages.Check(); err != nil {
		return err
	}
	if c.Timeout < 0 || c.PageBytes < 0 || c.ListBytes < 0 || c.Concurrent < 0 {
		return fmt.Errorf("model servers: timeout %v, page bytes %d, list bytes %d, concurrent %d: want none below 0",
			c.Timeout, c.PageBytes, c.ListBytes, c.Concurrent)
	}
	return nil
}

func (p Page) check() error {
	if p.Scheme != "http" && p.Scheme != "https" {
		return fmt.Errorf("scheme: got %q, want http or https", p.Scheme)
	}
	if p.Port < 0 || p.Port > 65535 {
		return fmt.Errorf("port: got %d, want 0 to 65535", p.Port)
	}
	if p.Path[0] != '/' {
		return fmt.Errorf("path: got %q, want a path that begins with /", p.Path)
	}
	return nil
}

// of returns the URL of an endpoint's page.
func (p Page) of(endpoint messages.Address) (string, error) {
	if p.Port == 0 {
		return p.Scheme + "://" + string(endpoint) + p.Path, nil
	}
	at, err := netip.ParseAddrPort(string(endpoint))
	if err != nil {
		return "", err
	}
	return p.Scheme + "://" + netip.AddrPortFrom(at.Addr(), uint16(p.Port)).String() + p.Path, nil
}

// Fetcher fetches pages, each on a goroutine of its own, and reports what came of it. All endpoints share one.
type Fetcher struct {
	cfg                         Config                  // its Pages are those of the start
	pages                       atomic.Pointer[reading] // in force; each fetch takes it once
	verifying                   *http.Client
	trusting                    *http.Client // accepts any certificate
	others                      clients      // of pages that name files of certificates
	metricsBounds, modelsBounds bounds
	ctx                         context.Context
	cancel                      context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// reading is how pages are read.
type reading struct {
	Pages
	want   wanted
	known  known
	places map[string]*place // of further pages, by source
}

// place is where the endpoints' fetches of a further source meet.
type place struct {
	bounds
	shared shared
	pushed atomic.Pointer[pushed]
}

func newReading(p Pages) *reading {
	want := wantedOf(p.Attributes)
	want.engine = slices.ContainsFunc(p.Extract, func(e Extraction) bool { return e.Engine != "" })
	return &reading{p, want, builtIn.with(p.Engines), make(map[string]*place, len(p.Further))}
}

// source returns a source and its place; false = the configuration does not have it.
func (r *reading) source(name string) (*Further, *place, bool) {
	i := slices.IndexFunc(r.Further, func(f Further) bool { return f.Source == name })
	if i < 0 {
		return nil, nil, false
	}
	return &r.Further[i], r.places[name], true
}

// metrics reads what is wanted of a metrics page. A page that must have load and has none is an error.
func (r *reading) metrics(page []byte, of messages.EndpointSpec) (told messages.Reading, err error) {
	engine := EngineOf(of.Labels, r.EngineLabels)
	if r.known.named(engine) == nil {
		engine = r.Engine
	}
	told = r.known.scan(page, engine, r.want)
	if told.Engine != "" {
		engine = told.Engine
	}
	if r.want.numbers&load != 0 && !r.LoadOptional && !loaded(told) && r.known.loads(engine) {
		return told, fmt.Errorf("%d bytes without the load of any engine that is known", len(page))
	}
	c := contents{page: page}
	further, err := c.taken(ofEngine(r.Extract, engine), of)
	if further.Len() > 0 {
		told.Numbers = messages.TakeList(further.Append(told.Numbers.Append(nil)))
	}
	return told, err
}

// loaded reports whether a page has load.
func loaded(page messages.Reading) bool {
	for _, e := range page.Numbers.All() {
		if e.Attribute == attributes.WaitingRequests.Name || e.Attribute == attributes.RunningRequests.Name ||
			e.Attribute == attributes.KVCacheUsage.Name {
			return true
		}
	}
	return false
}

// bounds limit the fetches of one page. Each page has its own, so that metrics pages that all hang take no turn of the
// model lists.
type bounds struct {
	turns chan struct{} // holds one item for each fetch that runs
	bytes int64         // of a page
}

// NewFetcher returns a fetcher with the settings of cfg, or what is wrong with them.
func NewFetcher(cfg Config) (*Fetcher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	f := &Fetcher{cfg: cfg, verifying: newClient(cfg, &tls.Config{}),
		trusting:      newClient(cfg, &tls.Config{InsecureSkipVerify: true}),
		metricsBounds: bounds{make(chan struct{}, cfg.Concurrent), cfg.PageBytes},
		modelsBounds:  bounds{make(chan struct{}, cfg.Concurrent), cfg.ListBytes}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.store(newReading(cfg.Pages))
	return f, nil
}

// Read has fetches that begin from now on read other pages, which Check finds good. Those that run read what they
// began with.
func (f *Fetcher) Read(pages Pages) {
	f.store(newReading(pages.withDefaults()))
}

// store puts in force how pages are read. Further sources keep their turns.
func (f *Fetcher) store(r *reading) {
	before := f.pages.Load()
	for _, p := range r.Further {
		if before != nil && before.places[p.Source] != nil {
			r.places[p.Source] = before.places[p.Source]
		} else {
			at := bounds{make(chan struct{}, f.cfg.Concurrent), f.cfg.PageBytes}
			r.places[p.Source] = &place{bounds: at, shared: newShared()}
		}
	}
	f.pages.Store(r)
	f.others.keep(r.trusts())
}

// FetchMetrics begins a fetch of an endpoint's page of a source; "" = the metrics page. It tells the port
// ScrapeFinished with this number exactly once, within the timeout, also when the fetcher is closed meanwhile; false
// means that it is closed already and tells nothing. It does not block.
func (f *Fetcher) FetchMetrics(
	of messages.EndpointSpec, source string, number uint32, to messages.Port[messages.ScraperMsg],
) bool {
	if source != "" {
		return f.run(func() messages.ScraperMsg { return f.further(of, source, number) }, to)
	}
	return f.run(func() messages.ScraperMsg { return f.metrics(of, number) }, to)
}

// FetchModels begins a fetch of the model list of an endpoint. It is as FetchMetrics, but tells ModelsListed.
func (f *Fetcher) FetchModels(of messages.EndpointSpec, number uint32, to messages.Port[messages.ScraperMsg]) bool {
	return f.run(func() messages.ScraperMsg { return f.models(of, number) }, to)
}

// Found holds what a model server reports about itself.
type Found struct {
	Engine    string // as the engine label spells it; "" = not recognised
	Models    []string
	NoMetrics string // why its metrics page cannot be read; "" = it can be
	NoModels  string // why its model list cannot be read; "" = it can be
}

// Look reads both pages of an endpoint at once. Each has the whole timeout.
func (f *Fetcher) Look(of messages.EndpointSpec) Found {
	listed := make(chan messages.ModelsListed, 1)
	go func() { listed <- f.models(of, 0) }()
	metrics, models := f.metrics(of, 0), <-listed
	return Found{Engine: metrics.Reading.Engine, Models: models.Models.Append(nil), NoMetrics: metrics.Failure,
		NoModels: models.Failure}
}

// Close ends all fetches, which report a failure, waits for their goroutines, and closes idle connections.
func (f *Fetcher) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.running.Wait()
	f.verifying.CloseIdleConnections()
	f.trusting.CloseIdleConnections()
	f.others.close()
}

func (f *Fetcher) run(fetch func() messages.ScraperMsg, to messages.Port[messages.ScraperMsg]) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.running.Go(func() { to.Post(fetch()) }) // Post fails only if the scraper has ended
	return true
}

func (f *Fetcher) metrics(of messages.EndpointSpec, number uint32) (told messages.ScrapeFinished) {
	began := time.Now()
	fail := func(err error) {
		told = messages.ScrapeFinished{Number: number, Failure: reason(err), Took: time.Since(began)}
	}
	defer caught(fail)
	body := bodies.Get().(*[]byte)
	defer bodies.Put(body)
	pages := f.pages.Load()
	if err := f.get(pages.Metrics, of.Address, &f.metricsBounds, body); err != nil {
		fail(err)
		return told
	}
	told = messages.ScrapeFinished{Number: number, Took: time.Since(began), PageBytes: len(*body)}
	r, err := pages.metrics(*body, of)
	if told.Reading = r; err != nil {
		fail(err)
	}
	return told
}

// further reads what the configuration wants of a further page.
func (f *Fetcher) further(of messages.EndpointSpec, source string, number uint32) (told messages.ScrapeFinished) {
	began := time.Now()
	told = messages.ScrapeFinished{Source: source, Number: number}
	fail := func(err error) { told.Failure, told.Took, told.PageBytes = reason(err), time.Since(began), 0 }
	defer caught(fail)
	body := bodies.Get().(*[]byte)
	defer bodies.Put(body)
	p, at, ok := f.pages.Load().source(source)
	if !ok {
		fail(errors.New("the configuration does not have this source any more"))
		return told
	}
	var c contents
	var err error
	if p.shared() {
		var s sharedReading
		if p.Pushed || p.Objects != "" {
			s, err = at.newest(p, began)
		} else {
			s, err = f.sharedDocument(p, at)
		}
		c, told.Shared, told.Age, told.Expires = s.contents, s.other, max(0, began.Sub(s.at)), s.expires
	} else {
		c, err = f.own(p, of.Address, &at.bounds, body)
		told.PageBytes = len(c.page)
	}
	told.Took = time.Since(began)
	if err == nil {
		told.Reading.Numbers, err = c.taken(p.Extract, of)
	}
	if err != nil {
		fail(err)
	}
	return told
}

// own reads a further page that an endpoint has. The contents are valid as long as body is not written to.
func (f *Fetcher) own(p *Further, of messages.Address, within *bounds, body *[]byte) (contents, error) {
	if err := f.get(p.Page, of, within, body); err != nil {
		return contents{}, err
	}
	if p.Document {
		return document(*body, p.Extract)
	}
	return contents{page: *body}, nil
}

func (f *Fetcher) models(of messages.EndpointSpec, number uint32) (told messages.ModelsListed) {
	fail := func(err error) { told = messages.ModelsListed{Number: number, Failure: reason(err)} }
	defer caught(fail)
	body := bodies.Get().(*[]byte)
	defer bodies.Put(body)
	var names []string
	err := f.get(f.pages.Load().Models, of.Address, &f.modelsBounds, body)
	if err == nil {
		names, err = DecodeModels(*body)
	}
	if err != nil {
		fail(err)
		return told
	}
	return messages.ModelsListed{Number: number, Models: messages.TakeList(names)}
}

// caught turns a panic into a failure. It must be deferred.
func caught(fail func(error)) {
	if r := recover(); r != nil {
		fail(fmt.Errorf("panic: %s", strconv.Quote(fmt.Sprint(r))))
	}
}
