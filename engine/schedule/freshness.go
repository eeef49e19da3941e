package schedule

// freshen keeps the candidates with a fresh sample and no failed scrape since. If there are none it keeps those with a
// fresh sample, and if there are none of these either, it keeps all and returns true. It does nothing unless scorers
// read samples.
func (r *profileRun) freshen(p *Profile) bool {
	if p.ranks&readsFresh == 0 {
		return false
	}
	left := r.keepIf(func(e *Endpoint) bool { return e.Fresh && !e.Failing })
	if left == 0 {
		left = r.keepIf(func(e *Endpoint) bool { return e.Fresh })
	}
	if left == 0 {
		r.observer.AllStale()
		return true
	}
	if left < len(r.cand) {
		r.compact()
	}
	return false
}

// keepIf sets keep for the candidates that are to stay, and returns their number.
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

// standIn scores by requests in flight: 1 for the fewest, 0 for the most, in proportion between them; 1 if all are
// equal.
func (r *profileRun) standIn() {
	lo, hi := r.cand[0].Inflight.Requests, r.cand[0].Inflight.Requests
	for i := range r.cand {
		lo, hi = min(lo, r.cand[i].Inflight.Requests), max(hi, r.cand[i].Inflight.Requests)
	}
	for i := range r.cand {
		r.scores[i] = 1
		if hi > lo {
			r.scores[i] = float32(hi-r.cand[i].Inflight.Requests) / float32(hi-lo)
		}
	}
}
