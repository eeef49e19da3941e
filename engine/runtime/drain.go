package runtime

import "math"

// makeReady puts a loop that has items in line for whoever drains.
func (s *System) makeReady(l *Loop) {
	if s.cfg.Mode == Stepped { // Step looks at every inbox itself
		return
	}
	s.mu.Lock()
	s.ready = append(s.ready, l)
	s.nready.Store(int64(len(s.ready)))
	s.mu.Unlock()
}

func (s *System) takeReady() *Loop {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ready) == 0 {
		return nil
	}
	l := s.ready[0]
	n := copy(s.ready, s.ready[1:])
	s.ready[n] = nil
	s.ready = s.ready[:n]
	s.nready.Store(int64(n))
	return l
}

// drain runs what is ready, at most Budget items; the rest goes to a goroutine of its own. woken is a loop that the caller made
// ready at a moment ago, nil = none: if it is the first in line, its first item begins then.
func (s *System) drain(woken *Loop, at int64) {
	if s.cfg.Mode != Combining {
		return
	}
	budget := s.cfg.Budget
	for {
		l := s.takeReady()
		if l == nil {
			return
		}
		if l == woken {
			l.begin = at
		}
		woken = nil
		if !s.runReady(l, &budget) {
			s.handOver(l)
			return
		}
	}
}

// runReady runs items of one loop until it is idle, another loop is ready, or the budget is spent: false.
func (s *System) runReady(l *Loop, budget *int) bool {
	for {
		if *budget <= 0 {
			l.begin = 0
			return false
		}
		if !l.step() {
			return true
		}
		*budget--
		if s.nready.Load() > 0 {
			l.begin = 0
			s.makeReady(l) // behind the others: no loop waits for all of another's items
			return true
		}
	}
}

func (s *System) handOver(l *Loop) {
	l.stats.handoffs.Add(1)
	s.makeReady(l)
	s.mu.Lock()
	start := s.helpers < len(s.loops)
	if start {
		s.helpers++
	}
	s.mu.Unlock()
	if start {
		s.wg.Go(s.help)
	}
}

// help drains until nothing is ready. It leaves under the lock that also guards the ready list, so nothing stays behind.
func (s *System) help() {
	budget := math.MaxInt
	for {
		l := s.takeReady()
		if l != nil {
			s.runReady(l, &budget)
			continue
		}
		s.mu.Lock()
		if len(s.ready) == 0 {
			s.helpers--
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// Step runs one item of a loop that the seed chooses; with nothing to run it moves the clock to the next timer. False
// means that nothing is left to happen. Stepped mode only.
func (s *System) Step() bool {
	var busy []*Loop
	for _, l := range s.loops {
		if l.pos < len(l.out) || len(l.in) > 0 {
			busy = append(busy, l)
		}
	}
	if len(busy) > 0 {
		l := busy[s.order.IntN(len(busy))]
		if s.cfg.Shuffle {
			l.shuffle(s.order)
		}
		s.stepping = l
		defer func() { s.stepping = nil }()
		return l.step()
	}
	return s.advance(math.MaxInt64)
}

// advance moves the clock to the next timer, if that is not after limit, and puts it in its loop.
func (s *System) advance(limit int64) bool {
	var next *Loop
	for _, l := range s.loops {
		if len(l.timers) > 0 && (next == nil || l.timers[0].at < next.timers[0].at) {
			next = l
		}
	}
	if next == nil || next.timers[0].at > limit {
		return false
	}
	s.clock.now = max(s.clock.now, next.timers[0].at)
	return next.post(item{kind: itemTimers}, false)
}
