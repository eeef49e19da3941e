package schedule

// freshen drops stale candidates if a fresh one is left. True means that all are stale and that it matters.
func (s *Scratch) freshen(p *Profile) bool {
	reads := Reads(0)
	for i := range p.Scorers {
		reads |= p.Scorers[i].Reads
	}
	if reads&(ReadsSample|ReadsLoRA) == 0 {
		return false
	}
	s.keep = grow(s.keep, len(s.cand))
	fresh := 0
	for i := range s.cand {
		s.keep[i] = s.cand[i].Fresh
		if s.cand[i].Fresh {
			fresh++
		}
	}
	if fresh == 0 {
		s.Observer.AllStale()
		return true
	}
	if fresh < len(s.cand) {
		s.compact()
	}
	return false
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
