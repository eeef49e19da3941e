package schedule

import (
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/messages"
)

// unhealthy is an endpoint of this request that is ejected or degraded, or sleeps.
type unhealthy struct {
	at int // place in the view; -1 = none
	*outlier.Status
}

// asleep is the status of every endpoint whose newest page is fresh and says that it sleeps. A request would wait there
// until the endpoint wakes, and the endpoint would look idle meanwhile. So it counts as ejected until the first page
// that says otherwise, whatever its own status is. If all candidates sleep, one is picked nevertheless: it serves the
// request when it wakes, and a refusal would serve it no better.
var asleep = outlier.Asleep()

// probe is kept of each profile run, for the handler says only at the end which run is the primary one.
type probe struct {
	of   *Profile
	due  unhealthy // the outlier that the request may probe; due.at = -1: none
	most int       // destinations that a pick of the run may have
}

// dropOutliers drops candidates that sleep, then those that are ejected, and then those that are degraded, as long as
// others are left. Scores alone would send all requests to an endpoint that refuses at once or hangs, because it looks
// idle. dropOutliers sets due to an outlier that this request may probe, and last to the degraded endpoints, which
// follow all others in the pick. If all candidates are ejected, none is probed; but those of an optional run are left
// only to be probed.
func (r *profileRun) dropOutliers(optional bool, now time.Time) {
	r.due, r.last = unhealthy{at: -1}, r.last[:0]
	if len(r.view.outliers) == 0 {
		return
	}
	for _, o := range r.view.outliers {
		if r.due.at >= 0 || !o.Due(now, r.in.request.Visible) {
			continue
		}
		if _, here := r.candidate(o.at); here {
			r.due = o
		}
	}
	r.drop(func(o unhealthy) bool { return o.Status == asleep })
	if !r.drop(func(o unhealthy) bool { return o.Ejected }) { // a failing endpoint is better than none
		if !optional {
			r.due.at = -1
		}
		return
	}
	for _, o := range r.view.outliers {
		if _, here := r.candidate(o.at); here {
			r.last = append(r.last, uint32(o.at))
		}
	}
	if !r.drop(func(unhealthy) bool { return true }) {
		r.last = r.last[:0]
	}
}

// dropUnusable drops the candidates that are ejected or asleep, or whose newest scrape failed, but for those that are
// due for a probe. It returns false if none is left: what a request can do without is not asked of an endpoint that is
// down.
func (r *profileRun) dropUnusable(now time.Time) bool {
	left := r.keepIf(func(at int) bool { return r.view.failing[at]&metricsPage == 0 })
	for _, o := range r.view.outliers {
		if i, here := r.candidate(o.at); here && o.Ejected && r.keep[i] && !o.Due(now, r.in.request.Visible) {
			r.keep[i] = false
			left--
		}
	}
	if left < len(r.place) && left > 0 {
		r.compact()
	}
	return left > 0
}

// Ejected reports whether candidate i gets no requests for a while, because of failures or because it sleeps. All may
// be ejected.
func (in *Input) Ejected(i int) bool {
	return in.run.view.ejected(in.candidates.place[i])
}

// Ejected reports whether the endpoint at a place gets no requests for a while, because of failures or because it
// sleeps.
func (c *Course) Ejected(at int) bool {
	return c.view.ejected(at)
}

func (v *view) ejected(at int) bool {
	i, found := slices.BinarySearchFunc(v.outliers, at, func(o unhealthy, place int) int { return o.at - place })
	return found && v.outliers[i].Ejected
}

// Probe reports whether the request goes to its first destination to see whether that serves again, which says nothing
// of where the next one is to go.
func (p *Picked) Probe() bool { return p.final.Probe }

// drop drops the outliers that selected selects. It drops none and returns false if no other candidate would be left.
func (r *profileRun) drop(selected func(unhealthy) bool) bool {
	r.keep = grow(r.keep, len(r.place))
	for i := range r.keep {
		r.keep[i] = true
	}
	left := len(r.place)
	for _, o := range r.view.outliers {
		if i, here := r.candidate(o.at); here && selected(o) {
			r.keep[i] = false
			left--
		}
	}
	if left > 0 && left < len(r.place) {
		r.compact()
	}
	return left > 0
}

// candidate returns the index among the candidates of the endpoint at a place of the view, and whether it is one still.
func (r *profileRun) candidate(at int) (int, bool) {
	if r.shared {
		return at, true
	}
	return slices.BinarySearch(r.place, at)
}

// open reports whether the request may become the probe of the endpoint that is due.
func (p probe) open() bool { return p.due.at >= 0 && !p.due.Probing() }

// tryStages puts the endpoints first that are due for a probe in the runs beside the primary one. A server that only
// works before the destination has no other request that could show that it serves again.
func (s *Scheduler) tryStages(primary int) {
	for i, p := range s.probes {
		if of := &s.course.results[i]; i != primary && p.open() && of.Reason == messages.NoReason {
			of.Ranked = p.front(of.Ranked)
		}
	}
}

// noteStages notes in the records of runs which of the endpoints that were due for a probe work for the request.
func (s *Scheduler) noteStages(runs []messages.ProfileRun, now time.Time) {
	for _, of := range s.final.Stages {
		if of.Run != s.final.Primary && s.probes[of.Run].due.at == of.At {
			s.rerank(of.Run, &runs[of.Run], s.course.results[of.Run].Ranked, now)
		}
	}
}

// tries reports whether the request has taken the probe of a stage's endpoint. If it has not, because a request of
// another loop has, it goes there all the same.
func (s *Scheduler) tries(of Stage) bool {
	due := s.probes[of.Run].due
	return due.at == of.At && due.Probe()
}

// front returns a ranking with the endpoint that is due first. The others follow, so that the proxy can fall back to
// them.
func (p probe) front(ranking messages.List[uint32]) messages.List[uint32] {
	first := uint32(p.due.at)
	ranked := make([]uint32, 0, ranking.Len()+1)
	ranked = append(ranked, first)
	for _, at := range ranking.All() {
		if at != first {
			ranked = append(ranked, at)
		}
	}
	return messages.TakeList(ranked[:min(len(ranked), p.most)])
}

// statuses returns the outliers as a record has them.
func (v *view) statuses() messages.List[messages.Outlier] {
	if len(v.outliers) == 0 {
		return messages.List[messages.Outlier]{}
	}
	list := make([]messages.Outlier, 0, len(v.outliers))
	for _, o := range v.outliers {
		list = append(list, messages.Outlier{At: o.at, Ejected: o.Ejected, Cause: o.Cause})
	}
	return messages.TakeList(list)
}
