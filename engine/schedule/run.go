package schedule

import (
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// profileRun is the run of one profile. The next run uses its buffers again.
//
//	view.all ─► room ─► filters ─► outliers ─► freshness ─► scorers ─► picker ─► ranked, then last
//	              │        │           │            ├ all are stale: in-flight load replaces the scores from samples
//	              │        │           │            └ a filter that reads samples has freshness come before it
//	              │        │           └ without a healthy one the degraded stay, and without those the ejected
//	              │        └ none is left: NoEndpoints; so too an optional run of which all are ejected or failing
//	              └ none is left that filters would keep: the request waits
type profileRun struct {
	tools    *Tools
	observer Observer // of the plan that runs; nil between requests
	view     *view
	in       Input // what plugins are shown; zero between runs; earlier and values are set before each

	candidates
	freshness
	scoring
	scratch scratch   // of the plugin that runs
	ranked  []int     // candidates, as the picker returned them
	values  []float32 // room for the values of pick and runner-up, in the memory of the record
	last    []uint32  // places in the view of the degraded endpoints that follow the ranked ones
	due     unhealthy // the outlier that the request may probe; due.at = -1: none
}

// scoring holds what scorers say of each candidate, in the order of the candidates.
type scoring struct {
	scores []float32 // of the scorer that runs
	totals []float32 // weighted, of all that have run
}

// candidates holds the endpoints of a view that are left.
type candidates struct {
	place  []int   // place[i] is the place in the view of candidate i; ascending
	shared bool    // no endpoint has been dropped: place is every, and the view's columns are those of the candidates
	every  []int   // every[i] = i
	left   []int   // the buffer of place once an endpoint was dropped
	own    columns // the candidates' columns once an endpoint was dropped, as far as plugins have asked for them
	keep   []bool  // keep[i] = candidate i stays; valid between a step and compact

	screened  []int                // places that screeners have left for all profiles, ascending; empty = all
	screeners []messages.FilterRun // what each of them left for those after it
	gate      *point[Gate]         // of the plan that runs; nil = there is none, or room does not matter
	ceiling   float64              // for the gate: how full an endpoint may be for the request; 0 = as full as it likes
	roomy     []messages.FilterRun // what the gate left, if it dropped any; else empty
	full      bool                 // the run failed only because no endpoint had room
}

// record is what a decision keeps of one run beside the numbers, in one allocation unless the run is a large one.
type record struct {
	run     [1]messages.ProfileRun
	scorers [4]messages.ScorerRun
	ranked  [4]uint32
}

// list returns an empty list for n items, in buf if it is large enough.
func list[T any](buf []T, n int) []T {
	if n > len(buf) {
		return make([]T, 0, n)
	}
	return buf[:0:n]
}

// profile runs a profile: filters, outliers, freshness, scorers, picker.
func (r *profileRun) profile(
	req *messages.Request, p *Profile, optional bool, now time.Time,
) (*record, messages.Reason, string) {
	mem := &record{run: [1]messages.ProfileRun{{Profile: p.Name, Runner: -1, Optional: optional}}}
	rec := &mem.run[0]
	r.in = Input{request: req, profile: p.Name, earlier: r.in.earlier, rand: r.tools.Rand, run: r,
		values: r.in.values, now: now}
	defer r.end()
	if reason, detail := r.narrow(p, rec); reason != messages.NoReason {
		return mem, reason, detail
	}
	if optional && !r.dropUnusable(now) {
		return mem, messages.NoEndpoints, "every endpoint is ejected or asleep, or its newest scrape failed"
	}
	r.dropOutliers(optional, now)
	r.freshen(p.sources)
	if p.matches {
		r.passOver()
	}
	r.score(p, mem)
	reason, detail := r.pick(p, mem)
	return mem, reason, detail
}

// end ends the run of a profile.
func (r *profileRun) end() {
	if r.stale != 0 {
		r.observer.AllStale()
	}
	r.forget()
}

// forget drops what plugins were shown, which would keep the request, its cycle and its stream in memory.
func (r *profileRun) forget() { r.in = Input{} }

// reset makes every endpoint of the view a candidate that screeners have left.
func (r *profileRun) reset() {
	r.freshness, r.due.at = freshness{}, -1
	for i := len(r.every); i < len(r.view.all); i++ {
		r.every = append(r.every, i)
	}
	r.place, r.shared = r.every[:len(r.view.all)], true
	if len(r.screened) > 0 {
		r.own.fit(r.view.fills.layout)
		r.place, r.shared = r.screened, false
	}
}

// narrow drops the endpoints without room, and what filters drop. If none is left for want of room, the run is full. An
// outlier is no room either while the filters would keep a healthy endpoint: that is waited for.
func (r *profileRun) narrow(p *Profile, rec *messages.ProfileRun) (messages.Reason, string) {
	r.reset()
	dropped, filter := r.leaveRoomy(r.in.now), ""
	if len(r.place) > 0 {
		filter = r.filter(p, rec)
	}
	switch {
	case len(r.place) > 0 && (!dropped || !r.allOutliers()):
		return messages.NoReason, ""
	case !dropped:
		return messages.NoEndpoints, "filter " + filter + " left no endpoint"
	}
	of, roomy := rec.Filters, slices.Clone(r.place)
	if of.Len() == 0 { // no filter was called
		of = messages.TakeList(append(slices.Clone(r.screeners), r.roomy...))
	}
	r.reset()
	if filter = r.filter(p, rec); filter != "" {
		return messages.NoEndpoints, "filter " + filter + " left no endpoint"
	}
	rec.Filters = of
	if len(roomy) > 0 && r.allOutliers() {
		r.stay(roomy)
		return messages.NoReason, ""
	}
	r.full = true
	return messages.NoCapacity, "no endpoint that it may use has room"
}

// allOutliers reports whether every candidate is ejected or degraded.
func (r *profileRun) allOutliers() bool {
	n := 0
	for _, o := range r.view.outliers {
		if _, here := r.candidate(o.at); here {
			n++
		}
	}
	return n == len(r.place)
}

// leaveRoomy drops the endpoints that have no room, and reports whether there were any.
func (r *profileRun) leaveRoomy(now time.Time) bool {
	r.full, r.roomy = false, nil
	if r.gate == nil {
		return false
	}
	r.keep = grow(r.keep, len(r.place))
	for i := range r.keep {
		r.keep[i] = true
	}
	r.in.candidates = Candidates{r.view.all, r.place}
	began, before := r.tools.Clock.Nanos(), len(r.place)
	if pricing, ok := r.gate.plugin.(Pricing); ok {
		pricing.Exclude(&r.in, r.keep)
	} else {
		r.gate.plugin.Room(&r.in, r.keep)
	}
	r.observer.PluginRan(r.gate.Meter, time.Duration(r.tools.Clock.Nanos()-began))
	r.leaveDue(now)
	if r.compact(); len(r.place) == before {
		return false
	}
	kept := make([]bool, len(r.view.all))
	for _, at := range r.place {
		kept[at] = true
	}
	r.roomy = []messages.FilterRun{{Plugin: r.gate.Name, Kept: messages.TakeList(kept)}}
	return true
}

// leaveDue keeps the outliers that are due for a probe, which needs no room.
func (r *profileRun) leaveDue(now time.Time) {
	for _, o := range r.view.outliers {
		if i, here := r.candidate(o.at); here && o.Due(now, r.in.request.Visible) && !o.Probing() {
			r.keep[i] = true
		}
	}
}

// filter runs the filters. It returns the name of the one that left no candidate; "" = some are left.
func (r *profileRun) filter(p *Profile, rec *messages.ProfileRun) string {
	if len(p.Filters)+len(r.screeners)+len(r.roomy) == 0 {
		return ""
	}
	runs := append(make([]messages.FilterRun, 0, len(r.screeners)+len(r.roomy)+len(p.Filters)), r.screeners...)
	runs = append(runs, r.roomy...)
	if r.in.request.Forced {
		rec.Filters = messages.TakeList(runs)
		return ""
	}
	kept := make([]bool, len(p.Filters)*len(r.view.all))
	last := ""
	for i := range p.Filters {
		f := &p.Filters[i]
		r.freshen(f.sources)
		if f.sources&r.stale == 0 {
			r.run(f)
		}
		mine := kept[i*len(r.view.all) : (i+1)*len(r.view.all)]
		for _, at := range r.place {
			mine[at] = true
		}
		runs = append(runs, messages.FilterRun{Plugin: f.Name, Kept: messages.TakeList(mine)})
		if len(r.place) == 0 {
			last = f.Name
			break
		}
	}
	rec.Filters = messages.TakeList(runs)
	return last
}

// run has a filter drop candidates.
func (r *profileRun) run(f *FilterStep) {
	r.keep = grow(r.keep, len(r.place))
	for i := range r.keep {
		r.keep[i] = true
	}
	r.in.candidates = Candidates{r.view.all, r.place}
	began := r.tools.Clock.Nanos()
	f.Filter.Filter(&r.in, r.keep)
	r.observer.PluginRan(f.Meter, time.Duration(r.tools.Clock.Nanos()-began))
	if r.in.outcome > 0 {
		r.observer.PluginDecided(f.Meter, r.in.outcome-1)
		r.in.outcome = 0
	}
	r.compact()
}

// compact drops the candidates for which keep is false.
func (r *profileRun) compact() {
	r.left = grow(r.left, len(r.place))[:0]
	for i, keep := range r.keep {
		if keep {
			r.left = append(r.left, r.place[i])
		}
	}
	if len(r.left) < len(r.place) {
		r.stay(r.left)
	}
}

// stay leaves the endpoints at these places of the view, which are fewer than before.
func (r *profileRun) stay(places []int) {
	if r.shared {
		r.own.fit(r.view.fills.layout)
	}
	r.place, r.shared = places, false
	r.own.outdate()
}

// numbers returns a column of the candidates.
func (r *profileRun) numbers(slot int) []float64 {
	if r.shared {
		return r.view.number(slot)
	}
	return r.own.numbers.gather(slot, &r.view.numbers, r.place)
}

// names returns a column of the candidates.
func (r *profileRun) names(slot int) [][]string {
	if r.shared {
		return r.view.list(slot)
	}
	return r.own.names.gather(slot, &r.view.names, r.place)
}

// score sums the weighted scores into totals. If all answers of a source are stale, scores by in-flight load replace
// those of the scorers that read it.
func (r *profileRun) score(p *Profile, mem *record) {
	n := len(r.place)
	r.totals = grow(r.totals, n)
	clear(r.totals)
	r.in.candidates = Candidates{r.view.all, r.place}
	all := (len(p.Scorers) + 1) * len(r.view.all)
	slab := make([]float32, all+2*p.reads.Len()) // one allocation for all numbers of the record
	r.values = slab[all:]
	runs := list(mem.scorers[:], len(p.Scorers))
	for i := range p.Scorers {
		sc := &p.Scorers[i]
		mine := slab[i*len(r.view.all) : (i+1)*len(r.view.all)]
		r.scores = mine[:n]
		if r.stale&sc.sources != 0 {
			r.standIn()
		} else {
			r.ask(sc)
		}
		sums := r.totals[:len(r.scores)]
		for j, score := range r.scores {
			sums[j] += sc.Weight * score
		}
		r.spread(mine)
		runs = append(runs, messages.ScorerRun{Plugin: sc.Name, Weight: sc.Weight, Scores: messages.TakeList(mine)})
	}
	r.scores = nil // the record has that memory now
	totals := slab[len(p.Scorers)*len(r.view.all) : all]
	copy(totals, r.totals)
	r.spread(totals)
	mem.run[0].Scorers, mem.run[0].Totals = messages.TakeList(runs), messages.TakeList(totals)
}

// spread turns a list by candidate into one by endpoint of the view: list[i], of candidate i, moves to its place, and
// the endpoints that are no candidates get -1. Because places ascend, it can do so in place, from the end.
func (r *profileRun) spread(list []float32) {
	if r.shared { // every candidate stands at its place
		return
	}
	end := len(list)
	for j := len(r.place) - 1; j >= 0; j-- {
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

// ask runs one scorer and corrects scores that are out of range.
func (r *profileRun) ask(sc *ScorerStep) {
	began := r.tools.Clock.Nanos()
	sc.Scorer.Score(&r.in, r.scores)
	r.observer.PluginRan(sc.Meter, time.Duration(r.tools.Clock.Nanos()-began))
	for i, v := range r.scores {
		switch {
		case v >= 0 && v <= 1:
		case v != v:
			r.scores[i] = 0
			r.observer.ScoreNaN(sc.Meter)
		default:
			r.scores[i] = min(max(v, 0), 1)
			r.observer.ScoreClamped(sc.Meter)
		}
	}
}

// pick runs the picker, and adds the degraded endpoints behind what it ranked as far as there is room.
func (r *profileRun) pick(p *Profile, mem *record) (messages.Reason, string) {
	began := r.tools.Clock.Nanos()
	r.ranked = p.Picker.Picker.Pick(&r.in, r.totals, r.ranked[:0])
	r.observer.PluginRan(p.Picker.Meter, time.Duration(r.tools.Clock.Nanos()-began))
	if fault := r.faulty(); fault != "" {
		return messages.Internal, fmt.Sprintf("picker %s %s", p.Picker.Name, fault)
	}
	ranked := list(mem.ranked[:], len(r.ranked)+len(r.last))
	for _, c := range r.ranked {
		ranked = append(ranked, uint32(r.place[c]))
	}
	if room := p.Picker.most(len(ranked)) - len(ranked); room > 0 {
		ranked = append(ranked, r.last[:min(len(r.last), room)]...)
	}
	mem.run[0].Ranked, mem.run[0].Runner = messages.TakeList(ranked), r.runnerUp()
	return messages.NoReason, ""
}

// faulty returns what is wrong with the picker's answer; "" = nothing.
func (r *profileRun) faulty() string {
	if len(r.ranked) == 0 {
		return "picked nothing"
	}
	r.keep = grow(r.keep, len(r.place))
	clear(r.keep)
	for _, c := range r.ranked {
		if c < 0 || c >= len(r.place) {
			return fmt.Sprintf("picked %d of %d", c, len(r.place))
		}
		if r.keep[c] {
			return fmt.Sprintf("picked %d twice", c)
		}
		r.keep[c] = true
	}
	return ""
}

// runnerUp returns the place of the best total but for the pick; -1 = the pick was the only candidate. Of equal totals
// the one that the picker put second wins.
func (r *profileRun) runnerUp() int {
	if len(r.place) == 1 {
		return -1
	}
	picked, best := r.ranked[0], 0
	switch {
	case len(r.ranked) > 1:
		best = r.ranked[1]
	case picked == 0:
		best = 1
	}
	top := r.totals[best]
	for i, t := range r.totals {
		if t > top && i != picked {
			best, top = i, t
		}
	}
	return r.place[best]
}
