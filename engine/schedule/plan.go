package schedule

import (
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// Plan is the part of a configuration that decides picks. All loops share it, and it does not change once one of them
// has it.
type Plan struct {
	profiles []Profile // shadows last
	names    []string  // of those that a handler may run: the first ones of profiles
	handler  Handler
	finisher Finisher      // handler, if it is one; else nil
	instance HandlerLabels // of handler
	points   points
	stale    time.Duration

	prefixes   messages.PrefixSizes
	mostPrefix int // blocks of a prompt that count; 0 = all

	fills    *fills
	observer Observer // of its steps
	output   func(Request) int
}

// NewPlan returns a plan, which takes profiles over and orders them: shadows come last. layout has the attributes that
// the plugins have declared; nil = none. A sample is stale once it is older than the duration stale and than three of
// its intervals.
func NewPlan(profiles []Profile, layout *attributes.Layout, handler Handler, stale time.Duration) *Plan {
	if layout == nil {
		layout = new(attributes.Layout)
	}
	plan := &Plan{profiles: profiles, handler: handler, stale: stale, fills: newFills(layout), observer: unheard{}}
	plan.finisher, _ = handler.(Finisher)
	slices.SortStableFunc(profiles, func(a, b Profile) int {
		switch {
		case a.Shadow == b.Shadow:
			return 0
		case a.Shadow:
			return 1
		}
		return -1
	})
	for i := range profiles {
		p := &profiles[i]
		if !p.Shadow {
			plan.names = append(plan.names, p.Name)
		}
		p.sources, p.shown, p.matches = 0, 0, false
		p.note(layout)
		for j := range p.Filters {
			p.Filters[j].sources = plan.fills.sources(p.Filters[j].Reads)
			p.shown |= p.Filters[j].sources
		}
		for j := range p.Scorers {
			p.Scorers[j].sources = plan.fills.sources(p.Scorers[j].Reads)
			p.sources |= p.Scorers[j].sources
			p.matches = p.matches || plan.fills.match(p.Scorers[j].Reads)
		}
		p.shown |= p.sources
	}
	return plan
}

// Layout returns the attributes that the plugins of all profiles read.
func (p *Plan) Layout() *attributes.Layout { return p.fills.layout }

// Profiles returns the plan's own list. Before the plan runs, its owner may number the meters in it, or wrap plugins.
func (p *Plan) Profiles() []Profile { return p.profiles }

// Observe sets what hears of the plan's steps, by the meters that they have; nothing does without it. The owner of the
// plan calls it before the plan runs.
func (p *Plan) Observe(by Observer) { p.observer = by }

// CountOutput has the tokens that are expected in answers be part of the load. It is called before the plan runs.
func (p *Plan) CountOutput(estimate func(Request) int) { p.output = estimate }

// Work returns what a request adds to the load of an endpoint that holds so many tokens of its prompt: those that are
// to be computed, and those that are expected in its answer if the plan counts them. Where the prefix index was asked,
// a part of a block counts as a block, as in the reference; cached -1 = it was not.
func (p *Plan) Work(of *messages.Request, cached int) endpoints.Work {
	w := endpoints.Work{Prompt: of.PromptTokens}
	if cached >= 0 {
		const block = blockindex.BlockTokens
		w.Prompt = max((of.PromptTokens+block-1)/block*block-cached, 0)
	}
	if p.output != nil {
		w.Output = p.output(Request{of})
	}
	return w
}

// Detect has a Detector decide over requests of negative priority. It is called before the plan runs, and before it is
// observed.
func (p *Plan) Detect(by Detector, step Step) {
	p.points.detector = point[Detector]{Step: step, plugin: by}
}

// Detector returns the step of the plan's Detector, which Detect or HaveWait has set; without a type = there is none.
func (p *Plan) Detector() Step {
	if p.Gated() {
		return p.points.gate.Step
	}
	return p.points.detector.Step
}

// HaveWait has requests wait that find no room, as the detector says. It is called before the plan runs, and before it
// is observed.
func (p *Plan) HaveWait(by Detector, step Step) {
	gate, ok := by.(Gate)
	if !ok {
		gate = poolGate{by}
	}
	p.points.gate = point[Gate]{Step: step, plugin: gate}
}

// Gated reports whether requests wait that find no room.
func (p *Plan) Gated() bool { return p.points.gate.plugin != nil }

// KeepPrefixes sets how much of prompts the prefix index keeps, and how many blocks of one prompt count at most; 0 =
// all that are hashed. It is called before the plan runs.
func (p *Plan) KeepPrefixes(sizes messages.PrefixSizes, most int) {
	p.prefixes, p.mostPrefix = sizes, most
}

// Prefixes returns how much of prompts the prefix index keeps.
func (p *Plan) Prefixes() messages.PrefixSizes { return p.prefixes }

// Counted returns the blocks of a prompt that count. What is less than a block at the end is one, as in the reference,
// unless the index follows caches, which keep whole blocks, or is not asked.
func (p *Plan) Counted(of *messages.Request) messages.List[uint64] {
	n := of.Blocks.Len()
	if of.Rest && (p.prefixes.Follows || len(p.fills.prompts.prefix) == 0) {
		n--
	}
	if p.mostPrefix > 0 {
		n = min(n, p.mostPrefix)
	}
	return of.Blocks.First(n)
}

// Bounds returns what the load of an endpoint never exceeds with a request that has this ceiling.
func (p *Plan) Bounds(ceiling float64) endpoints.Room {
	if !p.Gated() {
		return endpoints.Room{}
	}
	return p.points.gate.plugin.Bounds(ceiling)
}

// Learns reports whether plugins of the plan read what first tokens and pages show of endpoints.
func (p *Plan) Learns() bool { return p.Bounds(1).Learned || len(p.fills.prompts.rate) > 0 }

// Prices reports whether a request for which a full endpoint is picked waits for that one.
func (p *Plan) Prices() bool {
	pricing, ok := p.points.gate.plugin.(Pricing)
	return ok && pricing.Bounds(1).Learned
}

// TellSaturation has outcomes say how full the gate finds the endpoints. It is called before the plan runs.
func (p *Plan) TellSaturation() { p.points.saturation = true }

// TellsSaturation reports whether outcomes say how full the gate finds the endpoints.
func (p *Plan) TellsSaturation() bool { return p.points.saturation && p.Gated() }

// Handler returns the handler that chooses among the profiles; nil if the configuration is not complete.
func (p *Plan) Handler() Handler { return p.handler }

// HandlerLabels name an instance of a handler in metrics.
type HandlerLabels struct{ Type, Name string }

// LabelHandler sets how metrics name the handler; without it they have empty labels. The owner of the plan calls it
// before the plan runs.
func (p *Plan) LabelHandler(as HandlerLabels) { p.instance = as }

// HandlerLabels returns how metrics name the handler.
func (p *Plan) HandlerLabels() HandlerLabels { return p.instance }

// HasShadows reports whether Shadow has anything to run.
func (p *Plan) HasShadows() bool { return len(p.names) < len(p.profiles) }

// Stale returns the age from which a sample is stale, if that is more than three of its intervals.
func (p *Plan) Stale() time.Duration { return p.stale }

// Profile is a named set of filters, scorers and one picker.
type Profile struct {
	Name    string
	Shadow  bool // it runs after each pick, for comparison; no handler knows it
	Filters []FilterStep
	Scorers []ScorerStep
	Picker  PickerStep

	sources uint64                // that scorers read, as fills has them; NewPlan sets it, like those below
	shown   uint64                // those of filters, too
	matches bool                  // scorers read what endpoints hold of prompts
	read    []int                 // slots of the numbers that filters and scorers read
	reads   messages.List[string] // their attributes, and the terms of scores

	explained []explained
}

// note notes which numbers the plugins of a profile read, and of which terms scores come.
func (p *Profile) note(layout *attributes.Layout) {
	p.read = nil
	step := func(s *Step) {
		for _, of := range s.Reads {
			if of.Type == attributes.Number && !slices.Contains(p.read, of.Index) {
				p.read = append(p.read, of.Index)
			}
		}
	}
	for i := range p.Filters {
		step(&p.Filters[i].Step)
	}
	for i := range p.Scorers {
		step(&p.Scorers[i].Step)
	}
	names := make([]string, 0, len(p.read))
	for _, slot := range p.read {
		names = append(names, layout.Of(attributes.Number)[slot].Name)
	}
	p.explained = nil
	for i := range p.Scorers {
		if x, ok := p.Scorers[i].Scorer.(Explained); ok {
			terms := x.Terms()
			names, p.explained = append(names, terms...), append(p.explained, explained{x, len(terms)})
		}
	}
	p.reads = messages.TakeList(names)
}

// Step is what the plugins of a profile have in common.
type Step struct {
	Type  string // as in the configuration
	Name  string // of the instance
	Meter int    // the number by which the observer knows this step
	Media bool   // it is a MediaTeller that is asked; Plan.Serve sets it
	Reads []attributes.Slot
}

// FilterStep is a filter at its place in a profile.
type FilterStep struct {
	Step
	Filter Filter

	sources uint64 // that it reads, as fills has them; NewPlan sets it
}

// ScorerStep is a scorer with its weight.
type ScorerStep struct {
	Step
	Scorer Scorer
	Weight float32

	sources uint64 // that it reads, as fills has them; NewPlan sets it
}

// PickerStep is the picker of a profile.
type PickerStep struct {
	Step
	Picker Picker
	Most   func() int // returns how many endpoints it picks at most; nil = it does not say
}

// most returns how many destinations a pick may have of which the picker returned n.
func (p *PickerStep) most(n int) int {
	if p.Most == nil {
		return max(n, 1)
	}
	return p.Most()
}

// Clock times plugins. The loop supplies it.
type Clock interface {
	Nanos() int64 // monotonic
}

// Ceilings says how full endpoints may be.
type Ceilings interface {
	// Of returns it for requests of a priority, as a share of an endpoint's capacity: above 0, at most 1.
	Of(priority int) float64
}

// Observer is told how long the plugins of one plan take and what they do wrong. All loops call it. Its methods must
// not block.
type Observer interface {
	PluginRan(meter int, took time.Duration)
	PluginDecided(meter, outcome int) // of a DecisionTeller
	ScoreClamped(meter int)           // a score was out of [0,1]
	ScoreNaN(meter int)
	AllStale() // in a profile run whose scorers read samples
	// RunFailed is told of an optional run that picked nothing.
	RunFailed(profile string, why messages.Reason)
	// ShadowPicked is told whether a shadow profile picked the endpoint that the request goes to.
	ShadowPicked(profile string, agrees bool)
}

// MediaObserver is an Observer that also hears what each MediaTeller finds. Plan.Observe takes it as one.
type MediaObserver interface {
	Observer
	// MediaAsked is told how many media a request has.
	MediaAsked(meter int, n messages.MediaCounts)
	// MediaFound is told of each endpoint that the request could go to, how many of them it was sent before.
	MediaFound(meter int, at messages.EndpointID, found, of messages.MediaCounts)
}

// unheard is the observer of a plan that none observes.
type unheard struct{}

func (unheard) PluginRan(int, time.Duration) {}
func (unheard) PluginDecided(int, int)       {}
func (unheard) ScoreClamped(int)             {}
func (unheard) ScoreNaN(int)                 {}
func (unheard) AllStale()                    {}

func (unheard) RunFailed(string, messages.Reason) {}
func (unheard) ShadowPicked(string, bool)         {}

// Matcher finds where a prompt belongs.
type Matcher interface {
	// Homes sets out[slot] to the number of lead blocks that were placed at the endpoint in the slot, and returns the
	// largest. It may have lost some.
	Homes(p blockindex.Prompt, out []int) int
	// Credit returns how many of these lead blocks of a slot its endpoint is taken to hold.
	Credit(p blockindex.Prompt, slot uint32, home int) int
}
