package schedule

import (
	"slices"

	"github.com/signalbox-epp/signalbox/messages"
)

// Intake is what the plugins before the profiles have said of a request, but for producers: it is asked for once, and
// kept while the request waits. The zero Intake is of a request that they have not seen. A nil Intake keeps nothing.
type Intake struct {
	whole     bool // they have said all
	headers   []messages.Header
	asked     messages.List[messages.EndpointID] // the endpoints that screeners have looked at
	screeners []messages.FilterRun               // what each of them left of asked for those after it
	values    []any                              // of the private slots of plugins, before the profiles ran
}

// NewIntake returns an Intake for one request; nil = no request of the plan waits, or no plugin says what is kept.
func (p *Plan) NewIntake() *Intake {
	of := &p.points
	if !p.Gated() || len(of.headers)+len(of.screeners)+len(of.admitters) == 0 {
		return nil
	}
	return &Intake{}
}

// done reports whether the plugins have said all.
func (in *Intake) done() bool { return in != nil && in.whole }

// keep keeps what the plugins have said.
func (in *Intake) keep(s *Scheduler, r *profileRun) {
	if in == nil {
		return
	}
	if !in.whole {
		in.headers, in.values = slices.Clip(s.headers.list), slices.Clone(s.course.values)
	}
	in.whole, in.asked, in.screeners = true, r.view.ids, r.screeners
}

// looked returns for each of these endpoints its place in asked; -1 = no screener has looked at it. Empty = they have
// looked at none.
func (in *Intake) looked(ids messages.List[messages.EndpointID]) []int {
	if !in.done() {
		return nil
	}
	places := make(map[messages.EndpointID]int, in.asked.Len())
	for at, id := range in.asked.All() {
		places[id] = at
	}
	was := make([]int, ids.Len())
	for i, id := range ids.All() {
		at, known := places[id]
		if was[i] = at; !known {
			was[i] = -1
		}
	}
	return was
}

// slots returns the values of n private slots as the plugins before the profiles left them.
func (in *Intake) slots(n int) []any {
	if n == 0 {
		return nil
	}
	values := make([]any, n)
	if in.done() {
		copy(values, in.values)
	}
	return values
}

// screen has each screener look at all endpoints, but for those that it has looked at before, and leaves those that all
// of them keep.
func (r *profileRun) screen(screeners []point[Screener], before *Intake) Refusal {
	if r.in.request.Forced || len(screeners) == 0 {
		return Refusal{}
	}
	stays, was := slices.Repeat([]bool{true}, len(r.view.all)), before.looked(r.view.ids)
	r.screened = r.screened[:0]
	for place, then := range was {
		if then < 0 {
			r.screened = append(r.screened, place)
		}
	}
	some := len(was) == 0 || len(r.screened) > 0 // that no screener has looked at
	for i := range screeners {
		at := &screeners[i]
		for place, then := range was {
			stays[place] = stays[place] && (then < 0 || before.screeners[i].Kept.At(then))
		}
		if some {
			r.visit(&at.Step, at.sources, func() Refusal {
				r.look(at.plugin, stays)
				return Refusal{}
			})
		}
		if !slices.Contains(stays, true) {
			return Refusal{Reason: messages.NoEndpoints, Detail: "screener " + at.Name + " left no endpoint"}
		}
		kept := messages.ListOf(stays...)
		r.screeners = append(r.screeners, messages.FilterRun{Plugin: at.Name, Kept: kept})
	}
	r.screened = r.screened[:0]
	for at, stay := range stays {
		if stay {
			r.screened = append(r.screened, at)
		}
	}
	if len(r.screened) == len(stays) {
		r.screened = r.screened[:0]
	}
	return Refusal{}
}

// look has a screener look at the candidates.
func (r *profileRun) look(by Screener, stays []bool) {
	r.keep = grow(r.keep, len(r.place))
	for i := range r.keep {
		r.keep[i] = true
	}
	by.Screen(&r.in, r.keep)
	for i, place := range r.place {
		stays[place] = stays[place] && r.keep[i]
	}
}
