package sim_test

import (
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// line is what the ledger says of one request.
type line struct {
	id            messages.RequestID
	configuration uint64 // in force when its headers came
	picked        int
	failed        int
	reason        messages.Reason // of the newest refusal
	revoked       int
	refused       bool // at the door: there was never a cycle
	gone          bool // the stream has ended, for whatever reason
	late          bool // the stream answered by itself, after its own deadline
	excused       bool // ... and nothing could have answered: the cycle died before it had heard of the request
	begun         int  // cycles that heard of the request
	ends          int  // of these, how many ended
	reports       int
	told          int // how often a plugin was told of its end
	faulty        string
	partial       bool            // it left before its request was whole: there was never to be a cycle
	barren        bool            // a filter keeps nothing for it
	expect        messages.Reason // what its client must be told, for a plugin went wrong with it
	tokens        int
	first         messages.Address // of the newest pick

	stages  []messages.EndpointID // that work for the request before its destination does
	sidecar messages.Address      // to which the request is sent first, if not to its endpoint
	behind  messages.Address      // the endpoint's own address then
}

// reached is the address of the endpoint that answers where the request was sent.
func (l *line) reached(to messages.Address) messages.Address {
	if to == l.sidecar && to != "" {
		return l.behind
	}
	return to
}

func (l *line) answers() int { return l.picked + l.failed }

func (l *line) heard(m messages.StreamMsg) {
	switch m := m.(type) {
	case messages.PickMade:
		l.picked++
		l.first = m.Destinations.At(0)
		if len(l.stages) != m.Headers.Len() {
			l.faulty = "its stream was not told of its stages"
		}
	case messages.PickFailed:
		l.failed++
		l.reason = m.Reason
	case messages.ServingRevoked:
		l.revoked++
		if l.picked == 0 {
			l.faulty = "revoked before it was picked"
		}
	case messages.AnswerDue:
	}
}

// ledger is what is written down about a run.
type ledger struct {
	lines     []*line // by request id - 1
	present   int     // clients
	endpoints map[messages.EndpointID]*endpoints.Endpoint
	scrapers  map[messages.EndpointID]int
	most      int // scrapers of one endpoint at once
	panics    map[string]int
	born      map[string]int
	died      map[string]int
	drawn     map[string]int // faults, by kind
	breaches  []string       // rules that did not hold
	queries   []*query
	reused    []messages.EndpointID   // ids of endpoints that were another one's before
	entries   struct{ told, met int } // access log entries of ends: of the proxies, and that reached a cycle
	heard     [loops]map[string]int   // messages of each loop's shard, by name
}

func newLedger() *ledger {
	g := &ledger{
		endpoints: map[messages.EndpointID]*endpoints.Endpoint{}, scrapers: map[messages.EndpointID]int{},
		panics: map[string]int{}, born: map[string]int{}, died: map[string]int{}, drawn: map[string]int{},
	}
	for i := range g.heard {
		g.heard[i] = map[string]int{}
	}
	return g
}

func (g *ledger) open(id messages.RequestID) *line {
	l := &line{id: id}
	g.lines = append(g.lines, l)
	return l
}

func (g *ledger) of(id messages.RequestID) *line { return g.lines[id-1] }

// reported hears of the end of a request, from its cycle.
// reported is called with the record of each request, which ran under the configuration that it came with.
func (g *ledger) reported(r *messages.Record) {
	l := g.of(r.Request)
	l.reports++
	for _, p := range r.Decision.Profiles.All() {
		if r.Configuration != l.configuration || p.Profile != profileOf(l.configuration) {
			g.broken("request %d came under configuration %d, and ran profile %q under %d", r.Request, l.configuration,
				p.Profile, r.Configuration)
		}
	}
}

// met writes down an incarnation of an endpoint. No two endpoints may have the same id.
func (g *ledger) met(e *endpoints.Endpoint) {
	if other := g.endpoints[e.ID]; other != nil && other != e {
		g.reused = append(g.reused, e.ID)
	}
	g.endpoints[e.ID] = e
}

// query is one question to the recorder, or to capacity.
type query struct {
	of      string // the actor that is asked
	answers int
}

// followed is a cycle whose begin and end are written down, and what it holds meanwhile.
type followed struct {
	runtime.Actor[messages.CycleMsg]
	ledger *ledger
	model  *model
	line   *line
	passes bool // its response bypasses the stream
	proved bool // an entry came meanwhile: its proxy has a log, whatever the stream says at its end
}

func (f *followed) Receive(ctx runtime.Context[messages.CycleMsg], m messages.CycleMsg) {
	if m, ok := m.(messages.RequestArrived); ok {
		f.line = f.ledger.of(m.Request.ID)
		f.line.begun++
	}
	picked := f.line.picked
	f.Actor.Receive(ctx, m)
	if f.line.picked > picked {
		f.model.picked(f.line)
	}
	switch m := m.(type) {
	case messages.ResponseStarted:
		f.passes = m.Bypasses
		f.model.moved(f.line, m.Served)
		if m.Bypasses {
			delete(f.model.staged, f.line)
		}
	case messages.FirstTokenSeen:
		f.passes = false
		delete(f.model.staged, f.line)
		f.model.begun(f.line)
	case messages.StreamGone:
		if m.Logged && m.Log != messages.LogSeen && !f.proved {
			f.model.parted(f.line)
		}
	case messages.ResponseOngoing:
		f.proved = f.proved || f.passes
		f.model.returned(f.line)
	case messages.ResponseEnded:
		f.ledger.entries.met += one(m.Logged != messages.Logged{})
	}
}

func (f *followed) Stopped(ctx runtime.Context[messages.CycleMsg]) {
	defer func() { // for a plugin may panic
		if f.line != nil {
			f.line.ends++
			delete(f.model.held, f.line)
			delete(f.model.away, f.line)
			delete(f.model.staged, f.line)
		}
	}()
	f.Actor.Stopped(ctx)
}

// counted is a scraper; there is one of an endpoint at a time.
type counted struct {
	runtime.Actor[messages.ScraperMsg]
	ledger *ledger
	model  *model
	id     messages.EndpointID
}

func (g *ledger) counts(m *model, id messages.EndpointID,
	a runtime.Actor[messages.ScraperMsg]) runtime.Actor[messages.ScraperMsg] {
	g.scrapers[id]++
	g.most = max(g.most, g.scrapers[id])
	return &counted{a, g, m, id}
}

// Receive follows which page is in force. One that came before the endpoint was in the pool saw none of its picks.
func (c *counted) Receive(ctx runtime.Context[messages.ScraperMsg], m messages.ScraperMsg) {
	c.model.scraping = c.id
	before := c.sample()
	c.Actor.Receive(ctx, m)
	if page, ok := m.(messages.ScrapeFinished); ok && c.sample() != before {
		p := c.model.of(c.id)
		p.inForce = p.began[page.Number]
	}
}

func (c *counted) sample() *endpoints.Sample {
	if e := c.ledger.endpoints[c.id]; e != nil {
		return e.Sample()
	}
	return nil
}

func (c *counted) Stopped(ctx runtime.Context[messages.ScraperMsg]) {
	c.Actor.Stopped(ctx)
	if c.ledger.scrapers[c.id]--; c.ledger.scrapers[c.id] == 0 {
		delete(c.ledger.scrapers, c.id)
	}
}

// live is how many scrapers there are.
func (g *ledger) live() int {
	n := 0
	for _, k := range g.scrapers {
		n += k
	}
	return n
}
