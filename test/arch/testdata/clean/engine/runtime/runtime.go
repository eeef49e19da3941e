// Package runtime owns goroutines and locks.
package runtime

import (
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// Loop is one loop.
type Loop struct {
	mu    sync.Mutex
	actor actor.Actor
}

// Start starts it.
func (l *Loop) Start() time.Time {
	go l.mu.Lock()
	return time.Now()
}
