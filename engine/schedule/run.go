package schedule

import (
	"fmt"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// profileRun is the run of one profile: its candidates, and what became of them. The next run uses its buffers again.
//
//	view.all ─► filters ─► outliers ─► freshness ─► scorers ─► picker ─► ranked, then last
//	               │           │            └ all are stale: in-flight load stands in for scorers of samples
//	               │           └ no healthy one is left: the degraded stay; nor one of these: the ejected too
//	               └ none is left: NoEndpoints
type profileRun struct {
	tools *Tools
	view  *view
	in    Input // what plugins are shown; zero between runs

	candidates
	scores []float32 // of the scorer that runs; scores[i] belongs to cand[i]
	totals []float32 // weighted sums; totals[i] belongs to cand[i]
	ranked []int     // indexes of cand, as the picker gave them
	last   []uint32  // places of the degraded endpoints that come last
	due    unhealthy // the outlier that the request may probe; at = -1: none
	stale  bool      // all samples were stale: scorers that read them were not asked
}

// candidates are the endpoints of a view that are left.
type candidates struct {
	cand   []Endpoint // only compact writes to it, and only while it is own
	shared bool       // cand is the view's own list, for nothing was dropped yet
	own    []Endpoint // memory of cand once something was dropped
	place  []int      // place[i] is the place of cand[i] in the view; places rise
	keep   []bool     // keep[i] says whether cand[i] stays; valid between a step and compact
}

// profile runs a profile: filters, outliers, freshness, scorers, picker.
func (r *profileRun) profile(
	req *messages.Request, p *Profile, now time.Time,
) (messages.ProfileRun, messages.Reason, string) {
	rec := messages.ProfileRun{Profile: p.Name, Runner: -1}
	r.in = Input{Request: req, Profile: p.Name, Earlier: r.in.Earlier, Rand: r.tools.Rand}
	defer r.forget()
	r.reset()
	if filter := r.filter(p, &rec); filter != "" {
		return rec, messages.NoEndpoints, "filter " + filter + " left no endpoint"
	}
	r.dropOutliers(now)
	r.stale = r.freshen(p)
	r.score(p, &rec)
	reason, detail := r.pick(p, &rec)
	return rec, reason, detail
}

// forget lets go of what plugins were shown, which would keep the request, its cycle and its stream in memory.
func (r *profileRun) forget() { r.in = Input{} }

// reset makes everything a candidate again.
func (r *profileRun) reset() {
	r.stale, r.due.at = false, -1
	r.cand, r.shared = r.view.all, true
	r.place = grow(r.place, len(r.view.all))
	for i := range r.place {
		r.place[i] = i
	}
}

// filter runs the chain. It returns the name of the filter that left nothing, if one did.
func (r *profileRun) filter(p *Profile, rec *messages.ProfileRun) string {
	if len(p.Filters) == 0 {
		return ""
	}
	runs := make([]messages.FilterRun, 0, len(p.Filters))
	kept := make([]bool, len(p.Filters)*len(r.view.all))
	last := ""
	for i := range p.Filters {
		f := &p.Filters[i]
		r.keep = grow(r.keep, len(r.cand))
		for j := range r.keep {
			r.keep[j] = true
		}
		r.in.Candidates = Candidates{r.cand}
		began := r.tools.Clock.Nanos()
		f.Filter.Filter(&r.in, r.keep)
		r.tools.Observer.PluginRan(f.Meter, time.Duration(r.tools.Clock.Nanos()-began))
		r.compact()
		mine := kept[i*len(r.view.all) : (i+1)*len(r.view.all)]
		for _, at := range r.place {
			mine[at] = true
		}
		runs = append(runs, messages.FilterRun{Plugin: f.Name, Kept: messages.TakeList(mine)})
		if len(r.cand) == 0 {
			last = f.Name
			break
		}
	}
	rec.Filters = messages.TakeList(runs)
	return last
}

// compact drops the candidates that keep does not.
func (r *profileRun) compact() {
	if r.shared {
		r.own = append(r.own[:0], r.view.all...)
		r.cand, r.shared = r.own, false
	}
	n := 0
	for i, keep := range r.keep {
		if keep {
			if n != i {
				r.cand[n], r.place[n] = r.cand[i], r.place[i]
			}
			n++
		}
	}
	r.cand, r.place = r.cand[:n], r.place[:n]
}

// score sums the weighted scores into totals. With stale samples in-flight load stands in for the scorers that read
// them.
func (r *profileRun) score(p *Profile, rec *messages.ProfileRun) {
	n := len(r.cand)
	r.totals = grow(r.totals, n)
	clear(r.totals)
	r.in.Candidates = Candidates{r.cand}
	slab := make([]float32, (len(p.Scorers)+1)*len(r.view.all))
	runs := make([]messages.ScorerRun, 0, len(p.Scorers))
	for i := range p.Scorers {
		sc := &p.Scorers[i]
		mine := slab[i*len(r.view.all) : (i+1)*len(r.view.all)]
		r.scores = mine[:n]
		if r.stale && sc.Reads&readsFresh != 0 {
			r.standIn()
		} else {
			r.ask(sc)
		}
		for j, score := range r.scores {
			r.totals[j] += sc.Weight * score
		}
		r.spread(mine)
		runs = append(runs, messages.ScorerRun{Plugin: sc.Name, Weight: sc.Weight, Scores: messages.TakeList(mine)})
	}
	r.scores = nil // the record has them
	totals := slab[len(p.Scorers)*len(r.view.all):]
	copy(totals, r.totals)
	r.spread(totals)
	rec.Scorers, rec.Totals = messages.TakeList(runs), messages.TakeList(totals)
}

// spread moves what belongs to candidates, which stands first, to their places among all; the others get -1. Places
// rise.
func (r *profileRun) spread(list []float32) {
	if r.shared { // every candidate stands at its place
		return
	}
	end := len(list)
	for j := len(r.cand) - 1; j >= 0; j-- {
		v := list[j]
		for end--; end > r.place[j]; end-- {
			list[end] = -1
		}
		list[end] = v
	}
	for i := range end {
		list[i] = -1
	}
}

// ask runs one scorer and puts right what is out of range.
func (r *profileRun) ask(sc *ScorerStep) {
	began := r.tools.Clock.Nanos()
	sc.Scorer.Score(&r.in, r.scores)
	r.tools.Observer.PluginRan(sc.Meter, time.Duration(r.tools.Clock.Nanos()-began))
	for i, v := range r.scores {
		switch {
		case v >= 0 && v <= 1:
		case v != v:
			r.scores[i] = 0
			r.tools.Observer.ScoreNaN(sc.Meter)
		default:
			r.scores[i] = min(max(v, 0), 1)
			r.tools.Observer.ScoreClamped(sc.Meter)
		}
	}
}

func (r *profileRun) pick(p *Profile, rec *messages.ProfileRun) (messages.Reason, string) {
	began := r.tools.Clock.Nanos()
	r.ranked = p.Picker.Picker.Pick(&r.in, r.totals, r.ranked[:0])
	r.tools.Observer.PluginRan(p.Picker.Meter, time.Duration(r.tools.Clock.Nanos()-began))
	if fault := r.faulty(); fault != "" {
		return messages.Internal, fmt.Sprintf("picker %s %s", p.Picker.Name, fault)
	}
	ranked := make([]uint32, 0, len(r.ranked)+len(r.last))
	for _, c := range r.ranked {
		ranked = append(ranked, uint32(r.place[c]))
	}
	if room := p.Picker.most(len(ranked)) - len(ranked); room > 0 {
		ranked = append(ranked, r.last[:min(len(r.last), room)]...)
	}
	rec.Ranked = messages.TakeList(ranked)
	rec.Runner = r.runnerUp()
	return messages.NoReason, ""
}

func (r *profileRun) faulty() string {
	if len(r.ranked) == 0 {
		return "picked nothing"
	}
	r.keep = grow(r.keep, len(r.cand))
	clear(r.keep)
	for _, c := range r.ranked {
		if c < 0 || c >= len(r.cand) {
			return fmt.Sprintf("picked %d of %d", c, len(r.cand))
		}
		if r.keep[c] {
			return fmt.Sprintf("picked %d twice", c)
		}
		r.keep[c] = true
	}
	return ""
}

// runnerUp is the place of the best total apart from the pick, -1 if the pick was alone. Of equals it is the one that
// the picker put second.
func (r *profileRun) runnerUp() int {
	picked, best := r.ranked[0], -1
	if len(r.ranked) > 1 {
		best = r.ranked[1]
	}
	for i, t := range r.totals {
		if i != picked && (best < 0 || t > r.totals[best]) {
			best = i
		}
	}
	if best < 0 {
		return -1
	}
	return r.place[best]
}
