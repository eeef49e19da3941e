package schedule

// freshen drops candidates whose newest scrape failed if others with a fresh sample are left; of all that fail, or have none, it drops
// the stale ones if a fresh one is left. True means that all are stale and that it matters.
func (r *profileRun) freshen(p *Profile) bool {
	if p.ranks&readsFresh == 0 {
		return false
	}
	left := r.keepIf(func(e *Endpoint) bool { return e.Fresh && !e.Failing })
	if left == 0 {
		left = r.keepIf(func(e *Endpoint) bool { return e.Fresh })
	}
	if left == 0 {
		r.tools.Observer.AllStale()
		return true
	}
	if left < len(r.cand) {
		r.compact()
	}
	return false
}

// keepIf marks the candidates that are to stay, and counts them.
func (r *profileRun) keepIf(stays func(*Endpoint) bool) int {
	r.keep = grow(r.keep, len(r.cand))
	n := 0
	for i := range r.cand {
		r.keep[i] = stays(&r.cand[i])
		if r.keep[i] {
			n++
		}
	}
	return n
}

// standIn scores by what we sent and have not seen end: fewest 1, most 0, all equal 1.
func (r *profileRun) standIn() {
	lo, hi := r.cand[0].InflightRequests, r.cand[0].InflightRequests
	for i := range r.cand {
		lo, hi = min(lo, r.cand[i].InflightRequests), max(hi, r.cand[i].InflightRequests)
	}
	for i := range r.cand {
		r.scores[i] = 1
		if hi > lo {
			r.scores[i] = float32(hi-r.cand[i].InflightRequests) / float32(hi-lo)
		}
	}
}
