package schedule

// freshness says what is known of the age of the samples in a run.
type freshness struct {
	freshened bool // freshen has run
	stale     bool // all samples were stale: plugins that read them were not asked
}

// freshen keeps the candidates with a fresh sample and no failed scrape since. If there are none it keeps those with a
// fresh sample, and if there are none of these either, it keeps all and sets stale. It is called before the first
// plugin that reads samples, a filter or a scorer, and does nothing when it is called again.
func (r *profileRun) freshen() {
	if r.freshened || r.view.doubtful == 0 {
		return
	}
	r.freshened = true
	left := r.keepIf(func(e *endpoint) bool { return e.fresh && !e.failing })
	if left == 0 {
		left = r.keepIf(func(e *endpoint) bool { return e.fresh })
	}
	if left == 0 {
		r.observer.AllStale()
		r.stale = true
		return
	}
	if left < len(r.place) {
		r.compact()
	}
}

// keepIf sets keep for the candidates that are to stay, and returns their number.
func (r *profileRun) keepIf(stays func(*endpoint) bool) int {
	r.keep = grow(r.keep, len(r.place))
	n := 0
	for i, at := range r.place {
		r.keep[i] = stays(&r.view.all[at])
		if r.keep[i] {
			n++
		}
	}
	return n
}

// standIn scores by requests in flight: 1 for the fewest, 0 for the most, in proportion between them; 1 if all are
// equal.
func (r *profileRun) standIn() {
	lo := r.view.load[r.place[0]].Inflight
	hi := lo
	for _, at := range r.place {
		lo, hi = min(lo, r.view.load[at].Inflight), max(hi, r.view.load[at].Inflight)
	}
	for i, at := range r.place {
		r.scores[i] = 1
		if hi > lo {
			r.scores[i] = float32(hi-r.view.load[at].Inflight) / float32(hi-lo)
		}
	}
}
