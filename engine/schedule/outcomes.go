package schedule

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/messages"
)

// FirstToken is a plugin that learns when the first token of an answer came.
type FirstToken interface {
	// FirstToken is called at most once for each request that was picked for: when the first token of a streamed answer
	// comes that is no error, from the first destination and after no stage of another endpoint. If the response's body
	// bypasses Signalbox it is called with the entry of the access log, if that says when the body began.
	FirstToken(b *Begun)
}

// ResponseEnd is a plugin that learns how requests ended.
type ResponseEnd interface {
	// ResponseEnd is called once for each request that was picked for, when it has ended. If the response's body
	// bypassed Signalbox, what it knows is from the entry of the access log, and nothing if that is missing.
	ResponseEnd(e *Ended)
}

// Begun is a request of which the first token has come.
type Begun struct {
	values []any // of Private slots
	notes  memory.Notes
	served messages.EndpointID
	took   time.Duration
}

// Served returns the endpoint that serves.
func (b *Begun) Served() messages.EndpointID { return b.served }

// Took returns how long the token took from the pick; above 0.
func (b *Begun) Took() time.Duration { return b.took }

// Notes is where plugins say what they keep for later requests.
func (b *Begun) Notes() *memory.Notes { return &b.notes }

// Ended is a request that was picked for and has ended.
type Ended struct {
	request *messages.Request
	record  *messages.Record
	values  []any // of Private slots
	notes   memory.Notes
}

// Request returns the request.
func (e *Ended) Request() Request { return Request{e.request} }

// Record returns what became of the request.
func (e *Ended) Record() messages.Record { return *e.record }

// Notes is where plugins say what they keep for later requests.
func (e *Ended) Notes() *memory.Notes { return &e.notes }

// Header returns the value of a header of the request that the plugin has declared, cut to 128 bytes; false = the
// request does not have it.
func (e *Ended) Header(of attributes.HeaderSlot) (string, bool) { return header(e.request, of) }

// Reporter is a plugin that tells the proxy numbers about a response, by what its body says of its tokens.
type Reporter interface {
	// Report appends its reports to list, and returns it. It is called once for each response whose whole body was
	// shown and that says how many tokens it has. It is called on the goroutine of a stream, and so for several
	// responses at once.
	Report(usage *messages.Usage, list []Report) []Report
}

// Report is what a Reporter has of one number.
type Report struct {
	Result    ReportResult
	Namespace string  // of the proxy's dynamic metadata
	Key       string  // in it
	Value     float64 // finite; only of what is Told
}

// ReportResult says what became of a number.
type ReportResult uint8

const (
	Told     ReportResult = iota // the proxy is told
	Withheld                     // its condition does not hold
	Failed                       // it cannot be computed from this usage

	reportResults
)

// String returns the result's name, as metrics have it.
func (r ReportResult) String() string {
	return [reportResults]string{Told: "told", Withheld: "withheld", Failed: "failed"}[r]
}

// ReportResults returns every result.
func ReportResults() []ReportResult { return []ReportResult{Told, Withheld, Failed} }

// Reports reports whether Report has anything to call.
func (p *Plan) Reports() bool { return len(p.points.reports) > 0 }

// Report calls the plugins that tell the proxy of a response. It may be called on any goroutine.
func (p *Plan) Report(usage *messages.Usage, clock Clock) (list []Report) {
	if usage.Source != messages.UsageReported && !usage.PromptKnown {
		return nil
	}
	for i := range p.points.reports {
		at := &p.points.reports[i]
		began := clock.Nanos()
		list = at.plugin.Report(usage, list)
		p.observer.PluginRan(at.Meter, time.Duration(clock.Nanos()-began))
	}
	return list
}

// HasEnds reports whether End has anything to call.
func (p *Plan) HasEnds() bool { return len(p.points.ends) > 0 }

// FirstToken calls the plugins that learn when the first token came. values are those of the request's Outcome. It
// returns what they keep.
func (s *Scheduler) FirstToken(
	p *Plan, served messages.EndpointID, took time.Duration, values []any,
) messages.List[messages.Kept] {
	b := Begun{values: values, served: served, took: took}
	for i := range p.points.firsts {
		at := &p.points.firsts[i]
		began := s.tools.Clock.Nanos()
		at.plugin.FirstToken(&b)
		p.observer.PluginRan(at.Meter, time.Duration(s.tools.Clock.Nanos()-began))
	}
	return b.notes.Take()
}

// HasFirstTokens reports whether FirstToken has anything to call.
func (p *Plan) HasFirstTokens() bool { return len(p.points.firsts) > 0 }

// End calls the plugins that learn how a request ended. values are those of its Outcome. It returns what they keep.
func (s *Scheduler) End(
	p *Plan, req *messages.Request, became *messages.Record, values []any,
) messages.List[messages.Kept] {
	e := Ended{request: req, record: became, values: values}
	for i := range p.points.ends {
		at := &p.points.ends[i]
		began := s.tools.Clock.Nanos()
		at.plugin.ResponseEnd(&e)
		p.observer.PluginRan(at.Meter, time.Duration(s.tools.Clock.Nanos()-began))
	}
	return e.notes.Take()
}
