package runtime

import (
	"math"
	"math/rand/v2"
	"slices"
)

// stepped is the state of a system in stepped mode, in which only the caller of Step runs loops.
type stepped struct {
	order *rand.Rand // chooses loops and items; nil in other modes
	loop  *Loop      // that runs an item; nil between two steps
}

// Step runs one item of a loop that the seed chooses. If no loop has one, it moves the clock to the next timer. It
// returns false if there is no timer either. Stepped mode only.
func (s *System) Step() bool {
	var runnable []*Loop
	for _, l := range s.loops {
		if l.batch.left()+len(l.inbox.items) > 0 {
			runnable = append(runnable, l)
		}
	}
	if len(runnable) > 0 {
		l := runnable[s.stepped.order.IntN(len(runnable))]
		if s.cfg.Shuffle {
			l.shuffle(s.stepped.order)
		}
		s.stepped.loop = l
		defer func() { s.stepped.loop = nil }()
		return l.step()
	}
	return s.advance(math.MaxInt64)
}

// advance moves the clock to the next timer and posts itemTimers to its loop. It returns false if there is no timer up
// to limit, in nanoseconds.
func (s *System) advance(limit int64) bool {
	var next *Loop
	for _, l := range s.loops {
		if len(l.timers.heap) > 0 && (next == nil || l.timers.heap[0].at < next.timers.heap[0].at) {
			next = l
		}
	}
	if next == nil || next.timers.heap[0].at > limit {
		return false
	}
	s.clock.now = max(s.clock.now, next.timers.heap[0].at)
	return next.post(item{kind: itemTimers}, false)
}

// pending reports whether a loop has items to run.
func (s *System) pending() bool {
	for _, l := range s.loops {
		if l.batch.left()+len(l.inbox.items) > 0 {
			return true
		}
	}
	return false
}

// shuffle moves an item that the seed chooses to the front of all that waits, or in its place one that must run before.
func (l *Loop) shuffle(order *rand.Rand) {
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	l.batch.items = append(l.batch.items, l.inbox.items...)
	clear(l.inbox.items)
	l.inbox.items = l.inbox.items[:0]
	l.inbox.left.Store(int64(l.batch.left()))
	waiting := l.batch.items[l.batch.pos:]
	i := order.IntN(len(waiting))
	for j := 0; j < i; j++ {
		if waiting[j].precedes(&waiting[i]) {
			i, j = j, -1
		}
	}
	if i > 0 {
		l.batch.overtakes++
		it := waiting[i]
		copy(waiting[1:i+1], waiting[:i])
		waiting[0] = it
	}
}

// precedes reports whether an item must run before a later one of the same inbox. What one actor tells another arrives
// in order. An actor is told nothing and has no children before it has begun. A call sees the effect of all that was
// posted before it, and of nothing that was posted after it.
func (it *item) precedes(later *item) bool {
	outside := []itemKind{it.kind, later.kind}
	switch {
	case slices.Contains(outside, itemCall):
		return true
	case slices.Contains(outside, itemTimers):
		return false
	case it.kind == itemSpawn && later.kind == itemSpawn && later.box.parent == it.box:
		return true
	case it.box != later.box:
		return false
	}
	return it.kind == itemSpawn || it.from == later.from
}

func foldEvent(h uint64, loop int, e Event) uint64 {
	h = mix(h, uint64(loop)<<48|uint64(e.Kind)<<32|uint64(e.Message))
	h = mix(h, e.Actor)
	h = mix(h, uint64(e.Begin))
	return mix(h, uint64(e.Waited))
}

// mix returns one round of splitmix64 over two words.
func mix(a, b uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 ^ b
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
