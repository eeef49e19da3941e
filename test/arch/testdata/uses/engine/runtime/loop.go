// Package runtime owns clock, goroutines and locks.
package runtime

import (
	"sync"
	"time"
)

type loop struct{ mu sync.Mutex }

func (l *loop) start() {
	go l.mu.Lock()
	_ = time.Now()
}
