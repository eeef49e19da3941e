// Package endpoints holds what many read and few write: the snapshot of the pool and, of each endpoint, the newest
// sample, the load, and the status as an outlier. A snapshot never changes, but its endpoints do. Each kind of writer
// has a handle type of its own in writers.go; code without a handle can only read. The package decides nothing.
package endpoints

import (
	"cmp"
	"iter"
	"math"
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	learned "github.com/signalbox-epp/signalbox/engine/window"
	"github.com/signalbox-epp/signalbox/messages"
)

// Sample holds what one scrape of the metrics page said. It is immutable.
type Sample struct {
	At       time.Time     // when the scrape began
	Interval time.Duration // to the next scrape, as planned; see FreshUntil
	Number   uint32        // of the scrape
	Engine   string        // as in messages.Reading
	Places   Places        // as of this page
	Values
}

// Page holds what a further source said last, one beside the metrics page of Sample. It is immutable.
type Page struct {
	Source   string        // by name
	At       time.Time     // when the fetch of the newest answer began; zero = there was none
	Interval time.Duration // to the next fetch, as planned
	Failing  bool          // the newest fetch failed
	Expires  time.Time     // as its author said; zero = its age decides
	Values
}

// FreshUntil returns when the page expires. If its author did not say, it is as that of a Sample.
func (p *Page) FreshUntil(threshold time.Duration) time.Time {
	switch {
	case !p.Expires.IsZero():
		return p.Expires
	case p.At.IsZero():
		return p.At
	}
	return p.At.Add(max(threshold, 3*p.Interval))
}

// Pages holds a page of each further source, each as old as its own answer. It is immutable.
type Pages struct{ list []Page }

// Of returns the page of a source; nil = there is none. A nil Pages has none.
func (p *Pages) Of(source string) *Page {
	if p == nil {
		return nil
	}
	for i := range p.list {
		if p.list[i].Source == source {
			return &p.list[i]
		}
	}
	return nil
}

// All returns an iterator over the pages, in no order.
func (p *Pages) All() iter.Seq[*Page] {
	return func(yield func(*Page) bool) {
		for i := 0; p != nil && i < len(p.list) && yield(&p.list[i]); i++ {
		}
	}
}

// Names returns names that are built in, of the first page that has them, for reading only; nil = none has.
func (p *Pages) Names(a attributes.Attribute) []string {
	for page := range p.All() {
		if names := page.Names(a); names != nil {
			return names
		}
	}
	return nil
}

// With returns pages with another one of a source.
func (p *Pages) With(page Page) *Pages {
	all := p.Without(func(source string) bool { return source == page.Source })
	all.list = append(all.list, page)
	return all
}

// Without returns the pages of the sources that have not gone.
func (p *Pages) Without(gone func(source string) bool) *Pages {
	left := new(Pages)
	if p == nil {
		return left
	}
	for _, x := range p.list {
		if !gone(x.Source) {
			left.list = append(left.list, x)
		}
	}
	return left
}

// Fresh reports whether the sample is fresh at now.
func (s *Sample) Fresh(now time.Time, threshold time.Duration) bool {
	return s != nil && !now.After(s.FreshUntil(threshold))
}

// Asleep reports whether the page says that an engine of the server sleeps, so that requests wait there until it wakes.
func (s *Sample) Asleep() bool { return s != nil && s.BuiltIn(attributes.Asleep) > 0 }

// Cache returns what the page says of the server's cache.
func (s *Sample) Cache() (size blockindex.CacheSize) {
	if s == nil {
		return size
	}
	for _, number := range []struct {
		of *int
		is float64
	}{{&size.Blocks, s.BuiltIn(attributes.KVBlocks)}, {&size.BlockTokens, s.BuiltIn(attributes.KVBlockTokens)}} {
		if number.is > 0 { // it may be NaN
			*number.of = int(min(number.is, math.MaxInt32))
		}
	}
	return size
}

// tellsWork reports whether the sample says how many requests run and wait.
func (s *Sample) tellsWork() bool {
	return s != nil && !math.IsNaN(s.BuiltIn(attributes.WaitingRequests)+s.BuiltIn(attributes.RunningRequests))
}

// FreshUntil returns the last moment at which the sample is fresh: after threshold or three intervals, whichever is
// longer, it is stale.
func (s *Sample) FreshUntil(threshold time.Duration) time.Time {
	return s.At.Add(max(threshold, 3*s.Interval))
}

// Endpoint is one incarnation of an endpoint. Its identity and labels never change. Any goroutine may read the rest,
// which changes only through the handle that stands at each field.
type Endpoint struct {
	ID   messages.EndpointID
	Spec messages.EndpointSpec
	Labelled
	Since time.Time // when the pool had it first; zero = long ago

	scraped                                // SampleWriter
	outlier atomic.Pointer[outlier.Status] // OutlierWriter
	load    load                           // LoadWriter; SampleWriter moves the scrape that it counts from
	window  window                         // WindowWriter
	answers answers                        // LoadWriter
	sent    sent                           // LoadWriter
	prefix  audited                        // PrefixWriter
}

// scraped is what scrapes of an incarnation brought.
type scraped struct {
	sample  atomic.Pointer[Sample]
	pages   atomic.Pointer[Pages]
	failing atomic.Bool // the newest scrape failed
}

// sent counts the requests sent to an incarnation.
type sent struct {
	picks  atomic.Uint64
	models Tally // the same requests, by model
}

// Labelled is what the labels of an endpoint say.
type Labelled struct {
	Labels map[string]string // of its specification, for reading only
	Engine string            // as Labels name it; "" = they do not
}

// The labels that name an endpoint's engine to the reference too; the second counts where the first is missing.
const (
	engineLabel    = "llm-d.ai/engine-type"
	oldEngineLabel = "inference.networking.k8s.io/engine-type"
)

// New returns an endpoint without a sample.
func New(id messages.EndpointID, spec messages.EndpointSpec) *Endpoint {
	labels := make(map[string]string, spec.Labels.Len())
	for k, v := range spec.Labels.All() {
		labels[k] = v
	}
	engine := cmp.Or(labels[engineLabel], labels[oldEngineLabel])
	return &Endpoint{ID: id, Spec: spec, Labelled: Labelled{labels, engine}}
}

// Sample returns the newest sample; nil = there is none yet.
func (e *Endpoint) Sample() *Sample { return e.sample.Load() }

// Pages returns what further sources said last; nil = there are none.
func (e *Endpoint) Pages() *Pages { return e.pages.Load() }

// Failing reports whether the newest scrape failed.
func (e *Endpoint) Failing() bool { return e.failing.Load() }

// Outlier returns the endpoint's status as an outlier; nil = it is healthy.
func (e *Endpoint) Outlier() *outlier.Status { return e.outlier.Load() }

// Inflight returns how many requests were sent to the endpoint and have not ended.
func (e *Endpoint) Inflight() int { return e.load.inflight() }

// Window returns how much load the endpoint takes before work only waits there, and whether that was learned. Until
// then it is FirstWindow while a first page is awaited or tells of its work, and else without bounds.
func (e *Endpoint) Window() (room Room, known bool) {
	if rate := int(e.window.rate.Load()); rate > 0 {
		room.Rate, room.Prompts = rate, max(rate*learned.Ahead, learned.StepTokens)
	}
	requests := int(e.window.requests.Load())
	switch {
	case requests > 0:
		room.Requests, room.Tokens, room.Found = requests, int(e.window.tokens.Load()), e.window.found.Load()
		return room, true
	case e.window.loadReported.Load() || e.window.awaited.Load():
		room.Requests = FirstWindow
	}
	return room, false
}

// WindowReason returns why the window is what it is; nil = it was not learned. A reader of both may find the reason of
// the window before, or of the one after.
func (e *Endpoint) WindowReason() *learned.Why { return e.window.why.Load() }

// Counters returns the endpoint's load.
func (e *Endpoint) Counters() Counters { return e.load.counters() }

// PromptRate returns how many tokens of prompts the endpoint computes in a second, as first tokens have shown; 0 = they
// have shown nothing. It is less than MarginalRate where requests wait for something else, too.
func (e *Endpoint) PromptRate() int { return int(e.window.rate.Load()) }

// MarginalRate returns how many further tokens of prompts delay a first token by a second; 0 = that is unknown.
func (e *Endpoint) MarginalRate() int { return int(e.window.marginal.Load()) }

// Pace returns how soon the endpoint gives first tokens, as was learned.
func (e *Endpoint) Pace() learned.Pace {
	return learned.Pace{
		Rate: e.PromptRate(), Marginal: e.MarginalRate(), PerRequest: time.Duration(e.window.perRequest.Load()),
		Count: int(e.window.firsts.Load()),
	}
}

// Wait returns how many seconds the endpoint is likely to take before the prompt of one more request, at a load.
func (e *Endpoint) Wait(c Counters, now time.Time) float64 {
	if c.Inflight+c.Held == 0 {
		return 0
	}
	others := float64(c.Inflight+c.Held) * time.Duration(e.window.perRequest.Load()).Seconds()
	return others + float64(e.Ahead(now)+c.HeldTokens)/float64(cmp.Or(e.MarginalRate(), learned.FirstRate))
}

// Backlog returns how many tokens of prompts the endpoint is likely to have to compute before first tokens.
func (e *Endpoint) Backlog(now time.Time) int { return e.load.backlog(e.speed(), now) }

// Ahead returns Backlog and, of prompts whose first tokens are not seen, as many tokens as are likely to be left.
func (e *Endpoint) Ahead(now time.Time) int {
	return e.Backlog(now) + e.load.unseen.left(e.speed(), now)
}

// speed returns PromptRate, or a guess while that is unknown.
func (e *Endpoint) speed() int { return cmp.Or(e.PromptRate(), learned.FirstRate) }

// Arrivals returns how many requests were sent to the endpoint in a second, of late.
func (e *Endpoint) Arrivals(now time.Time) float64 { return e.load.arrivals.rate(now) }

// Computing returns what of the load is to be done before first tokens.
func (e *Endpoint) Computing() Computing { return e.load.unfinished() }

// Prefix returns what audits have found of the endpoint's prefix cache.
func (e *Endpoint) Prefix() Audited {
	return Audited{e.prefix.predicted.Load(), e.prefix.reported.Load(), e.prefix.lost.Load(), e.prefix.drifts.Load()}
}

// Picks returns how many requests were sent to this incarnation.
func (e *Endpoint) Picks() uint64 { return e.sent.picks.Load() }

// Models ranges over the models for which the endpoint was picked, with the number of picks, in no particular order.
func (e *Endpoint) Models() iter.Seq2[string, uint64] { return e.sent.models.All() }

// Snapshot is the endpoint set at one version.
type Snapshot struct {
	Version   uint64
	Endpoints []*Endpoint // in the order of discovery
	byAddress map[messages.Address]*Endpoint
	maxSlot   int // highest slot in use; -1 = no endpoints
}

// NewSnapshot returns a snapshot of es, which it keeps.
func NewSnapshot(version uint64, es []*Endpoint) *Snapshot {
	byAddress := make(map[messages.Address]*Endpoint, len(es))
	s := &Snapshot{Version: version, Endpoints: es, byAddress: byAddress, maxSlot: -1}
	for _, e := range es {
		s.byAddress[e.Spec.Address] = e
		s.maxSlot = max(s.maxSlot, int(e.ID.Slot))
	}
	return s
}

// ByAddress returns the endpoint with an address; nil = the snapshot has none.
func (s *Snapshot) ByAddress(a messages.Address) *Endpoint { return s.byAddress[a] }

// ByID returns the endpoint of an incarnation; nil = the snapshot does not have it.
func (s *Snapshot) ByID(id messages.EndpointID) *Endpoint {
	for _, e := range s.Endpoints {
		if e.ID == id {
			return e
		}
	}
	return nil
}

const (
	// pageBytes is how much of the metrics page the series of endpoints may take, without those by model.
	pageBytes = 2 << 20
	// seriesBytes is how much of it the series of one endpoint take, without its names.
	seriesBytes = 1160
)

// WithSeries returns the endpoints that have series of their own on the metrics page: as many of the first as the page
// has room for, which are some two thousand.
func (s *Snapshot) WithSeries() []*Endpoint {
	room := pageBytes
	for i, e := range s.Endpoints {
		room -= seriesBytes + 3*(len(e.Spec.Name)+len(e.Spec.Namespace))
		if room < 0 {
			return s.Endpoints[:i]
		}
	}
	return s.Endpoints
}

// Slots returns one more than the highest slot in use.
func (s *Snapshot) Slots() int { return s.maxSlot + 1 }

// Published holds the snapshot in force. It changes only through a Publisher.
type Published struct {
	snapshot atomic.Pointer[Snapshot]
	names    atomic.Pointer[map[messages.EndpointID]messages.Address]
}

// NewPublished returns one without endpoints.
func NewPublished() *Published {
	p := &Published{}
	p.snapshot.Store(NewSnapshot(0, nil))
	p.names.Store(&map[messages.EndpointID]messages.Address{})
	return p
}

// Snapshot returns the snapshot in force, never nil.
func (p *Published) Snapshot() *Snapshot { return p.snapshot.Load() }

// Names returns the addresses of all incarnations that a record may name. The map is for reading only.
func (p *Published) Names() map[messages.EndpointID]messages.Address { return *p.names.Load() }

// Address returns the address of an incarnation, also of one that has left; "" = it is no longer known.
func (p *Published) Address(id messages.EndpointID) messages.Address { return (*p.names.Load())[id] }

// Incarnations returns the incarnations that have or had an address, as far as they are known, in no particular order.
func (p *Published) Incarnations(a messages.Address) []messages.EndpointID {
	var ids []messages.EndpointID
	for id, address := range *p.names.Load() {
		if address == a {
			ids = append(ids, id)
		}
	}
	return ids
}
