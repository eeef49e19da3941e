package schedule

import "time"

// together is how long endpoints that have come are judged together: the first answers of servers that start at once
// come at different times, and all requests would go to the first that answers.
const together = 500 * time.Millisecond

// freshness says what is known of the age of the attributes in a run. Its words are bits of sources, as fills has them.
type freshness struct {
	freshened uint64 // freshen has run for them
	stale     uint64 // no candidate has a fresh answer of them: plugins that read them are not asked
}

// freshen keeps, for each of these sources, the candidates with a fresh answer and no failed fetch since. If there are
// none it keeps those with a fresh answer, and if there are none of these either, it keeps all and notes the source as
// stale. An endpoint that a source does not ask counts as fresh. freshen is called before the first plugin that reads a
// source, a filter or a scorer, and does nothing when it is called again. While the pool begins, sources are stale.
func (r *profileRun) freshen(sources uint64) {
	sources &^= r.freshened
	if sources == 0 || r.view.doubtful == 0 {
		return
	}
	r.freshened |= sources
	for bit := uint64(1); bit <= sources; bit <<= 1 {
		if sources&bit != 0 && (r.begins(bit) || !r.freshenBy(bit)) {
			r.stale |= bit
		}
	}
}

// begins reports whether all candidates with a fresh answer of a source have come of late, as have others whose first
// answer is to come. If so it keeps these and those.
func (r *profileRun) begins(source uint64) bool {
	awaited := false
	for _, at := range r.place {
		young := r.in.now.Sub(r.view.sources[at].Since) < together
		if !young && r.view.fresh[at]&source != 0 {
			return false
		}
		awaited = awaited || young && r.view.awaits(source, at)
	}
	return awaited && r.keepFresh(source, func(at int) bool {
		return r.view.awaits(source, at) || r.view.answers(source, at)
	})
}

// passOver keeps the candidates whose metrics pages can be read, if there are any, where a scorer reads what endpoints
// hold of prompts: of the others it is not known whether they still hold it. An endpoint that has just come holds
// nothing, and its first page may be on its way, so that several that come at once take part at once.
func (r *profileRun) passOver() {
	if r.freshened&metricsPage != 0 || r.view.doubtful == 0 {
		return
	}
	r.keepFresh(metricsPage, func(at int) bool {
		return r.view.answers(metricsPage, at) || r.view.awaits(metricsPage, at)
	})
}

// freshenBy reports whether a candidate has a fresh answer of a source.
func (r *profileRun) freshenBy(source uint64) bool {
	return r.keepFresh(source, func(at int) bool { return r.view.answers(source, at) })
}

// keepFresh keeps the best candidates, or if there are none those with a fresh answer of a source, or if there are none
// of these either all, and returns false.
func (r *profileRun) keepFresh(source uint64, best func(at int) bool) bool {
	left := r.keepIf(best)
	if left == 0 {
		left = r.keepIf(func(at int) bool { return r.view.fresh[at]&source != 0 })
	}
	if left > 0 && left < len(r.place) {
		r.compact()
	}
	return left > 0
}

// keepIf sets keep for the candidates that are to stay, and returns their number.
func (r *profileRun) keepIf(stays func(at int) bool) int {
	r.keep = grow(r.keep, len(r.place))
	n := 0
	for i, at := range r.place {
		r.keep[i] = stays(at)
		if r.keep[i] {
			n++
		}
	}
	return n
}

// standIn scores by requests in flight: 1 for the fewest, 0 for the most, in proportion between them; 1 if all are
// equal.
func (r *profileRun) standIn() {
	load := func(at int) int { return r.view.load[at].Inflight + r.view.load[at].Held }
	lo := load(r.place[0])
	hi := lo
	for _, at := range r.place {
		lo, hi = min(lo, load(at)), max(hi, load(at))
	}
	for i, at := range r.place {
		r.scores[i] = 1
		if hi > lo {
			r.scores[i] = float32(hi-load(at)) / float32(hi-lo)
		}
	}
}
