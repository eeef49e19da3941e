package runtime

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Lapse lets d of virtual time pass while all that waits goes on waiting, as on a machine that was busy with something else:
// messages grow old, timers come late. It says how many timers fell due. Stepped mode only.
func (s *System) Lapse(d time.Duration) (due int) {
	s.clock.now += max(int64(d), 0)
	for _, l := range s.loops {
		before := due
		for _, t := range l.timers {
			if t.at <= s.clock.now {
				due++
			}
		}
		if due > before {
			l.post(item{kind: itemTimers}, false)
		}
	}
	return due
}

// Waiting is how many items wait in all inboxes together. Stepped mode only.
func (s *System) Waiting() int {
	n := 0
	for _, l := range s.loops {
		n += len(l.out) - l.pos + len(l.in)
	}
	return n
}

// Overtakes is how many items of loop i ran before older ones. Stepped mode only.
func (s *System) Overtakes(i int) uint64 { return s.loops[i].overtakes }

// Watches is how many watches are kept of the actors on loop i. Stepped mode only.
func (s *System) Watches(i int) int { return s.loops[i].watches }

// shuffle brings an item that the seed chooses to the front of all that waits. What must run before it goes first.
func (l *Loop) shuffle(order *rand.Rand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = append(l.out, l.in...)
	clear(l.in)
	l.in = l.in[:0]
	l.left.Store(int64(len(l.out) - l.pos))
	l.state = running
	waiting := l.out[l.pos:]
	i := order.IntN(len(waiting))
	for j := 0; j < i; j++ {
		if waiting[j].precedes(&waiting[i]) {
			i, j = j, -1
		}
	}
	if i > 0 {
		l.overtakes++
		it := waiting[i]
		copy(waiting[1:i+1], waiting[:i])
		waiting[0] = it
	}
}

// precedes says that of two items in one inbox the older one must run first: what one actor tells another arrives in order,
// nobody is told anything, or has children, before it is born, and whoever calls from outside sees what was there.
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
