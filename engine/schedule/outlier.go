package schedule

import (
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/messages"
)

// out is an endpoint of this request that is not healthy.
type out struct {
	at int // place in all
	*outlier.Status
}

// probe is what a profile run leaves for the request if the run turns out to be the primary one.
type probe struct {
	due  out // that the request may probe; at = -1: none
	most int // destinations
}

// inspect notes the status of the endpoint that was read last, if it is an outlier.
func (v *view) inspect(e *endpoints.Endpoint) {
	if status := e.Outlier(); status != nil {
		v.outliers = append(v.outliers, out{len(v.all) - 1, status})
	}
}

// spare drops candidates that are ejected or degraded, as long as others are left: first those that are ejected. An endpoint that
// refuses at once, or hangs, is always idle: scores alone would send all requests there. It notes one of them that this request may
// probe, and those that are degraded: they come last.
func (r *profileRun) spare(now time.Time) {
	r.due, r.last = out{at: -1}, r.last[:0]
	if len(r.view.outliers) == 0 {
		return
	}
	for _, o := range r.view.outliers {
		if r.due.at >= 0 || !o.Due(now, r.in.Request.Shown) {
			continue
		}
		if _, here := r.candidate(o.at); here {
			r.due = o
		}
	}
	if !r.without(func(o out) bool { return o.Ejected }) { // a failing endpoint is better than none
		r.due.at = -1
		return
	}
	for _, o := range r.view.outliers {
		if _, here := r.candidate(o.at); here {
			r.last = append(r.last, uint32(o.at))
		}
	}
	if !r.without(func(out) bool { return true }) {
		r.last = r.last[:0]
	}
}

// without drops candidates that are such outliers. False: no other is left, and all stay.
func (r *profileRun) without(such func(out) bool) bool {
	r.keep = grow(r.keep, len(r.cand))
	for i := range r.keep {
		r.keep[i] = true
	}
	left := len(r.cand)
	for _, o := range r.view.outliers {
		if i, here := r.candidate(o.at); here && such(o) {
			r.keep[i] = false
			left--
		}
	}
	if left > 0 && left < len(r.cand) {
		r.compact()
	}
	return left > 0
}

// candidate finds a place of all among the candidates, whose places rise.
func (r *profileRun) candidate(at int) (int, bool) {
	if r.shared {
		return at, true
	}
	return slices.BinarySearch(r.place, at)
}

// try puts the endpoint first that is due, unless another request is its probe. The others follow, so that the proxy has somewhere
// to go.
func (p probe) try(run *messages.ProfileRun) bool {
	if p.due.at < 0 || !p.due.Probe() {
		return false
	}
	first := uint32(p.due.at)
	if best := run.Ranked.At(0); best != first {
		run.Runner = int(best)
	}
	ranked := make([]uint32, 0, run.Ranked.Len()+1)
	ranked = append(ranked, first)
	for _, at := range run.Ranked.All() {
		if at != first {
			ranked = append(ranked, at)
		}
	}
	run.Ranked = messages.TakeList(ranked[:min(len(ranked), p.most)])
	return true
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
