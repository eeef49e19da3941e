package runtime

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Loops is how many loops there are.
func (s *System) Loops() int { return len(s.loops) }

// Root is the parent of what shall live on loop i directly.
func (s *System) Root(i int) Parent { return Ref[any]{s.loops[i].root} }

// Now is the system's clock, which no jump of the wall clock moves.
func (s *System) Now() time.Time { return s.clock.time(s.clock.nanos()) }

// Nanos is the same clock in nanoseconds since the start.
func (s *System) Nanos() int64 { return s.clock.nanos() }

// Rand is loop i's source. Only what runs on the loop may use it.
func (s *System) Rand(i int) *rand.Rand { return s.loops[i].rand }

// End stops an actor and its children, in the order of its inbox. The channel closes when it has ended.
func End(who Target) <-chan struct{} {
	box := who.(Parent).target()
	done := make(chan struct{})
	box.loop.post(item{kind: itemCall, msg: func() {
		if box.ended {
			close(done)
			return
		}
		box.onEnd = append(box.onEnd, done)
		box.stop()
	}}, true)
	return done
}

// Close ends all actors that are left and then the loops. Nothing may be told to any actor afterwards.
func (s *System) Close(ctx context.Context) error {
	var late error
	for i, l := range s.loops {
		ended := End(Ref[any]{l.root})
		for s.clock.virtual && s.pending() {
			s.Step()
		}
		select {
		case <-ended:
		case <-ctx.Done():
			late = fmt.Errorf("loop %d still has actors: %w", i, ctx.Err())
		}
	}
	if late != nil {
		return late
	}
	for _, l := range s.loops {
		if !s.clock.virtual {
			s.quiet(l)
		}
	}
	s.wg.Wait()
	return nil
}

// quiet stops what wakes a loop.
func (s *System) quiet(l *Loop) {
	done := make(chan struct{})
	l.post(item{kind: itemCall, msg: func() {
		if l.alarm != nil {
			l.alarm.Stop()
		}
		close(done)
	}}, true)
	<-done
}

// StepUntil runs all that happens in the next d of virtual time, and ends with the clock there. Stepped mode only.
func (s *System) StepUntil(d time.Duration) {
	until := s.clock.now + int64(d)
	for {
		if s.pending() {
			s.Step()
			continue
		}
		if !s.advance(until) {
			s.clock.now = until
			return
		}
	}
}

func (s *System) pending() bool {
	for _, l := range s.loops {
		if l.pos < len(l.out) || len(l.in) > 0 {
			return true
		}
	}
	return false
}

// Stats are counts of one loop since the start.
type Stats struct {
	Messages, Dropped, Panics, Refused, Handoffs uint64
	Waited                                       time.Duration // in the inbox, all messages together
	Inbox                                        int           // items now
}

// Stats of loop i. For any goroutine.
func (s *System) Stats(i int) Stats {
	l := s.loops[i]
	l.mu.Lock()
	inbox := len(l.in) + int(l.left.Load())
	l.mu.Unlock()
	return Stats{
		Messages: l.stats.messages.Load(), Dropped: l.stats.dropped.Load(), Panics: l.stats.panics.Load(),
		Refused: l.stats.refused.Load(), Handoffs: l.stats.handoffs.Load(),
		Waited: time.Duration(l.stats.waitedNanos.Load()), Inbox: inbox,
	}
}

// Timers is how many timers are set on loop i. Stepped mode only.
func (s *System) Timers(i int) int { return len(s.loops[i].timers) }

// Hash is a digest of all that the loops did, in their order. Stepped mode only.
func (s *System) Hash() uint64 {
	var h uint64
	for _, l := range s.loops {
		h = mix(h, l.ringHash)
	}
	return h
}

// Events copies the ring of loop i, oldest first. It waits for the loop.
func (s *System) Events(ctx context.Context, i int) ([]Event, error) {
	l := s.loops[i]
	got := make(chan []Event, 1)
	l.post(item{kind: itemCall, msg: func() { got <- l.ring.newest(len(l.ring.events)) }}, true)
	select {
	case e := <-got:
		return e, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func foldEvent(h uint64, loop int, e Event) uint64 {
	h = mix(h, uint64(loop)<<48|uint64(e.Kind)<<32|uint64(e.Message))
	h = mix(h, e.Actor)
	h = mix(h, uint64(e.Begin))
	return mix(h, uint64(e.Waited))
}

// mix is one round of splitmix64 over two words.
func mix(a, b uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 ^ b
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
