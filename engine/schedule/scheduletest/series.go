package scheduletest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// Series schedules requests one after the other with one plugin, which may keep something of each.
type Series struct {
	*testing.T
	Tables   *memory.Tables // what the plugin keeps
	Now      time.Time      // when the next request is scheduled
	Profiles []Profile      // their Ranks may change from request to request
	Ties     *rand.Rand     // draws between equal totals; nil = the least slot wins

	reads     map[string]attributes.NumberSlot // what the plugin emits
	handler   *handling
	plan      *schedule.Plan
	scheduler *schedule.Scheduler
	held      matches
}

// NewSeries returns a series in which the plugin filters and scores in each of the profiles, and serves points. All
// profiles run, and the first one serves. Each picks the best total among its Ranks, and Ties draws between several.
func NewSeries(t *testing.T, plugin any, profiles ...Profile) *Series {
	t.Helper()
	s := &Series{T: t, Tables: memory.NewTables(), Now: began, Profiles: profiles}
	s.reads = map[string]attributes.NumberSlot{}
	layout, slots := bindWith(t, s.reads, plugin)
	list := make([]schedule.Profile, 0, len(profiles))
	for i := range profiles {
		of := schedule.Profile{
			Name:    profiles[i].Name,
			Filters: []schedule.FilterStep{{Step: schedule.Step{Name: "ranks"}, Filter: &profiles[i]}},
			Picker:  schedule.PickerStep{Picker: best{s}},
		}
		if f, ok := plugin.(schedule.Filter); ok {
			of.Filters = append(of.Filters, schedule.FilterStep{Step: schedule.Step{Reads: slots}, Filter: f})
		}
		if sc, ok := plugin.(schedule.Scorer); ok {
			of.Scorers = []schedule.ScorerStep{{Step: schedule.Step{Reads: slots}, Scorer: sc, Weight: 1}}
		}
		list = append(list, of)
	}
	s.handler = &handling{everyone{}}
	s.plan = schedule.NewPlan(list, layout, s.handler, time.Second)
	s.plan.Serve(schedule.PointStep{Step: schedule.Step{Name: "plugin", Reads: slots}, Plugin: plugin})
	s.scheduler = schedule.NewScheduler(schedule.Tools{
		Clock: stopped{}, Matcher: s, Memory: s.Tables, Rand: rand.New(rand.NewPCG(1, 2)),
	})
	return s
}

// Handle has another handler schedule the requests that follow, which is made of the one before.
func (s *Series) Handle(by func(schedule.Handler) schedule.Handler) {
	s.handler.Handler = by(everyone{})
}

// Observe has an observer hear of the requests that follow.
func (s *Series) Observe(by schedule.Observer) { s.plan.Observe(by) }

// Deaf is an observer that keeps nothing, for those that keep some of what they are told.
type Deaf struct{}

// PluginRan keeps nothing, as the other methods.
func (Deaf) PluginRan(int, time.Duration)      {}
func (Deaf) PluginDecided(int, int)            {}
func (Deaf) ScoreClamped(int)                  {}
func (Deaf) ScoreNaN(int)                      {}
func (Deaf) AllStale()                         {}
func (Deaf) RunFailed(string, messages.Reason) {}
func (Deaf) ShadowPicked(string, bool)         {}

// First tells the plugin that the first token of a request came from its pick, after a time.
func (s *Series) First(out *schedule.Outcome, took time.Duration) {
	for _, kept := range s.scheduler.FirstToken(s.plan, out.Ranked[0].ID, took, out.Values).All() {
		s.Tables.Keep(kept, 1, s.Now)
	}
}

// End tells the plugin how a request ended.
func (s *Series) End(req *messages.Request, out *schedule.Outcome, record *messages.Record) {
	for _, kept := range s.scheduler.End(s.plan, req, record, out.Values).All() {
		s.Tables.Keep(kept, 1, s.Now)
	}
}

// Produced schedules a request, and returns what the plugin emits of each endpoint by the name of the attribute.
func (s *Series) Produced(req *messages.Request, name string, all ...Endpoint) (values []float64) {
	s.Helper()
	slot := s.reads[name]
	s.Look(req, func(in *schedule.Input) {
		for i := range in.Candidates().Len() {
			values = append(values, in.Numbers(slot).At(i))
		}
	}, all...)
	return values
}

// Allocs returns how many allocations it takes to schedule a request, once that has been done before.
func (s *Series) Allocs(req *messages.Request, all ...Endpoint) float64 {
	snap, held := pool(s.Now, all)
	s.held = held
	return testing.AllocsPerRun(100, func() { s.scheduler.Run(s.plan, req, nil, snap, s.Now) })
}

// Pick schedules a request, and has the tables keep what the plugin does.
func (s *Series) Pick(req *messages.Request, all ...Endpoint) schedule.Outcome {
	s.Helper()
	snap, held := pool(s.Now, all)
	s.held = held
	out := s.scheduler.Run(s.plan, req, nil, snap, s.Now)
	s.scheduler.Prepare(s.plan, req, &out)
	if out.Reason != messages.NoReason {
		s.Fatalf("%v: %s", out.Reason, out.Detail)
	}
	for _, kept := range out.Kept.All() {
		s.Tables.Keep(kept, 1, s.Now)
	}
	return out
}

// Look calls look with what the plugin is shown of a request before it scores.
func (s *Series) Look(req *messages.Request, look func(*schedule.Input), all ...Endpoint) {
	s.Helper()
	filter := &s.plan.Profiles()[0].Filters[0].Filter
	before := *filter
	*filter = lookingFilter{look}
	s.Pick(req, all...)
	*filter = before
}

type lookingFilter struct{ look func(*schedule.Input) }

func (f lookingFilter) Filter(in *schedule.Input, _ []bool) { f.look(in) }

// Homes is what the endpoints of the request in hand hold of its prompt.
func (s *Series) Homes(p blockindex.Prompt, out []int) int { return s.held.Homes(p, out) }

// Credit is all of it.
func (s *Series) Credit(_ blockindex.Prompt, _ uint32, home int) int { return home }

type best struct{ of *Series }

func (b best) Pick(_ *schedule.Input, totals []float32, ranked []int) []int {
	top, equal := 0, 0
	for i, total := range totals {
		switch {
		case i == 0, total > totals[top]:
			top, equal = i, 1
		case total == totals[top] && b.of.Ties != nil:
			if equal++; b.of.Ties.IntN(equal) == 0 {
				top = i
			}
		}
	}
	return append(ranked, top)
}

// handling is a handler that can be replaced by another one.
type handling struct{ schedule.Handler }

func (h *handling) Finish(c *schedule.Course, f *schedule.Final) {
	if last, ok := h.Handler.(schedule.Finisher); ok {
		last.Finish(c, f)
	}
}

// everyone runs every profile.
type everyone struct{}

func (everyone) Next(c *schedule.Course) schedule.Run {
	if n := c.Results().Len(); n < c.Profiles().Len() {
		return schedule.Run{Profile: n}
	}
	return schedule.Run{Profile: -1}
}

func (everyone) Primary(*schedule.Course) int { return 0 }
