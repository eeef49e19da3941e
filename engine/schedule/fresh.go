package schedule

// freshen drops candidates whose newest scrape failed if others with a fresh sample are left; of all that fail, or have none, it drops
// the stale ones if a fresh one is left. True means that all are stale and that it matters.
func (s *Scratch) freshen(p *Profile) bool {
	reads := Reads(0)
	for i := range p.Scorers {
		reads |= p.Scorers[i].Reads
	}
	if reads&(ReadsSample|ReadsLoRA) == 0 {
		return false
	}
	left := s.keepIf(func(e *Endpoint) bool { return e.Fresh && !e.Failing })
	if left == 0 {
		left = s.keepIf(func(e *Endpoint) bool { return e.Fresh })
	}
	if left == 0 {
		s.Observer.AllStale()
		return true
	}
	if left < len(s.cand) {
		s.compact()
	}
	return false
}

// keepIf marks the candidates that are to stay, and counts them.
func (s *Scratch) keepIf(stays func(*Endpoint) bool) int {
	s.keep = grow(s.keep, len(s.cand))
	n := 0
	for i := range s.cand {
		s.keep[i] = stays(&s.cand[i])
		if s.keep[i] {
			n++
		}
	}
	return n
}

// standIn scores by what we sent and have not seen end: fewest 1, most 0, all equal 1.
func (s *Scratch) standIn() {
	lo, hi := s.cand[0].InflightRequests, s.cand[0].InflightRequests
	for i := range s.cand {
		lo, hi = min(lo, s.cand[i].InflightRequests), max(hi, s.cand[i].InflightRequests)
	}
	for i := range s.cand {
		s.scores[i] = 1
		if hi > lo {
			s.scores[i] = float32(hi-s.cand[i].InflightRequests) / float32(hi-lo)
		}
	}
}
