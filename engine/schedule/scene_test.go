package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

var now = time.Unix(1_800_000_000, 0)

// scene is a pool of n endpoints with fresh samples, and a plan of one profile that ranks by total. A test that changes
// the profiles, the handler or the threshold sets plan to nil, so that the next run makes another one.
type scene struct {
	*testing.T
	snap      *endpoints.Snapshot
	binding   attributes.Binding
	profiles  []schedule.Profile
	handler   schedule.Handler
	stale     time.Duration
	plan      *schedule.Plan
	tools     schedule.Tools
	scheduler *schedule.Scheduler
	counts    counts
	req       messages.Request
}

func newScene(t *testing.T, n int) *scene {
	s := &scene{T: t, req: messages.Request{ID: 1, Model: "m"}}
	es := make([]*endpoints.Endpoint, n)
	for i := range es {
		es[i] = endpoints.New(messages.EndpointID{Slot: uint32(i), Generation: 1},
			messages.EndpointSpec{Address: address(i)})
		endpoints.SampleWriter{Endpoint: es[i]}.Publish(&endpoints.Sample{At: now, Interval: time.Second,
			Values: endpointstest.Load(i, 0, 0)})
	}
	s.snap = endpoints.NewSnapshot(5, es)
	s.binding.Emit("built in", attributes.BuiltIn()...)
	s.handler, s.stale = once{}, 5*time.Second
	s.profiles = []schedule.Profile{{Name: "default", Picker: picker("best", byTotal)}}
	s.tools = schedule.Tools{Clock: &ticks{}, Rand: rand.New(rand.NewPCG(1, 2))}
	s.scheduler = schedule.NewScheduler(s.tools)
	return s
}

func address(i int) messages.Address { return messages.Address(fmt.Sprintf("10.0.0.%d:80", i)) }

func (s *scene) run() schedule.Outcome { return s.scheduler.Run(s.planned(), &s.req, nil, s.snap, now) }

func (s *scene) planned() *schedule.Plan {
	if s.plan == nil {
		layout, faults := s.binding.Layout()
		if len(faults) > 0 {
			s.Fatal(faults)
		}
		s.plan = schedule.NewPlan(s.profiles, layout, s.handler, s.stale)
		s.plan.Observe(&s.counts)
	}
	return s.plan
}

func (s *scene) filter(name string, f filterFunc) {
	p := &s.profiles[0]
	step := schedule.Step{Name: name, Meter: len(p.Filters)}
	p.Filters, s.plan = append(p.Filters, schedule.FilterStep{Step: step, Filter: f}), nil
}

// reads returns the slots of attributes.
func (s *scene) reads(all ...attributes.Attribute) []attributes.Slot {
	r := s.binding.Reader("test")
	for _, a := range all {
		if a.Type == attributes.Names {
			r.Names(a.Name, "")
		} else {
			r.Number(a.Name, "")
		}
	}
	return r.Slots()
}

// number returns the slot of one number.
func (s *scene) number(a attributes.Attribute) attributes.NumberSlot {
	return s.binding.Reader("test").Number(a.Name, "")
}

func (s *scene) scorer(name string, weight float32, reads []attributes.Slot, f scoreFunc) {
	p := &s.profiles[0]
	step := schedule.Step{Name: name, Meter: 10 + len(p.Scorers), Reads: reads}
	p.Scorers, s.plan = append(p.Scorers, schedule.ScorerStep{Step: step, Scorer: f, Weight: weight}), nil
}

// ranked checks what was picked, best first, by place in the snapshot.
func (s *scene) ranked(out schedule.Outcome, want ...int) {
	s.Helper()
	if out.Reason != messages.NoReason || len(out.Ranked) != len(want) {
		s.Fatalf("%v %q with %d ranked, want %v", out.Reason, out.Detail, len(out.Ranked), want)
	}
	for i, w := range want {
		if out.Ranked[i] != s.snap.Endpoints[w] {
			s.Errorf("place %d is %v, want endpoint %d", i, out.Ranked[i].ID, w)
		}
	}
}

func (s *scene) failed(out schedule.Outcome, why messages.Reason, detail string) {
	s.Helper()
	if out.Reason != why || out.Detail != detail || out.Ranked != nil {
		s.Errorf("%v %q with %v, want %v %q and none", out.Reason, out.Detail, out.Ranked, why, detail)
	}
}

func picker(name string, f pickFunc) schedule.PickerStep {
	return schedule.PickerStep{Step: schedule.Step{Name: name, Meter: 20}, Picker: f}
}

// byTotal ranks all, stably.
func byTotal(_ *schedule.Input, totals []float32, ranked []int) []int {
	for i := range totals {
		at := len(ranked)
		ranked = append(ranked, i)
		for ; at > 0 && totals[ranked[at-1]] < totals[i]; at-- {
			ranked[at] = ranked[at-1]
		}
		ranked[at] = i
	}
	return ranked
}

func fixed(values ...float32) scoreFunc {
	return func(_ *schedule.Input, scores []float32) { copy(scores, values) }
}

func only(places ...int) filterFunc {
	return func(in *schedule.Input, keep []bool) {
		for i := range in.Candidates().Len() {
			keep[i] = false
			for _, p := range places {
				keep[i] = keep[i] || in.Candidates().At(i).Address() == address(p)
			}
		}
	}
}

type (
	filterFunc func(*schedule.Input, []bool)
	scoreFunc  func(*schedule.Input, []float32)
	pickFunc   func(*schedule.Input, []float32, []int) []int
	matchFunc  func(blockindex.Prompt, []int) int
)

func (f filterFunc) Filter(in *schedule.Input, keep []bool)    { f(in, keep) }
func (f scoreFunc) Score(in *schedule.Input, scores []float32) { f(in, scores) }
func (f pickFunc) Pick(in *schedule.Input, totals []float32, ranked []int) []int {
	return f(in, totals, ranked)
}
func (f matchFunc) Homes(p blockindex.Prompt, out []int) int { return f(p, out) }

func (f matchFunc) Credit(_ blockindex.Prompt, _ uint32, home int) int { return home }

type once struct{}

func (once) Next(c *schedule.Course) schedule.Run { return schedule.Run{Profile: -c.Results().Len()} }

func (once) Primary(*schedule.Course) int { return 0 }

// ticks is a clock on which every plugin takes one nanosecond.
type ticks struct{ n int64 }

func (t *ticks) Nanos() int64 { t.n++; return t.n }

// counts is what the observer was told: how often each step ran, was clamped or gave NaN.
type counts struct {
	ran, clamped, nan [32]int
	stale             int
	failed            []string // optional runs, and those of shadows
	shadows           []string // profile, and whether it agrees
	decided           []string // step and outcome
}

func (c *counts) PluginDecided(meter, outcome int) {
	c.decided = append(c.decided, fmt.Sprint(meter, " ", outcome))
}

func (c *counts) PluginRan(meter int, took time.Duration) { c.ran[meter] += int(took) }
func (c *counts) ScoreClamped(meter int)                  { c.clamped[meter]++ }
func (c *counts) ScoreNaN(meter int)                      { c.nan[meter]++ }
func (c *counts) AllStale()                               { c.stale++ }

func (c *counts) RunFailed(profile string, why messages.Reason) {
	c.failed = append(c.failed, profile+": "+why.String())
}

func (c *counts) ShadowPicked(profile string, agrees bool) {
	c.shadows = append(c.shadows, fmt.Sprint(profile, " ", agrees))
}
