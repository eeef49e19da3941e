package runtime

import (
	"math"
	"sync"
	"sync/atomic"
)

// line holds the loops that are runnable and not drained. Whatever posts from outside takes loops off it, and so do
// helpers: goroutines that run what the budget of a poster leaves over.
type line struct {
	mu      sync.Mutex
	loops   []*Loop // under mu: each at most once
	helpers int     // under mu: at most one for each loop of the system
	size    atomic.Int64
	wg      sync.WaitGroup // of helpers
}

func (q *line) put(l *Loop) {
	q.mu.Lock()
	q.loops = append(q.loops, l)
	q.size.Store(int64(len(q.loops)))
	q.mu.Unlock()
}

// take returns the loop that has waited longest, nil = none.
func (q *line) take() *Loop {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.loops) == 0 {
		return nil
	}
	l := q.loops[0]
	n := copy(q.loops, q.loops[1:])
	q.loops[n] = nil
	q.loops = q.loops[:n]
	q.size.Store(int64(n))
	return l
}

// makeRunnable puts a loop in line for whatever drains.
func (s *System) makeRunnable(l *Loop) {
	if s.cfg.Mode != Stepped {
		s.line.put(l)
	}
}

// drain runs the loops in line, at most Budget items; the rest goes to a goroutine of its own. woken is a loop that the
// caller made runnable at a moment ago, nil = none: if it is the first in line, its first item begins then.
func (s *System) drain(woken *Loop, at int64) {
	if s.cfg.Mode != Combining {
		return
	}
	budget := s.cfg.Budget
	for {
		l := s.line.take()
		if l == nil {
			return
		}
		if l == woken {
			l.hand.next = at
		}
		woken = nil
		if !s.runLoop(l, &budget) {
			s.handOver(l)
			return
		}
	}
}

// runLoop runs items of one loop until it is idle or another loop is runnable. It reports false if the budget was spent
// first.
func (s *System) runLoop(l *Loop, budget *int) bool {
	for {
		if *budget <= 0 {
			l.hand.next = 0
			return false
		}
		if !l.step() {
			return true
		}
		*budget--
		if s.line.size.Load() > 0 {
			l.hand.next = 0
			s.makeRunnable(l) // behind the others: no loop waits for all of another's items
			return true
		}
	}
}

func (s *System) handOver(l *Loop) {
	l.stats.handoffs.Add(1)
	s.makeRunnable(l)
	q := &s.line
	q.mu.Lock()
	start := q.helpers < len(s.loops)
	if start {
		q.helpers++
	}
	q.mu.Unlock()
	if start {
		q.wg.Go(s.help)
	}
}

// help drains until no loop is runnable. It leaves under the lock that also guards the line, so that nothing stays
// behind.
func (s *System) help() {
	budget, q := math.MaxInt, &s.line
	for {
		l := q.take()
		if l != nil {
			s.runLoop(l, &budget)
			continue
		}
		q.mu.Lock()
		if len(q.loops) == 0 {
			q.helpers--
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
	}
}
