// Package schedule decides which endpoints serve a request: it runs the profiles of a plan over the candidates. It
// defines the interfaces of the plugins. It reads time and reports only through Clock and Observer, and never sends a
// message.
package schedule

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/messages"
)

// Input is what a plugin may look at. It can change none of it, and must not keep it.
type Input struct {
	request    *messages.Request
	profile    string
	earlier    []Result
	candidates Candidates
	rand       *rand.Rand

	run    *profileRun
	values []any // of Private slots; nil in shadow profiles
	now    time.Time

	outcome int // how the plugin that runs decided, counted from 1; 0 = it has not said so
}

// Decided says how the plugin that runs decided: the place of the outcome among those that it tells.
func (in *Input) Decided(outcome int) { in.outcome = outcome + 1 }

// Ceiling returns how full an endpoint may be for the request, as a share of its capacity: above 0, at most 1. Without
// a Gate it is 1.
func (in *Input) Ceiling() float64 {
	if in.run == nil {
		return 1
	}
	return cmp.Or(in.run.ceiling, 1)
}

// Outcome returns what Decided was told last; false = nothing. It is for tests of plugins.
func (in *Input) Outcome() (outcome int, told bool) { return in.outcome - 1, in.outcome > 0 }

// NewInput returns an input that shows random numbers alone, for tests of pickers.
func NewInput(of *rand.Rand) *Input { return &Input{rand: of} }

// Request returns the request, without its headers.
func (in *Input) Request() Request { return Request{in.request} }

// Profile returns the name of the profile that runs; "" = none does.
func (in *Input) Profile() string { return in.profile }

// Earlier returns the results of the profiles that ran before for this request.
func (in *Input) Earlier() messages.List[Result] { return messages.TakeList(in.earlier) }

// Candidates returns the endpoints that are left, of which there is at least one.
func (in *Input) Candidates() Candidates { return in.candidates }

// Now returns when the request is scheduled.
func (in *Input) Now() time.Time { return in.now }

// Rand returns the loop's source of random numbers, which is seeded, so that a run can be repeated.
func (in *Input) Rand() *rand.Rand { return in.rand }

// Numbers returns an attribute that the plugin has declared.
func (in *Input) Numbers(of attributes.NumberSlot) Numbers {
	return Numbers{in.run.numbers(of.Index())}
}

// Outdated reports whether the answer that has a sampled attribute of candidate i is older than threshold and than
// three intervals of its source, or there is none.
func (in *Input) Outdated(of attributes.NumberSlot, i int, threshold time.Duration) bool {
	return in.now.After(in.run.view.freshUntil(of.Index(), in.candidates.place[i], threshold))
}

// Awaited reports whether the first answer that will have a sampled attribute of candidate i is still to come: the
// source asks the endpoint, and has neither been answered nor failed.
func (in *Input) Awaited(of attributes.NumberSlot, i int) bool {
	return in.run.view.awaited(of.Index(), in.candidates.place[i])
}

// Window returns how much load candidate i takes, as was learned. The plugin has declared an attribute of the window.
func (in *Input) Window(i int) endpoints.Room {
	return in.run.view.windows[in.candidates.place[i]]
}

// Backlog returns how many tokens of prompts candidate i is likely to have to compute before first tokens.
func (in *Input) Backlog(i int) int {
	return in.run.view.sources[in.candidates.place[i]].Backlog(in.now)
}

// Waiting reports whether candidate i has room for one request more where so many may wait, by its newest metrics page
// and by what was sent and has ended since; while its first page is to come, all that was sent waits. known is false if
// that page does not say how many wait, or there is none.
func (in *Input) Waiting(i, most int) (room, known bool) {
	v, at := in.run.view, in.candidates.place[i]
	if sample := v.known[at].sample; sample == nil && !v.awaits(metricsPage, at) ||
		sample != nil && !sample.Places.Known {
		return false, false
	}
	bound, some := v.sources[at].Bound(endpoints.Room{Waiting: most})
	return some && v.load[at].Inflight < bound.Requests, true
}

// Picked returns the endpoint that an earlier run ranked first; false = it picked nothing.
func (in *Input) Picked(r *Result) (Candidate, bool) {
	if r.Ranked.Len() == 0 {
		return Candidate{}, false
	}
	return Candidate{&in.run.view.all[r.Ranked.At(0)]}, true
}

// Memory returns what plugins have kept of earlier requests. A plugin reads its own with the Sessions or Uses that it
// has declared.
func (in *Input) Memory() memory.View { return in.run.tools.Memory.At(in.now) }

// Header returns the value of a header that the plugin has declared, cut to 128 bytes; false = the request does not
// have it.
func (in *Input) Header(of attributes.HeaderSlot) (string, bool) { return header(in.request, of) }

func header(r *messages.Request, of attributes.HeaderSlot) (string, bool) {
	if r.Headers.Len() == 0 {
		return "", false
	}
	value := r.Headers.At(of.Index())
	return value.Text, value.Given
}

// Names returns an attribute that the plugin has declared.
func (in *Input) Names(of attributes.NamesSlot) Names { return Names{in.run.names(of.Index())} }

// Request is a request as plugins see it.
type Request struct{ of *messages.Request }

// ID returns the id that Signalbox gave the request.
func (r Request) ID() messages.RequestID { return r.of.ID }

// ClientID returns the id that the client gave the request, cut to 128 bytes; "" = none.
func (r Request) ClientID() string { return r.of.ClientID }

// Path returns the path without query, cut to 128 bytes.
func (r Request) Path() string { return r.of.Path }

// Model returns the model that is to serve; "" = the request names none, or was not read.
func (r Request) Model() string { return r.of.Model }

// Priority returns the priority of the request's objective: higher goes first, negative may be refused.
func (r Request) Priority() int { return r.of.Priority }

// Objective returns the name of the request's objective, cut to 128 bytes; "" = its client names none.
func (r Request) Objective() string { return r.of.Objective }

// FairnessID returns the id of the request's flow, cut to 128 bytes; messages.DefaultFairness = none was given.
func (r Request) FairnessID() string { return r.of.Fairness }

// Agent returns the client's user-agent, cut to 128 bytes; "" = none.
func (r Request) Agent() string { return r.of.Agent }

// TTFT returns within which time the client wants the first token; 0 = it did not say.
func (r Request) TTFT() time.Duration { return r.of.TTFT }

// TPOT returns how long an output token is to take at most, as the client wants it; 0 = it did not say.
func (r Request) TPOT() time.Duration { return r.of.TPOT }

// API returns the format of the body; messages.UnknownAPI = it was not read.
func (r Request) API() messages.API { return r.of.Form.API }

// Stream reports whether the answer will be server-sent events.
func (r Request) Stream() bool { return r.of.Stream }

// Visible reports whether the body of the answer will be seen.
func (r Request) Visible() bool { return r.of.Visible }

// BodyBytes returns the size of the body; 0 = there is none.
func (r Request) BodyBytes() int64 { return r.of.BodyBytes }

// PromptTokens returns an estimate, 4 bytes a token; 0 = unknown.
func (r Request) PromptTokens() int { return r.of.PromptTokens }

// PromptBlocks returns how many blocks the prompt has, in the measure of the attribute prefix-blocks.
func (r Request) PromptBlocks() int { return r.of.Blocks.Len() }

// Blocks returns the hashes of the prompt's blocks, the first block first, up to the answer to Envoy; then there are
// none. Each hash is of the block and all before it, so that two prompts of one Model and Salt begin alike up to the
// last block whose hashes are equal. They are of the content alone, and the same in every process.
func (r Request) Blocks() messages.List[uint64] { return r.of.Blocks }

// Salt returns the cache_salt of the body, which sets prompts apart that are alike; "" = there is none.
func (r Request) Salt() string { return r.of.Salt }

// Media returns the number of images, sounds and files in the messages.
func (r Request) Media() int { return r.of.Media }

// Items returns the media, each once, at most 64; empty = there are none, or no plugin reads what an
// mm-embeddings-cache-producer emits.
func (r Request) Items() messages.List[messages.Medium] { return r.of.Items }

// Hints returns what a chat completion says of the length of its answer.
func (r Request) Hints() messages.OutputHints { return r.of.Hints }

// OutputTokens returns the client's limit; 0 = it set none.
func (r Request) OutputTokens() int { return r.of.OutputTokens }

// Private is a slot for a value that a plugin keeps of a request from one point to a later one. No other plugin can
// reach it. The zero Private holds nothing.
type Private[T any] struct{ after int }

// NewPrivate declares a private slot. A plugin calls it in Declare.
func NewPrivate[T any](r *attributes.Reader) Private[T] { return Private[T]{r.Private() + 1} }

// Holder is what plugins are shown of a request, in which the values of private slots are.
type Holder interface{ private() []any }

func (in *Input) private() []any { return in.values }
func (c *Course) private() []any { return c.values }
func (b *Begun) private() []any  { return b.values }
func (e *Ended) private() []any  { return e.values }

// Set keeps a value. In a shadow profile, which leaves nothing behind, it does nothing.
func (p Private[T]) Set(of Holder, value T) {
	if values := of.private(); p.after > 0 && p.after <= len(values) {
		values[p.after-1] = value
	}
}

// Get returns the value that was set for the request; false = none was.
func (p Private[T]) Get(of Holder) (value T, ok bool) {
	if values := of.private(); p.after > 0 && p.after <= len(values) {
		value, ok = values[p.after-1].(T)
	}
	return value, ok
}

// Filter says which candidates stay.
type Filter interface {
	// Filter sets keep[i] to false for each candidate i that goes. All of keep is true at first. If no candidate stays,
	// that is no error of the filter: the request is refused. Filters are called once in each run of a profile, in the
	// order of the configuration, each with what the ones before left. Once nothing is left, no further one is called.
	Filter(in *Input, keep []bool)
}

// Outcomes are the ways in which a plugin can decide, which a counter tells apart. A plugin counts nothing itself: it
// says by Input.Decided how it decided, and whoever observes the plan counts.
type Outcomes struct {
	Metric string // of the counter, without the prefix that all metrics of the reference have
	Help   string // of the counter
	Names  []string
}

// DecisionTeller is a Filter that says how it decided. The name of the plugin and the outcome are the labels of its
// counter.
type DecisionTeller interface {
	Filter

	// Outcomes returns the same for each plugin of a type. It is called when a plan is observed.
	Outcomes() Outcomes
}

// Scorer gives each candidate a score.
type Scorer interface {
	// Score sets scores[i] to the score of candidate i, from 0 to 1, 1 the best. All of scores is 0 at first. The
	// profile multiplies each score by the scorer's weight and adds the products up. A score outside of [0,1] is
	// clamped, NaN is taken as 0, and both are counted. Score must not allocate for each candidate, keep memory between
	// requests, or read a clock. Scorers are called once in each run of a profile, after all filters, if any candidate
	// is left.
	Score(in *Input, scores []float32)
}

// Picker orders the candidates.
type Picker interface {
	// Pick appends the indexes of the picked candidates to ranked, best first, and returns it. totals[i] is the
	// weighted sum of the scores of candidate i. The picker is called once in each run of a profile, last, if any
	// candidate is left. If it picks nothing, or returns an index twice or out of range, the request is answered 500.
	Pick(in *Input, totals []float32, ranked []int) []int
}

// Detector says how full the pool is. A plan has one at most, which decides over requests of negative priority: they
// are refused while the pool is saturated.
type Detector interface {
	// Saturation returns how full the candidates are together; 1 = saturated, more is fuller. It is called once for
	// each request of negative priority, with every endpoint that the request may go to. Samples may be of any age:
	// Input.Outdated says of which.
	Saturation(in *Input) float64
}

// Combined is a Detector that is made of others, which its parameters name.
type Combined interface {
	Detector

	// Combine keeps the others. find returns the detector of a name that a parameter has; nil = there is none, which
	// find reports as a problem of that parameter. Combine is called once, after the parameters were decoded, and
	// before Declare.
	Combine(find func(parameter, name string) Detector)

	// Parts returns the others.
	Parts() []Part
}

// Part is one of the detectors that a Combined one is made of.
type Part struct {
	Name string // of the plugin
	Detector
	Stages []string // prefill, decode: for whose servers it counts; empty = for all
}

// SampleReader is a Detector that goes by what servers report.
type SampleReader interface {
	Detector

	// Unknown returns how many candidates it cannot tell about, because no answer of theirs is fresh.
	Unknown(in *Input) int
}

// Gate is a Detector that also says which endpoints have room. A plan whose requests may have to wait has one, which is
// asked before the filters of each profile.
type Gate interface {
	Detector

	// Room sets keep[i] to false for each candidate that has no room for one request more: that is as full as
	// Input.Ceiling allows, or fuller. A candidate that has room for one ceiling has room for any higher one.
	Room(in *Input, keep []bool)

	// Bounds returns what the load of an endpoint never exceeds with a request that has this ceiling, however many
	// requests are picked for at once. An endpoint without load has room, however low the ceiling is.
	Bounds(ceiling float64) endpoints.Room
}

// Pricing is a Gate that leaves full endpoints to the scorers, as far as their bounds are learned. A request for which
// one of those is picked waits for that endpoint, because it costs the least there all the same.
type Pricing interface {
	Gate

	// Exclude is asked in place of Room: it sets keep[i] to false for each candidate without room that no request waits
	// for by itself. Bounds hold for the others.
	Exclude(in *Input, keep []bool)
}

// poolGate makes a gate of a detector that only knows how full all endpoints are together.
type poolGate struct{ Detector }

func (g poolGate) Room(in *Input, keep []bool) {
	if g.Saturation(in) >= in.Ceiling() {
		clear(keep)
	}
}

func (poolGate) Bounds(float64) endpoints.Room { return endpoints.Room{} }

// Refusal is why a request is not served. The zero Refusal refuses nothing. Reason is one of InvalidRequest (400),
// NoCapacity (429) and NoEndpoints (503); another one is a fault of the plugin, and answered 500.
type Refusal struct {
	Reason     messages.Reason
	Detail     string        // for the client, one clause; "" = the reason is enough
	RetryAfter time.Duration // 0 = do not say
}

// may reports whether a plugin may refuse for this reason.
func (r Refusal) may() bool {
	return slices.Contains([]messages.Reason{
		messages.InvalidRequest, messages.NoCapacity, messages.NoEndpoints,
	}, r.Reason)
}

// BodyUser is a plugin for which it matters whether the bodies of responses are visible. In the light lane they bypass
// Signalbox.
type BodyUser interface {
	// WithoutBody says what the plugin, with its parameters, cannot do or does otherwise for a response whose body
	// bypasses; "" = nothing. It is called after Arrange.
	WithoutBody() string
}

// Referrer is a plugin that takes something from other plugins of the configuration, which its parameters name.
type Referrer interface {
	// Refer finds the others. plugin returns the one that a parameter names; nil = there is none, which is a problem of
	// that parameter already. Refer is called once, after the parameters of all plugins were decoded, and before
	// Declare. It returns what is wrong as Validate does.
	Refer(plugin func(parameter, name string) any) error
}

// Reader is a plugin that reads attributes of endpoints, or headers of requests.
type Reader interface {
	// Declare asks for the slots of the attributes and headers that the plugin reads, and keeps them. It is called
	// once, after the parameters were decoded and before the plugin runs. What no plugin declares is not gathered.
	Declare(r *attributes.Reader)
}
