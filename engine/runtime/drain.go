package runtime

import (
	"math"
	"sync"
	"sync/atomic"
)

// runQueue holds the runnable loops that nothing drains. Goroutines that post from outside take loops from it, and so
// do helpers: goroutines that run what the budget of a poster leaves over.
type runQueue struct {
	mu      sync.Mutex
	loops   []*Loop // under mu: each at most once
	helpers int     // under mu: at most one for each loop of the system
	size    atomic.Int64
	wg      sync.WaitGroup // of helpers
}

func (q *runQueue) put(l *Loop) {
	q.mu.Lock()
	q.loops = append(q.loops, l)
	q.size.Store(int64(len(q.loops)))
	q.mu.Unlock()
}

// take removes the loop that has waited longest and returns it; nil = none.
func (q *runQueue) take() *Loop {
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

// makeRunnable puts a loop in the run queue. Stepped mode has none.
func (s *System) makeRunnable(l *Loop) {
	if s.cfg.Mode != Stepped {
		s.queue.put(l)
	}
}

// drain runs the loops of the run queue for at most Budget items, and leaves the rest to a helper. woken is a loop that
// the caller has just made runnable, at the time at; nil = none. If it comes first, its first item begins at that time,
// which saves a reading of the clock.
func (s *System) drain(woken *Loop, at int64) {
	if s.cfg.Mode != Combining {
		return
	}
	budget := s.cfg.Budget
	for {
		l := s.queue.take()
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
		if s.queue.size.Load() > 0 {
			l.hand.next = 0
			s.makeRunnable(l) // behind the others, so that no loop waits for all items of another
			return true
		}
	}
}

// handOver leaves a loop to a helper, and starts one unless there are as many as loops.
func (s *System) handOver(l *Loop) {
	l.stats.handoffs.Add(1)
	s.makeRunnable(l)
	q := &s.queue
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

// help is a helper: it runs loops until the run queue is empty. It sees that, and signs off, under the lock of the
// queue, so that no loop is put there in between and left waiting.
func (s *System) help() {
	budget, q := math.MaxInt, &s.queue
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
