package schedule

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/messages"
)

// A plugin may serve points of a request's life outside of the profiles, several if it likes. At each point the plugins
// are called in the order of the configuration, all in the step of the cycle that picks, and none may wait:
//
//	headers ─► producers ─► saturation ─► screeners ─► admitters ─► profiles ─► pre-request ─► response headers
//
// and later, if the request was picked for: first token, and in the cycle's last step response end. A refused request
// comes to no later point. A request that waits for room is tried to be picked for several times, and also looked at to
// learn for which endpoints it waits. Producers, the saturation and the profiles then run each time, because endpoints
// have changed. All others are called once, however long it waits: an Intake keeps what they said.
// What a plugin sets or says at one point is seen by no other plugin. Reporters run elsewhere, at the end of a body.

// RequestHeaders is a plugin that acts on the headers of requests.
type RequestHeaders interface {
	// RequestHeaders is called once for each request, first, with every endpoint that the request may go to. It may set
	// headers on the request.
	RequestHeaders(in *Input, set *Headers) Refusal
}

// Producer computes attributes of endpoints for a request.
type Producer interface {
	// Emits returns the names of the attributes. It is called after the parameters were decoded,
	// and returns the same each time.
	Emits() []string
	// Produce sets the values, with all endpoints as candidates that the request may go to. It is called once for each
	// try to pick for a request, if a plugin reads one of its attributes, so that every plugin after it sees the same;
	// a request that waits has several tries. One that reads samples has those candidates only whose samples are fresh;
	// it is not called if no sample is fresh.
	Produce(in *Input, out *Produced)
}

// Produced takes the values of a Producer. It is valid until the call of the plugin returns.
type Produced struct {
	run   *profileRun
	slots []int // by attribute; -1 = no plugin reads it
	meter int
}

// MediaTeller is a Producer that says what it finds of the media of requests. It is counted once a request is picked
// for, however often that was tried.
type MediaTeller interface {
	Producer
	// TellsMedia does nothing: it says that Produce calls MediaAsked and MediaFound.
	TellsMedia()
}

// MediaAsked says how many media the request has.
func (p *Produced) MediaAsked(n messages.MediaCounts) {
	p.run.view.looked = append(p.run.view.looked, look{meter: p.meter, of: n})
}

// MediaFound says how many of the request's media candidate i was sent before.
func (p *Produced) MediaFound(i int, found, of messages.MediaCounts) {
	p.run.view.looked = append(p.run.view.looked, look{p.meter, p.run.in.candidates.At(i).ID(), found, of})
}

// Set sets the value of attribute number of Emits for candidate i. What is not set is NaN, which means unknown.
func (p *Produced) Set(number, i int, value float64) {
	if slot := p.slots[number]; slot >= 0 {
		p.run.view.numbers.columns[slot][p.run.place[i]] = value
	}
}

// Screener says for all profiles which endpoints a request may go to.
type Screener interface {
	// Screen sets keep[i] to false for each candidate i that no profile may pick. All of keep is true at first. It is
	// called once for each request; if endpoints join the pool while the request waits, once more, with these alone as
	// candidates. Every screener has the same candidates, and an endpoint stays if all keep it. If none stays the
	// request is refused. A screener that reads samples has those candidates only whose samples are fresh, and the
	// others stay; it is not called if no sample is fresh.
	Screen(in *Input, keep []bool)
}

// Admitter says whether a request is served at all.
type Admitter interface {
	// Admit is called once for each request, after the screeners, with the candidates that they left. One that reads
	// samples has those with fresh samples; it is not called if no sample is fresh.
	Admit(in *Input) Refusal
}

// PreRequest is a plugin that acts on a pick before the request is sent.
type PreRequest interface {
	// PreRequest is called once for each request that is picked for, after the handler's last word. It may set headers
	// on the request.
	PreRequest(p *Picked, set *Headers) Refusal
}

// ResponseHeaders is a plugin that sets headers on responses.
type ResponseHeaders interface {
	// ResponseHeaders is called once for each destination of a pick, after all PreRequest. The headers are set on the
	// response if that destination serves it and the proxy shows the response's headers.
	ResponseHeaders(p *Picked, destination int, set *Headers)
}

// Headers collects headers that a plugin sets. It is valid until the call of the plugin returns.
type Headers struct {
	list  []messages.Header
	wrong string // the quoted name of one that HTTP does not have, or that is not for plugins; "" = none
}

// Set sets a header, whose name may have any case, in the place of one that a client or server sent.
func (h *Headers) Set(name, value string) {
	name = strings.ToLower(name)
	if !attributes.SettableHeader(name, value) {
		h.wrong = strconv.Quote(name)
		return
	}
	h.list = append(h.list, messages.Header{Name: name, Value: value})
}

// Picked is a request that was picked for.
type Picked struct {
	*course
	final *Final
	notes memory.Notes
}

// course is Course by a name that plugins cannot set.
type course = Course

// Primary returns the result of the run that serves the request.
func (p *Picked) Primary() Result { return p.results[p.final.Primary] }

// Notes is where plugins say what they keep for later requests.
func (p *Picked) Notes() *memory.Notes { return &p.notes }

// Destinations returns how many destinations the pick has, at least one. The proxy sends the request to the first one,
// and falls back to the others.
func (p *Picked) Destinations() int { return len(p.final.Destinations) }

// Stages returns the endpoints that work for the request before its destination does.
func (p *Picked) Stages() messages.List[Stage] { return messages.TakeList(p.final.Stages) }

// At returns the place of the endpoint of a destination.
func (p *Picked) At(destination int) int { return p.final.Destinations[destination].At }

// Destination returns a destination of the pick, counted from 0, and where the proxy sends the request for it.
func (p *Picked) Destination(i int) (Candidate, messages.Address) {
	of := p.final.Destinations[i]
	endpoint := p.Endpoint(of.At)
	if of.Sent == "" {
		return endpoint, endpoint.Address()
	}
	return endpoint, of.Sent
}

// PointStep is a plugin that serves points outside of the profiles.
type PointStep struct {
	Step
	Plugin any // one or several of the interfaces of points
}

// ServesPoint reports whether a plugin serves a point outside of the profiles.
func ServesPoint(plugin any) bool {
	switch plugin.(type) {
	case RequestHeaders, Producer, Screener, Admitter, PreRequest, ResponseHeaders, FirstToken, ResponseEnd,
		Reporter:
		return true
	}
	return false
}

// point is a plugin at one point.
type point[P any] struct {
	Step
	plugin  P
	sources uint64 // that it reads, as fills has them
}

// points holds the plugins of a plan outside of its profiles.
type points struct {
	headers   []point[RequestHeaders]
	producers []producing
	detector  point[Detector] // its plugin is nil if there is none
	gate      point[Gate]     // its plugin is nil if requests never wait for room
	screeners []point[Screener]
	admitters []point[Admitter]
	prepare   []point[PreRequest]
	respond   []point[ResponseHeaders]
	firsts    []point[FirstToken]
	ends      []point[ResponseEnd]
	reports   []point[Reporter]

	saturation bool // outcomes say how full the gate finds the endpoints
}

// producing is a producer with the slots of its attributes; -1 = no plugin reads it.
type producing struct {
	point[Producer]
	slots []int
}

// producing returns a producer, if it is one and a plugin reads what it emits.
func (p *Plan) producing(s PointStep) []producing {
	var list []producing
	for _, of := range with[Producer](nil, s, p.fills.sources(s.Reads)) {
		slots, read := make([]int, 0, 1), false
		for _, name := range of.plugin.Emits() {
			slot := p.fills.produced(name, of.Name)
			slots, read = append(slots, slot), read || slot >= 0
		}
		if read {
			_, of.Media = of.plugin.(MediaTeller)
			list = append(list, producing{of, slots})
		}
	}
	return list
}

// Serve has plugins called at the points that they serve. It is called before the plan runs, and before it is observed.
func (p *Plan) Serve(steps ...PointStep) {
	for _, s := range steps {
		reads := p.fills.sources(s.Reads)
		p.points.headers = with(p.points.headers, s, reads)
		p.points.producers = append(p.points.producers, p.producing(s)...)
		p.points.screeners = with(p.points.screeners, s, reads)
		p.points.admitters = with(p.points.admitters, s, reads)
		p.points.prepare = with(p.points.prepare, s, reads)
		p.points.respond = with(p.points.respond, s, reads)
		p.points.firsts = with(p.points.firsts, s, reads)
		p.points.ends = with(p.points.ends, s, reads)
		p.points.reports = with(p.points.reports, s, reads)
	}
}

// with appends a plugin to those of a point, if it serves it.
func with[P any](list []point[P], s PointStep, reads uint64) []point[P] {
	if plugin, ok := s.Plugin.(P); ok {
		list = append(list, point[P]{s.Step, plugin, reads})
	}
	return list
}

// Points calls number with each plugin of each point and the point's name, so that the plan's owner can number their
// meters.
func (p *Plan) Points(number func(name string, of *Step)) {
	each(p.points.headers, "RequestHeader", number)
	for i := range p.points.producers {
		number("DataProducer", &p.points.producers[i].Step)
	}
	if p.points.detector.plugin != nil {
		number("SaturationDetector", &p.points.detector.Step)
	}
	if p.points.gate.plugin != nil {
		number("SaturationDetector", &p.points.gate.Step)
	}
	each(p.points.screeners, "Screener", number)
	each(p.points.admitters, "Admitter", number)
	each(p.points.prepare, "PreRequest", number)
	each(p.points.respond, "ResponseHeader", number)
	each(p.points.firsts, "FirstToken", number)
	each(p.points.ends, "ResponseComplete", number)
	each(p.points.reports, "ResponseBody", number)
}

func each[P any](list []point[P], name string, number func(string, *Step)) {
	for i := range list {
		number(name, &list[i].Step)
	}
}

// arrive calls the plugins that come before the profiles, as far as they have not said all of the request before. It
// returns why the request is refused, if it is.
func (s *Scheduler) arrive(p *Plan, before *Intake, now time.Time) Refusal {
	of, r := &p.points, &s.run
	r.screened, r.screeners, s.headers, s.view.looked = r.screened[:0], nil, Headers{}, s.view.looked[:0]
	sheddable := of.detector.plugin != nil && s.course.request.Priority < 0
	if s.course.request.Forced {
		r.screeners = []messages.FilterRun{forcedRun}
	}
	if len(of.headers)+len(of.producers)+len(of.screeners)+len(of.admitters) == 0 && !sheddable {
		return Refusal{}
	}
	r.in = Input{request: s.course.request, rand: s.tools.Rand, run: r, values: s.course.values, now: now}
	defer r.forget()
	if refused := s.setHeaders(of.headers, before); refused.Reason != messages.NoReason {
		return refused
	}
	for i := range of.producers {
		r.produce(&of.producers[i])
	}
	if sheddable {
		if refused := r.shed(&of.detector); refused.Reason != messages.NoReason {
			return refused
		}
	}
	if refused := r.screen(of.screeners, before); refused.Reason != messages.NoReason {
		return refused
	}
	for i := 0; i < len(of.admitters) && !before.done(); i++ {
		at := &of.admitters[i]
		refused := r.visit(&at.Step, at.sources, func() Refusal { return at.plugin.Admit(&r.in) })
		if refused.Reason != messages.NoReason {
			return refused
		}
	}
	before.keep(s, r)
	return Refusal{}
}

// setHeaders calls the plugins that act on headers, unless they have set theirs before.
func (s *Scheduler) setHeaders(by []point[RequestHeaders], before *Intake) Refusal {
	if before.done() {
		s.headers.list = before.headers
		return Refusal{}
	}
	r := &s.run
	for i := range by {
		at := &by[i]
		refused := r.visit(&at.Step, 0, func() Refusal { return at.plugin.RequestHeaders(&r.in, &s.headers) })
		if refused = s.headers.checked(&at.Step, refused); refused.Reason != messages.NoReason {
			return refused
		}
	}
	return Refusal{}
}

// forcedRun stands in the record for the filters and screeners that do not look at the one endpoint of a request.
var forcedRun = messages.FilterRun{Plugin: messages.ForcedHeader, Kept: messages.ListOf(true)}

// produce has a producer compute its attributes, which are unknown before.
func (r *profileRun) produce(by *producing) {
	for _, slot := range by.slots {
		for i := range r.view.all {
			if slot >= 0 {
				r.view.numbers.columns[slot][i] = math.NaN()
			}
		}
	}
	r.visit(&by.Step, by.sources, func() Refusal {
		by.plugin.Produce(&r.in, &Produced{r, by.slots, by.Meter})
		return Refusal{}
	})
}

// shed refuses the request, which has a negative priority, if the detector finds the pool saturated.
func (r *profileRun) shed(at *point[Detector]) Refusal {
	return r.visit(&at.Step, 0, func() Refusal {
		if !(at.plugin.Saturation(&r.in) >= 1) {
			return Refusal{}
		}
		return Refusal{
			Reason: messages.NoCapacity, Detail: "the pool is saturated, and the request has a negative priority",
			RetryAfter: time.Second,
		}
	})
}

// visit calls a plugin with the candidates that it is to see, unless it reads a source of which no answer is fresh.
func (r *profileRun) visit(of *Step, sources uint64, call func() Refusal) Refusal {
	r.reset()
	if r.freshen(sources); r.stale&sources != 0 {
		return Refusal{}
	}
	r.in.candidates = Candidates{r.view.all, r.place}
	return r.ran(of, call)
}

// ran calls a plugin that may refuse the request. It returns a refusal that says more than nothing.
func (r *profileRun) ran(of *Step, call func() Refusal) Refusal {
	began := r.tools.Clock.Nanos()
	refused := call()
	r.observer.PluginRan(of.Meter, time.Duration(r.tools.Clock.Nanos()-began))
	switch {
	case refused.Reason == messages.NoReason:
		return Refusal{}
	case !refused.may():
		return Refusal{Reason: messages.Internal, Detail: fmt.Sprintf("%s refused it as %v", of.Name, refused.Reason)}
	case refused.Detail == "":
		refused.Detail = of.Name + " refused it"
	}
	return refused
}

// checked returns the refusal of a request on which a plugin has set what it may not.
func (h *Headers) checked(of *Step, refused Refusal) Refusal {
	if h.wrong == "" {
		return refused
	}
	return Refusal{Reason: messages.Internal, Detail: of.Name + " set the header " + h.wrong}
}

// Prepare calls the plugins that come after the pick of the last Run. It adds the headers that they set to the outcome,
// or makes it a refusal. Before that the caller must note the outcome's probe, which it has to give back in any case.
func (s *Scheduler) Prepare(p *Plan, req *messages.Request, out *Outcome) {
	of := &p.points
	if out.Reason == messages.NoReason && req.IfCached && out.PrefixBlocks <= 0 {
		out.fail(messages.NotCached, "")
	}
	if out.Reason != messages.NoReason || len(of.prepare)+len(of.respond) == 0 {
		return
	}
	began := s.tools.Clock.Nanos()
	s.course.request, s.course.values, s.run.observer = req, out.Values, p.observer
	defer s.forget()
	s.run.tellMedia()
	refused := s.prepare(of, out)
	if refused.Reason != messages.NoReason {
		out.refuse(refused)
	}
	out.Took += time.Duration(s.tools.Clock.Nanos() - began)
}

func (s *Scheduler) prepare(of *points, out *Outcome) Refusal {
	picked, set := &Picked{course: &s.course, final: &s.final}, &Headers{}
	for i := range of.prepare {
		at := &of.prepare[i]
		refused := s.run.ran(&at.Step, func() Refusal { return at.plugin.PreRequest(picked, set) })
		if refused = set.checked(&at.Step, refused); refused.Reason != messages.NoReason {
			return refused
		}
	}
	out.Kept = picked.notes.Take()
	if len(set.list) > 0 {
		out.Decision.Headers = messages.TakeList(append(out.Decision.Headers.Append(nil), set.list...))
	}
	if len(of.respond) == 0 {
		return Refusal{}
	}
	responses := make([]messages.List[messages.Header], 0, picked.Destinations())
	for destination := range picked.Destinations() {
		set := &Headers{}
		for i := range of.respond {
			at := &of.respond[i]
			refused := s.run.ran(&at.Step, func() Refusal {
				at.plugin.ResponseHeaders(picked, destination, set)
				return Refusal{}
			})
			if refused = set.checked(&at.Step, refused); refused.Reason != messages.NoReason {
				return refused
			}
		}
		responses = append(responses, messages.TakeList(set.list))
	}
	out.Responses = messages.TakeList(responses)
	return Refusal{}
}
