package endpoints

import (
	"math"
	"sync/atomic"
	"time"
)

// stamped is a number and when it was brought up to date, in one word. The number is a float32, and the time the lower
// bits of the milliseconds of Unix.
type stamped struct{ word atomic.Uint64 }

// change replaces the number by one that follows from it and from the seconds that have passed. A clock that was set
// back has let none pass.
func (s *stamped) change(now time.Time, next func(number, passed float64) float64) {
	for {
		old := s.word.Load()
		number := math.Float32bits(float32(next(read(old, now))))
		if s.word.CompareAndSwap(old, uint64(number)<<32|uint64(uint32(now.UnixMilli()))) {
			return
		}
	}
}

func read(word uint64, now time.Time) (number, passed float64) {
	since := max(int32(uint32(now.UnixMilli())-uint32(word)), 0)
	return float64(math.Float32frombits(uint32(word >> 32))), float64(since) / 1000
}

// arrivals counts the requests that were sent of late: each loses two thirds of its weight within arrivalsOver.
type arrivals struct{ stamped }

// arrivalsOver is over how many seconds a rate of requests is a mean.
const arrivalsOver = 20

func (a *arrivals) add(now time.Time) {
	a.change(now, func(count, passed float64) float64 { return faded(count, passed) + 1 })
}

// rate returns how many requests were sent in a second.
func (a *arrivals) rate(now time.Time) float64 { return faded(read(a.word.Load(), now)) / arrivalsOver }

func faded(count, passed float64) float64 {
	if count == 0 {
		return 0
	}
	return count * math.Exp(-passed/arrivalsOver)
}

// pool holds tokens of prompts, of which an endpoint computes so many in a second.
type pool struct{ stamped }

func (p *pool) add(tokens, rate int, now time.Time) {
	p.change(now, func(level, passed float64) float64 { return drained(level, passed, rate) + float64(tokens) })
}

// left returns how many are left.
func (p *pool) left(rate int, now time.Time) int {
	level, passed := read(p.word.Load(), now)
	return int(drained(level, passed, rate))
}

func drained(level, passed float64, rate int) float64 { return max(level-passed*float64(rate), 0) }
