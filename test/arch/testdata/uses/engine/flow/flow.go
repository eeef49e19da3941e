// Package flow does what only the runtime may.
package flow

import (
	"math/rand/v2"
	. "strings"
	locks "sync"
	"sync/atomic"
	"time"
)

type queue struct {
	mu   locks.Mutex
	done locks.WaitGroup
	all  locks.Map
	n    atomic.Int64
}

func (q *queue) run(clock interface{ Now() time.Time }, rng *rand.Rand) {
	go q.run(clock, rng)
	q.done.Go(func() {})
	time.AfterFunc(time.Second, func() {})
	_ = clock.Now()
	_ = time.Now()
	_ = time.Since(time.Time{})
	_ = rand.IntN(3)
	_ = rng.IntN(3)
	_ = rand.New(rand.NewPCG(1, 2))
	_ = ToLower("")
}

func shadowed(rand *rand.Rand) int { return rand.IntN(3) }
