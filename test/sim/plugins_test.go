package sim_test

import (
	"math"

	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// careless are the chances of a fault in one call of a plugin, on top of what is aimed at.
var careless = map[string]float64{
	"filter": .004, "scorer": .001, "picker": .004, "handler": .004, "admitter": .004, "pre-request": .004, "end": .004,
	"gate": .004,
}

// slip draws what a plugin does wrong with a request, "" = nothing, and writes down what its client must be told then.
func (f *faults) slip(family string, of schedule.Request) string {
	list, what := pluginFaults[family], ""
	if f.strikes(family, careless[family]) {
		what = list[f.dice.IntN(len(list))]
	}
	for _, one := range list {
		if f.aimed(pluginFault(family, one)) {
			what = one
		}
	}
	if what == "" {
		return ""
	}
	f.drew(pluginFault(family, what))
	if family == "end" { // the client has its answer
		return what
	}
	l := f.ledger.of(of.ID())
	switch what {
	case "scores NaN", "scores out of range": // put right by the scheduler
	case "panics at Primary", "names a result out of range": // Primary writes it down: without room it is not called
	case "refuses":
		l.expect = messages.NoCapacity
	case "keeps nothing":
		l.expect, l.barren = messages.NoEndpoints, true
	default:
		l.expect = messages.Internal
	}
	return what
}

// plan puts a faulty skin around the plugins of every family.
func (f *faults) plan(p *schedule.Plan) *schedule.Plan {
	profiles, points := p.Profiles(), []schedule.PointStep{}
	for i := range profiles {
		profile := &profiles[i]
		for j := range profile.Filters {
			profile.Filters[j].Filter = &filter{profile.Filters[j].Filter, f}
		}
		for j := range profile.Scorers {
			step := &profile.Scorers[j]
			if schedule.ServesPoint(step.Scorer) {
				points = append(points, schedule.PointStep{Step: step.Step, Plugin: step.Scorer})
			}
			step.Scorer = &scorer{step.Scorer, f}
		}
		profile.Picker.Picker = &picker{profile.Picker.Picker, f}
	}
	plan := schedule.NewPlan(profiles, p.Layout(), &handler{Handler: p.Handler(), faults: f}, p.Stale())
	plan.Serve(append(points, schedule.PointStep{Step: schedule.Step{Name: "visitor"}, Plugin: &visitor{f}})...)
	return plan
}

// visitor is at the points outside of the profiles. The ledger learns of each request of which it was told the end.
type visitor struct{ *faults }

func (p *visitor) Admit(in *schedule.Input) schedule.Refusal {
	switch p.slip("admitter", in.Request()) {
	case "panics":
		panic(fault{"admitter"})
	case "refuses":
		return schedule.Refusal{Reason: messages.NoCapacity}
	case "refuses for a reason of others":
		return schedule.Refusal{Reason: messages.ClientGone}
	}
	return schedule.Refusal{}
}

func (p *visitor) PreRequest(picked *schedule.Picked, set *schedule.Headers) schedule.Refusal {
	switch p.slip("pre-request", picked.Request()) {
	case "panics":
		panic(fault{"pre-request"})
	case "refuses":
		return schedule.Refusal{Reason: messages.NoCapacity}
	case "sets a header that it may not":
		set.Set("content-length", "0")
	}
	return schedule.Refusal{}
}

func (p *visitor) ResponseEnd(e *schedule.Ended) {
	p.ledger.of(e.Request().ID()).told++
	if p.slip("end", e.Request()) != "" {
		panic(fault{"end"})
	}
}

type filter struct {
	real schedule.Filter
	*faults
}

func (p *filter) Filter(in *schedule.Input, keep []bool) {
	p.real.Filter(in, keep)
	if p.slip("filter", in.Request()) == "panics" {
		panic(fault{"filter"})
	}
	if p.ledger.of(in.Request().ID()).barren { // also when it is asked again, without the gate
		clear(keep)
	}
}

type scorer struct {
	schedule.Scorer
	*faults
}

func (p *scorer) Score(in *schedule.Input, scores []float32) {
	p.Scorer.Score(in, scores)
	switch p.slip("scorer", in.Request()) {
	case "panics":
		panic(fault{"scorer"})
	case "scores NaN":
		scores[0] = float32(math.NaN())
	case "scores out of range":
		scores[0] = -7
	}
}

type picker struct {
	schedule.Picker
	*faults
}

func (p *picker) Pick(in *schedule.Input, totals []float32, ranked []int) []int {
	got := p.Picker.Pick(in, totals, ranked)
	switch p.slip("picker", in.Request()) {
	case "panics":
		panic(fault{"picker"})
	case "picks nothing":
		return got[:0]
	case "picks one twice":
		return append(got, got[0])
	case "picks out of range":
		return append(got, len(totals))
	}
	return got
}

type handler struct {
	schedule.Handler
	*faults
	primary string // what goes wrong with Primary, drawn at the first Next
}

func (p *handler) Next(c *schedule.Course) schedule.Run {
	if c.Results().Len() == 0 {
		p.primary = ""
		switch what := p.slip("handler", c.Request()); what {
		case "panics at Next":
			panic(fault{"handler"})
		case "names a profile out of range":
			return schedule.Run{Profile: c.Profiles().Len()}
		default:
			p.primary = what
		}
	}
	return p.Handler.Next(c)
}

func (p *handler) Primary(c *schedule.Course) int {
	if p.primary != "" {
		p.ledger.of(c.Request().ID()).expect = messages.Internal
	}
	switch p.primary {
	case "panics at Primary":
		panic(fault{"handler"})
	case "names a result out of range":
		return c.Results().Len()
	}
	return p.Handler.Primary(c)
}

// Finish splits some requests: another endpoint works for them before the destination does. Some it sends to the
// sidecar of the destination.
func (p *handler) Finish(c *schedule.Course, f *schedule.Final) {
	l, first := p.ledger.of(c.Request().ID()), &f.Destinations[0]
	l.stages, l.sidecar = nil, ""
	if at := p.dice.IntN(c.Len()); at != first.At && p.dice.IntN(4) == 0 {
		f.Stages = append(f.Stages, schedule.Stage{Run: f.Primary, At: at, Prompt: true})
		f.Headers = append(f.Headers, messages.Header{Name: "x-stage", Value: string(c.Endpoint(at).Address())})
		l.stages = append(l.stages, c.Endpoint(at).ID())
	}
	if p.dice.IntN(8) == 0 {
		first.Sent = "sidecar of " + c.Endpoint(first.At).Address()
		l.sidecar, l.behind = first.Sent, c.Endpoint(first.At).Address()
	}
}
