// Package conformance checks an EPP against the rules of Envoy's ext_proc filter and of the endpoint picker protocol: a
// table of checks, each played by a client as strict as Envoy, in every body mode in which it makes sense.
//
// It owns the table, what each check sends and what must come back, and the score. It never starts an EPP, never looks
// inside one except through what Options.Inside gives it, and never speaks HTTP.
package conformance

import (
	"fmt"
	"slices"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// Options say which EPP is checked, and what is known of it. Client and Endpoints are required.
type Options struct {
	Client    extprocv3.ExternalProcessorClient
	Endpoints []string // ip:port of the EPP's pool, at least one
	Model     string   // that requests name

	Health healthpb.HealthClient             // nil: health is not checked
	Narrow extprocv3.ExternalProcessorClient // its stream windows are 64 KiB; nil: slow readers are not played

	// gRPC metadata that Connect has each stream carry, by which an EPP may tell it from a proxy's; "" = none
	Mark string

	Modes  []string // names of Modes; nil = all
	Checks []int    // numbers; nil = all

	Parallel     int           // checks at a time, default 8
	Patience     time.Duration // for an answer that must come, default 5 s
	AtOnce       time.Duration // what counts as at once, default 50 ms; a tenth of it for a chunk that is passed on
	BodyWait     time.Duration // longest time after which the EPP gives a missing body up, default 35 s
	BodyLimit    int64         // bytes of a request body that are taken; 0 = unknown
	Destinations int           // at most so many in a pick; 0 = unknown
	RoutesAll    bool          // a model that is missing or unknown is routed by load, not refused

	Inside Inside
	Report func(Result) // of each result, in the order in which they come; nil = none is reported
}

// Inside is what only the process of the EPP knows. What is nil leaves out the checks that need it.
type Inside struct {
	Load  func(endpoint string) int             // requests that run there
	Open  func() int                            // ext_proc streams
	Held  func() int64                          // bytes that request bodies take
	Heap  func() int64                          // bytes of memory in use, after the garbage is collected
	Ended func(requestID string) (Ending, bool) // what became of a request, by the x-request-id it came with

	Empty     extprocv3.ExternalProcessorClient // an EPP without endpoints
	Saturated extprocv3.ExternalProcessorClient // an EPP that has no room for any request
	Impatient extprocv3.ExternalProcessorClient // an EPP that gives bodies up sooner; nil = Client is asked
	Queue     *Queue                            // an EPP in which every request waits
	Fresh     func() (*Instance, error)         // starts an EPP that may be stopped
}

// Ending is what an EPP remembers of a request.
type Ending struct {
	Reason string // why it was not served; "" = it was
	Status int    // HTTP; 0 = none
	Served string // endpoint
	Times  int    // so often it was counted
}

// Queue is an EPP in which every request waits until it leaves.
type Queue struct {
	Client  extprocv3.ExternalProcessorClient
	Waiting func() int
}

// Instance is an EPP of one check.
type Instance struct {
	Client extprocv3.ExternalProcessorClient
	Health healthpb.HealthClient
	Stop   func()       // says that it shall end, and returns
	Wait   func() error // until it has ended
}

// Check is a row of the table.
type Check struct {
	Number int
	Name   string
	Sends  string // what the proxy sends
	Wants  string // what must come back

	in    func(Modes) bool // where it makes sense
	alone bool             // it looks at figures of the whole EPP
	run   func(*checkRun) error
}

// Modes are the names of modes in which the check makes sense.
func (c *Check) Modes() []string {
	var names []string
	for _, m := range AllModes() {
		if c.makesSense(m) {
			names = append(names, m.Name)
		}
	}
	return names
}

// Outcome is how a check went.
type Outcome uint8

// The outcomes.
const (
	Passed Outcome = iota
	Failed
	NotRun
)

func (o Outcome) String() string { return [...]string{"pass", "FAIL", "not run"}[o] }

// Result is one check in one mode.
type Result struct {
	Check   *Check
	Mode    string
	Outcome Outcome
	Reason  string // one line; "" = it passed
	Figures string // what was measured; "" = nothing
	Took    time.Duration
}

// Line is a result for people.
func (r Result) Line() string {
	line := fmt.Sprintf("%-7s %2d %-34s %s", r.Outcome, r.Check.Number, r.Check.Name, r.Mode)
	if r.Reason != "" {
		return line + ": " + r.Reason
	}
	if r.Figures != "" {
		line += ": " + r.Figures
	}
	return line
}

// Score counts results.
type Score struct{ Passed, Applicable, NotRun int }

// Scores sums results up by mode, in the order of AllModes, and in all under the name "all".
func Scores(results []Result) ([]string, map[string]Score) {
	scores := map[string]Score{}
	add := func(name string, o Outcome) {
		s := scores[name]
		switch o {
		case Passed:
			s.Passed++
			s.Applicable++
		case Failed:
			s.Applicable++
		case NotRun:
			s.NotRun++
		}
		scores[name] = s
	}
	for _, r := range results {
		add(r.Mode, r.Outcome)
		add("all", r.Outcome)
	}
	var names []string
	for _, m := range append(AllModes(), Modes{Name: "all"}) {
		if _, ok := scores[m.Name]; ok {
			names = append(names, m.Name)
		}
	}
	return names, scores
}

// Table is every check, by number.
func Table() []*Check {
	var all []*Check
	for _, part := range [][]Check{requestChecks, endingChecks, responseChecks, protocolChecks, contentChecks,
		headerChecks, pickChecks} {
		for i := range part {
			all = append(all, &part[i])
		}
	}
	slices.SortFunc(all, func(a, b *Check) int { return a.Number - b.Number })
	return all
}

// Modes are how a proxy's filter is configured.
type Modes struct {
	Name              string
	Request, Response exchange.Mode
	WithoutWaiting    bool // send_body_without_waiting_for_header_response
	Observe           bool // observability_mode
}

// AllModes are the configurations in which checks run: each body mode in both directions, directions of different
// modes, headers or trailers not sent, and the two switches of the filter.
func AllModes() []Modes {
	fds := exchange.FullDuplex()
	buffered := exchange.Mode{Body: exchange.Buffered, Trailers: true}
	partial := exchange.Mode{Body: exchange.BufferedPartial, Trailers: true}
	streamed := exchange.Mode{Body: exchange.Streamed, Trailers: true}
	none := exchange.Mode{}
	grpc := exchange.Mode{Body: exchange.GRPC, Trailers: true}
	without := func(m exchange.Mode) exchange.Mode { m.Trailers = false; return m }
	headless := func(m exchange.Mode) exchange.Mode { m.SkipHeaders = true; return m }
	return []Modes{
		{Name: "FULL_DUPLEX_STREAMED", Request: fds, Response: fds},
		{Name: "BUFFERED", Request: buffered, Response: buffered},
		{Name: "BUFFERED_PARTIAL", Request: partial, Response: partial},
		{Name: "STREAMED", Request: streamed, Response: streamed},
		{Name: "NONE", Request: none, Response: none},
		{Name: "GRPC", Request: grpc, Response: grpc},
		{Name: "FULL_DUPLEX_STREAMED/NONE", Request: fds, Response: none},
		{Name: "FULL_DUPLEX_STREAMED/BUFFERED_PARTIAL", Request: fds, Response: partial},
		{Name: "BUFFERED/FULL_DUPLEX_STREAMED", Request: buffered, Response: fds},
		{Name: "STREAMED/BUFFERED", Request: streamed, Response: buffered},
		{Name: "NONE/STREAMED", Request: none, Response: streamed},
		{Name: "GRPC/NONE", Request: grpc, Response: none},
		{Name: "STREAMED/NONE", Request: streamed, Response: none},
		{Name: "BUFFERED, trailers SKIP", Request: without(buffered), Response: without(buffered)},
		{Name: "BUFFERED_PARTIAL, trailers SKIP", Request: without(partial), Response: without(partial)},
		{Name: "STREAMED, trailers SKIP", Request: without(streamed), Response: without(streamed)},
		{Name: "NONE, trailers SEND", Request: exchange.Mode{Trailers: true},
			Response: exchange.Mode{Trailers: true}},
		{Name: "BUFFERED, request headers SKIP", Request: headless(buffered), Response: buffered},
		{Name: "BUFFERED_PARTIAL, request headers SKIP", Request: headless(partial), Response: partial},
		{Name: "STREAMED, request headers SKIP", Request: headless(streamed), Response: streamed},
		{Name: "FULL_DUPLEX_STREAMED, request headers SKIP", Request: headless(fds), Response: fds},
		{Name: "NONE, request headers SKIP", Request: headless(none), Response: none},
		{Name: "BUFFERED, response headers SKIP", Request: buffered, Response: headless(buffered)},
		{Name: "BUFFERED_PARTIAL, response headers SKIP", Request: partial, Response: headless(partial)},
		{Name: "STREAMED, response headers SKIP", Request: streamed, Response: headless(streamed)},
		{Name: "FULL_DUPLEX_STREAMED, response headers SKIP", Request: fds, Response: headless(fds)},
		{Name: "STREAMED without waiting", Request: streamed, Response: streamed, WithoutWaiting: true},
		{Name: "NONE, observed", Request: none, Response: none, Observe: true},
		{Name: "STREAMED, observed", Request: streamed, Response: streamed, Observe: true},
		{Name: "GRPC, observed", Request: grpc, Response: grpc, Observe: true},
	}
}

// makesSense leaves observed streams to the checks that ask for them.
func (c *Check) makesSense(m Modes) bool { return c.in(m) }

// headed holds for modes in which a request can be picked for: its headers are shown. Without them nothing can carry a
// pick, as Envoy sends them on at once.
func headed(m Modes) bool { return !m.Observe && !m.Request.SkipHeaders }

// bodied holds for modes that show the body of the request.
func bodied(m Modes) bool { return headed(m) && m.Request.Body != exchange.None }

// awaited holds for modes in which the pick can wait for the body.
func awaited(m Modes) bool {
	return headed(m) && (m.Request.Body == exchange.Duplex || m.Request.Buffers())
}

// read holds for modes in which the pick can wait for the whole body.
func read(m Modes) bool { return awaited(m) && m.Request.Body != exchange.BufferedPartial }

// eager holds for modes in which the pick goes with the headers answer.
func eager(m Modes) bool { return headed(m) && !awaited(m) }

func request(body ...exchange.Mode) func(Modes) bool {
	return func(m Modes) bool {
		for _, b := range body {
			if headed(m) && m.Request.Body == b.Body {
				return true
			}
		}
		return false
	}
}

// replied holds for modes that show anything of the response, whether or not its request could be picked for.
func replied(m Modes) bool { return repliedHeaders(m) || repliedBody(m) }

// repliedHeaders holds for modes in which the response begins with its headers.
func repliedHeaders(m Modes) bool { return !m.Observe && !m.Response.SkipHeaders }

func repliedBody(m Modes) bool { return !m.Observe && m.Response.Body != exchange.None }

func both(a, b func(Modes) bool) func(Modes) bool { return func(m Modes) bool { return a(m) && b(m) } }

func requestTrailers(m Modes) bool  { return m.Request.Trailers }
func responseTrailers(m Modes) bool { return m.Response.Trailers }
func observed(m Modes) bool         { return m.Observe }

// plain leaves out all modes but those that are named by their body mode alone.
func plain(in func(Modes) bool) func(Modes) bool {
	return func(m Modes) bool { return in(m) && m.Name == m.Response.Body.String() }
}

// once is a check in which the modes play no part.
func once(m Modes) bool { return m.Name == "FULL_DUPLEX_STREAMED" }
