package chaos

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// careless is the chance of a fault of each plugin in one request.
const careless = .005

// dawdle is how long a slow plugin holds its loop, so that the inbox fills.
const dawdle = 4 * time.Millisecond

// slip says what a plugin of a family does wrong with a request: one of the list, or "".
func (f *faults) slip(family string, of schedule.Request, list ...string) string {
	n, ok := numberOf(of.ClientID())
	if !ok || f.off.Load() {
		return ""
	}
	dice := diceOf(f.seed, family, uint64(n))
	if dice.Float64() >= careless {
		return ""
	}
	what := list[dice.IntN(len(list))]
	f.met(family + " " + what)
	return what
}

// plan puts a faulty skin around one plugin of every family.
func (f *faults) plan(p *schedule.Plan) *schedule.Plan {
	profiles, points := p.Profiles(), []schedule.PointStep{}
	for i := range profiles {
		profile := &profiles[i]
		profile.Filters[0].Filter = filter{profile.Filters[0].Filter, f}
		at := slices.IndexFunc(profile.Scorers, func(s schedule.ScorerStep) bool { // asked whatever samples are worth
			return !slices.ContainsFunc(s.Reads, func(of attributes.Slot) bool {
				return p.Layout().At(of).Origin == attributes.Sampled
			})
		})
		for _, s := range profile.Scorers {
			if schedule.ServesPoint(s.Scorer) {
				points = append(points, schedule.PointStep{Step: s.Step, Plugin: s.Scorer})
			}
		}
		profile.Scorers[at].Scorer = scorer{profile.Scorers[at].Scorer, f}
		profile.Picker.Picker = picker{profile.Picker.Picker, f}
	}
	plan := schedule.NewPlan(profiles, p.Layout(), handler{p.Handler(), f}, p.Stale())
	plan.Serve(points...)
	return plan
}

type filter struct {
	real schedule.Filter
	*faults
}

func (p filter) Filter(in *schedule.Input, keep []bool) {
	p.real.Filter(in, keep)
	switch p.slip("filter", in.Request(), "panics", "keeps nothing") {
	case "panics":
		panic(fault{"filter"})
	case "keeps nothing":
		clear(keep)
	}
}

type scorer struct {
	schedule.Scorer
	*faults
}

func (p scorer) Score(in *schedule.Input, scores []float32) {
	p.Scorer.Score(in, scores)
	switch p.slip("scorer", in.Request(), "panics", "scores NaN", "dawdles", "dawdles") {
	case "panics":
		panic(fault{"scorer"})
	case "scores NaN":
		scores[0] = float32(math.NaN())
	case "dawdles":
		<-time.After(dawdle)
	}
}

type picker struct {
	schedule.Picker
	*faults
}

func (p picker) Pick(in *schedule.Input, totals []float32, ranked []int) []int {
	got := p.Picker.Pick(in, totals, ranked)
	switch p.slip("picker", in.Request(), "panics", "picks nothing", "picks out of range") {
	case "panics":
		panic(fault{"picker"})
	case "picks nothing":
		return got[:0]
	case "picks out of range":
		return append(got, len(totals))
	}
	return got
}

type handler struct {
	schedule.Handler
	*faults
}

func (p handler) Next(c *schedule.Course) schedule.Run {
	if c.Results().Len() == 0 && p.slip("handler", c.Request(), "panics") != "" {
		panic(fault{"handler"})
	}
	return p.Handler.Next(c)
}

// Finish splits some requests: another endpoint works for them before the destination does.
func (p handler) Finish(c *schedule.Course, f *schedule.Final) {
	if own, ok := p.Handler.(schedule.Finisher); ok {
		own.Finish(c, f)
		if len(f.Stages) > 0 {
			p.met("prompt read by another server")
		}
		return
	}
	n, ok := numberOf(c.Request().ClientID())
	if !ok || p.off.Load() {
		return
	}
	dice := diceOf(p.seed, "stages", uint64(n))
	if at := dice.IntN(c.Len()); at != f.Destinations[0].At && dice.IntN(4) == 0 {
		f.Stages = append(f.Stages, schedule.Stage{Run: f.Primary, At: at, Prompt: true})
		p.met("request split")
	}
}

// upTo is a random time below d.
func upTo(dice *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(dice.Int64N(int64(d))) + 1
}
