// Package scheduletest shows endpoints to one plugin, or has one handler schedule a request, as a scheduler does.
//
// It owns nothing that decides: the plugin sees what a real scheduler makes of real endpoints.
package scheduletest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/window"
	"github.com/signalbox-epp/signalbox/messages"
)

// Endpoint is one endpoint that the plugin sees.
type Endpoint struct {
	Labels         map[string]string
	Sample         endpoints.Sample
	Age            time.Duration  // of the sample; 0 = it is fresh
	Unread         bool           // there is no sample
	Failing        bool           // the newest scrape failed
	Inflight       int            // requests
	InflightTokens int            // prompt tokens of these requests, together
	PromptRate     int            // tokens of prompts that it computes in a second, as was learned; 0 = nothing was
	PerRequest     time.Duration  // by which each request in flight delays others, as was learned
	Window         endpoints.Room // how much it takes, as was learned; zero = nothing was
	PickedSince    int            // further requests, which the queue of the sample does not have
	PrefixBlocks   int            // of the request
	Restarts       uint32         // incarnations before
	Outlier        *outlier.Status

	// Produced has attributes that plugins of other packages emit, by their name.
	Produced map[string]float64
}

// Show binds the plugin and calls look with an input that has these endpoints as candidates, in this order.
func Show(t *testing.T, plugin any, req *messages.Request, look func(*schedule.Input), all ...Endpoint) {
	t.Helper()
	layout, slots := bind(t, plugin)
	plan := schedule.NewPlan([]schedule.Profile{{
		Scorers: []schedule.ScorerStep{{Step: schedule.Step{Reads: slots}, Scorer: looker(look)}},
		Picker:  schedule.PickerStep{Picker: first{}},
	}}, layout, once{}, time.Second)
	plan.Serve(schedule.PointStep{Step: schedule.Step{Name: "producer"}, Plugin: producer(all)})
	if out := run(plan, req, all); out.Reason != messages.NoReason {
		t.Fatalf("%v: %s", out.Reason, out.Detail)
	}
}

// Decide returns what is noted of a pick by a scorer alone.
func Decide(t *testing.T, s schedule.Scorer, req *messages.Request, all ...Endpoint) messages.ProfileRun {
	t.Helper()
	layout, slots := bind(t, s)
	plan := schedule.NewPlan([]schedule.Profile{{
		Scorers: []schedule.ScorerStep{{Step: schedule.Step{Reads: slots}, Scorer: s, Weight: 1}},
		Picker:  schedule.PickerStep{Picker: first{}},
	}}, layout, once{}, time.Second)
	out := run(plan, req, all)
	if out.Reason != messages.NoReason {
		t.Fatalf("%v: %s", out.Reason, out.Detail)
	}
	return out.Decision.Profiles.At(0)
}

// Saturation returns how full a detector finds these endpoints.
func Saturation(t *testing.T, d schedule.Detector, all ...Endpoint) (full float64) {
	t.Helper()
	layout, slots := bind(t, d)
	plan := schedule.NewPlan([]schedule.Profile{{Picker: schedule.PickerStep{Picker: first{}}}}, layout, once{},
		time.Second)
	plan.Detect(detector(func(in *schedule.Input) float64 {
		full = d.Saturation(in)
		return 0
	}), schedule.Step{Reads: slots})
	req := Request()
	req.Priority = -1
	run(plan, req, all)
	return full
}

// Room returns which of these endpoints have room for a request that has a ceiling, as a gate says.
func Room(t *testing.T, g schedule.Gate, ceiling float64, all ...Endpoint) (kept []bool) {
	t.Helper()
	layout, slots := bind(t, g)
	plan := schedule.NewPlan([]schedule.Profile{{Picker: schedule.PickerStep{Picker: first{}}}}, layout, once{},
		time.Second)
	plan.HaveWait(looking{g, &kept}, schedule.Step{Reads: slots})
	snap, _ := pool(began, all)
	schedule.NewScheduler(schedule.Tools{
		Clock: stopped{}, Rand: rand.New(rand.NewPCG(1, 2)), Ceilings: fixed(ceiling),
	}).Run(plan, Request(), nil, snap, began)
	return kept
}

// producer emits what endpoints have as Produced.
type producer []Endpoint

func (producer) Emits() (names []string) {
	for _, a := range attributes.Shared() {
		names = append(names, a.Name)
	}
	return names
}

func (p producer) Produce(in *schedule.Input, out *schedule.Produced) {
	for number, name := range p.Emits() {
		for i := range in.Candidates().Len() {
			if value, known := p[i].Produced[name]; known {
				out.Set(number, i, value)
			}
		}
	}
}

// looking is a gate of which is noted what has room.
type looking struct {
	schedule.Gate
	kept *[]bool
}

func (g looking) Room(in *schedule.Input, keep []bool) {
	g.Gate.Room(in, keep)
	*g.kept = slices.Clone(keep)
}

type fixed float64

func (c fixed) Of(int) float64 { return float64(c) }

type detector func(*schedule.Input) float64

func (f detector) Saturation(in *schedule.Input) float64 { return f(in) }

// Profile is a profile that a handler may run. It leaves the endpoints of Ranks, and ranks them in this order.
type Profile struct {
	Name  string
	Ranks []int
}

// Request returns a request whose prompt has four blocks.
func Request() *messages.Request {
	return &messages.Request{
		ID: 1, PromptTokens: 4 * blockindex.BlockTokens, Blocks: messages.ListOf[uint64](1, 2, 3, 4),
	}
}

// Handled is a handler with the plugins that its parameters may name, and the profiles that it may run.
type Handled struct {
	schedule.Handler
	Deciders map[string]schedule.Decider
	Profiles []Profile
}

// Handle has a handler schedule a request.
func Handle(t *testing.T, h Handled, req *messages.Request, all ...Endpoint) schedule.Outcome {
	t.Helper()
	plugins, names := []any{h.Handler}, make([]string, 0, len(h.Profiles))
	list := make([]schedule.Profile, 0, len(h.Profiles))
	for _, p := range h.Profiles {
		names = append(names, p.Name)
		list = append(list, schedule.Profile{
			Name:    p.Name,
			Filters: []schedule.FilterStep{{Step: schedule.Step{Name: "ranks"}, Filter: p}},
			Picker:  schedule.PickerStep{Picker: p},
		})
	}
	if a, ok := h.Handler.(schedule.Arranger); ok {
		err := a.Arrange(names, func(_, name string) any {
			plugins = append(plugins, h.Deciders[name])
			return h.Deciders[name]
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	layout, _ := bind(t, plugins...)
	return run(schedule.NewPlan(list, layout, h.Handler, time.Second), req, all)
}

// Filter keeps the endpoints of Ranks.
func (p Profile) Filter(in *schedule.Input, keep []bool) {
	for i := range keep {
		keep[i] = slices.Contains(p.Ranks, int(in.Candidates().At(i).ID().Slot))
	}
}

// Pick ranks the candidates as Ranks has them.
func (p Profile) Pick(in *schedule.Input, _ []float32, ranked []int) []int {
	for _, slot := range p.Ranks {
		for i := range in.Candidates().Len() {
			if int(in.Candidates().At(i).ID().Slot) == slot {
				ranked = append(ranked, i)
			}
		}
	}
	return ranked
}

// began is when requests are scheduled.
var began = time.Unix(1_800_000_000, 0)

// run schedules a request over endpoints.
func run(plan *schedule.Plan, req *messages.Request, all []Endpoint) schedule.Outcome {
	snap, held := pool(began, all)
	s := schedule.NewScheduler(schedule.Tools{Clock: stopped{}, Matcher: held, Rand: rand.New(rand.NewPCG(1, 2))})
	return s.Run(plan, req, nil, snap, began)
}

// pool returns the endpoints as they are at a time, and what of the prompt they hold. The slot of an endpoint is its
// index.
func pool(now time.Time, all []Endpoint) (*endpoints.Snapshot, matches) {
	held := make(matches, len(all))
	list := make([]*endpoints.Endpoint, len(all))
	for i, e := range all {
		spec := messages.EndpointSpec{
			Address: messages.Address(fmt.Sprintf("10.0.0.%d:80", i)), Labels: messages.MapOf(e.Labels),
		}
		id := messages.EndpointID{Slot: uint32(i), Generation: 1 + e.Restarts}
		list[i], held[i] = endpoints.New(id, spec), e.PrefixBlocks
		e.Sample.At = now.Add(-e.Age)
		endpoints.OutlierWriter{Endpoint: list[i]}.SetOutlier(e.Outlier)
		w := endpoints.SampleWriter{Endpoint: list[i]}
		for range e.Inflight {
			endpoints.LoadWriter{Endpoint: list[i]}.Add(endpoints.Work{Prompt: e.InflightTokens / e.Inflight}, now)
		}
		if e.Window != (endpoints.Room{}) {
			endpoints.WindowWriter{Endpoint: list[i]}.SetWindow(e.Window)
		}
		pace := window.Pace{Rate: e.PromptRate, Marginal: e.PromptRate, PerRequest: e.PerRequest}
		endpoints.WindowWriter{Endpoint: list[i]}.SetPace(pace)
		number := w.BeginScrape() // the queue of the sample has all that is in flight
		if !e.Unread {
			e.Sample.Places = endpoints.Places{}.Next(e.Inflight, &e.Sample.Values)
			w.Publish(&e.Sample)
			w.SampleInForce(number)
		}
		if e.Failing {
			w.ScrapeFailed()
		}
		for range e.PickedSince {
			endpoints.LoadWriter{Endpoint: list[i]}.Add(endpoints.Work{Prompt: 0}, time.Time{})
		}
	}
	return endpoints.NewSnapshot(1, list), held
}

// bind has plugins declare what they read, of all that is built in, and of example.com/watts of an "extractor".
func bind(t *testing.T, plugins ...any) (*attributes.Layout, []attributes.Slot) {
	t.Helper()
	return bindWith(t, nil, plugins...)
}

// bindWith is bind, for plugins that emit attributes themselves. It notes in reads the slots in which those stand.
func bindWith(
	t *testing.T, reads map[string]attributes.NumberSlot, plugins ...any,
) (*attributes.Layout, []attributes.Slot) {
	t.Helper()
	var b attributes.Binding
	b.Emit("built in", attributes.BuiltIn()...)
	b.Emit("extractor", attributes.Attribute{Name: "example.com/watts"})
	b.Emit("producer", attributes.Shared()...)
	r := b.Reader("plugin")
	for _, plugin := range plugins {
		if p, ok := plugin.(schedule.Producer); ok && reads != nil {
			for _, name := range p.Emits() {
				b.Emit("plugin", attributes.Attribute{Name: name, Origin: attributes.Produced})
				reads[name] = b.Reader("test").Number(name, "plugin")
			}
		}
	}
	for _, plugin := range plugins {
		if p, ok := plugin.(schedule.Reader); ok {
			p.Declare(r)
		}
	}
	layout, faults := b.Layout()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return layout, r.Slots()
}

type looker func(*schedule.Input)

func (f looker) Score(in *schedule.Input, _ []float32) { f(in) }

type first struct{}

func (first) Pick(_ *schedule.Input, _ []float32, ranked []int) []int { return append(ranked, 0) }

type once struct{}

func (once) Next(c *schedule.Course) schedule.Run { return schedule.Run{Profile: -c.Results().Len()} }
func (once) Primary(*schedule.Course) int         { return 0 }

type stopped struct{}

func (stopped) Nanos() int64 { return 0 }

type matches []int

func (m matches) Homes(_ blockindex.Prompt, out []int) int { return copy(out, m) }

func (m matches) Credit(_ blockindex.Prompt, _ uint32, home int) int { return home }
