package schedule

import (
	"fmt"
	"math/rand/v2"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/messages"
)

// Handler chooses which profiles run for a request, one after the other, and whose pick serves it. Its methods must
// neither keep nor change their arguments.
type Handler interface {
	// Next returns the profile to run after those in c.Results(). It is called until it returns a Run without a
	// profile or with a Refusal, or a run that is not optional picks nothing, which refuses the request, too. If it
	// names the same profile twice for one request, or one out of range, the request is answered 500.
	Next(c *Course) Run
	// Primary returns the index in c.Results() of the run whose pick serves the request. It is called once for each
	// request that has not been refused, after the last Next. If that run picked nothing, the request is refused with
	// the reason of the run; if the index is out of range, it is answered 500.
	Primary(c *Course) int
}

// Finisher is a Handler that has the last word on a pick.
type Finisher interface {
	// Finish may change what becomes of the request. It is called once for each request, after Primary, unless the
	// request was refused. If it leaves no destination, or names an endpoint that does not exist, or two destinations
	// that are the same, the request is answered 500.
	Finish(c *Course, f *Final)
}

// Arranger is a Handler whose parameters name profiles or other plugins.
type Arranger interface {
	// Arrange tells the handler the profiles of the file, in the order of Course.Profiles. plugin returns the plugin
	// that a parameter names; nil = there is none, which is a problem already. Arrange is called once, after the
	// parameters were decoded and before the handler runs. It returns what is wrong as Validate does: errors that begin
	// with the path of a parameter, or with schedulingProfiles, and a colon.
	Arrange(profiles []string, plugin func(parameter, name string) any) error
}

// Doubter is a plugin of which some parameters may have no effect in a file that has other profiles.
type Doubter interface {
	// Doubts returns the parameters that have none, and why, as Arrange returns what is wrong. It is called after it.
	Doubts() []error
}

// Decider says for a handler whether a stage of a request is worth its own server.
type Decider interface {
	// Decide reports whether the stage is to run. decode is the place of the endpoint that the decode stage has picked;
	// -1 = it has not run yet.
	Decide(c *Course, decode int) bool
}

// Run is what a handler wants to run next.
type Run struct {
	Profile  int  // index in Course.Profiles; -1 = nothing further
	Optional bool // if the profile picks nothing, the request is not refused, and the result says why
	Alone    bool // what other profiles have picked does not matter to its plugins
	// Refused says why the request is refused, in place of a further run; the zero Refusal = it is not.
	Refused Refusal
}

// Course is a request on its way through the profiles. Every endpoint that the request may go to has a place, which is
// the same for all runs.
type Course struct {
	request  *messages.Request
	profiles []string
	results  []Result
	rand     *rand.Rand
	view     *view
	values   []any // of Private slots
}

// NewCourse returns a course of a request that may go to no endpoint, for tests of handlers and deciders.
func NewCourse(of *messages.Request, profiles []string, results ...Result) *Course {
	return &Course{request: of, profiles: profiles, results: results, view: new(view)}
}

// Request returns the request, without its headers.
func (c *Course) Request() Request { return Request{c.request} }

// Profiles returns the names of the profiles that a handler may run: shadow profiles are not among them.
func (c *Course) Profiles() messages.List[string] { return messages.TakeList(c.profiles) }

// Results returns the results of the runs so far, in their order.
func (c *Course) Results() messages.List[Result] { return messages.TakeList(c.results) }

// Rand returns the loop's source of random numbers, which is seeded, so that a run can be repeated.
func (c *Course) Rand() *rand.Rand { return c.rand }

// Len returns the number of endpoints that the request may go to. Places count from 0.
func (c *Course) Len() int { return len(c.view.all) }

// Endpoint returns the endpoint at a place.
func (c *Course) Endpoint(at int) Candidate { return Candidate{&c.view.all[at]} }

// Header returns the value of a header that the handler has declared, cut to 128 bytes; false = the request does not
// have it.
func (c *Course) Header(of attributes.HeaderSlot) (string, bool) { return header(c.request, of) }

// Number returns an attribute, which the handler has declared, of the endpoint at a place; NaN = unknown.
func (c *Course) Number(of attributes.NumberSlot, at int) float64 {
	return c.view.number(of.Index())[at]
}

// Result is what a profile run came to.
type Result struct {
	Index    int // in Course.Profiles
	Profile  string
	Optional bool
	Reason   messages.Reason        // why it picked nothing; NoReason = it picked
	Detail   string                 // of Reason
	Ranked   messages.List[uint32]  // places, best first; empty exactly if there is a reason
	Totals   messages.List[float32] // by place; negative = no candidate any more; empty if nothing was scored
}

// Final is what becomes of a request that is served.
type Final struct {
	Primary int  // index in Course.Results of the run that serves
	Probe   bool // the request probes the first destination, which is first again whatever the handler does

	// Destinations are best first: the proxy sends the request to the first one, and falls back to the others. At first
	// they are what the primary run ranked.
	Destinations []Destination
	// Stages are the endpoints that work for the request beside the first destination; at first there are none.
	Stages []Stage
	// Headers are set on the request; at first there are none. A value must be valid in HTTP.
	Headers []messages.Header
	// Split names the stages that have servers of their own, for metrics; "" = the handler splits no requests. A
	// handler has few such names.
	Split string
}

// Destination is an endpoint to which the proxy may send the request.
type Destination struct {
	At   int              // place of the endpoint
	Sent messages.Address // where the proxy sends the request; "" = to the endpoint's own address
}

// Stage is an endpoint that works for a request before its destination does, such as a prefill server.
type Stage struct {
	Run    int  // index in Course.Results of the run that picked the endpoint
	At     int  // its place
	Prompt bool // afterwards it holds the KV blocks of the prompt
}

// fault returns what is wrong with a handler's last word; "" = nothing.
func (f *Final) fault(c *Course) string {
	if len(f.Destinations) == 0 {
		return "left no destination"
	}
	for i, d := range f.Destinations {
		if d.At < 0 || d.At >= c.Len() {
			return fmt.Sprintf("named endpoint %d of %d", d.At, c.Len())
		}
		for _, before := range f.Destinations[:i] {
			if before.At == d.At {
				return fmt.Sprintf("named destination %d twice", d.At)
			}
		}
	}
	for _, s := range f.Stages {
		if s.At < 0 || s.At >= c.Len() || s.Run < 0 || s.Run >= len(c.results) {
			return fmt.Sprintf("named endpoint %d of %d for run %d of %d", s.At, c.Len(), s.Run, len(c.results))
		}
	}
	return ""
}

// keepFirst makes an endpoint the first destination again, if the handler has put another one there.
func (f *Final) keepFirst(at int) {
	if len(f.Destinations) > 0 && f.Destinations[0].At == at {
		return
	}
	first := Destination{At: at}
	others := f.Destinations[:0]
	for _, d := range f.Destinations {
		if d.At == at {
			first = d
			continue
		}
		others = append(others, d)
	}
	f.Destinations = append([]Destination{first}, others...)
}
