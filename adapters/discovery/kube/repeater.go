package kube

import (
	"context"
	"time"
)

// tellAgain is how soon what was not taken is told again.
const tellAgain = time.Second

// repeater tells what comes, one at a time. It outlives a panic of take.
type repeater[T any] struct {
	next   <-chan T
	take   func(T) (taken bool)
	newest T
	due    bool // newest is not taken yet
}

// run tells until ctx is done. What was not taken, be it for a panic, is told again, unless something else has come.
func (t *repeater[T]) run(ctx context.Context) {
	for {
		var again <-chan time.Time
		if t.due {
			again = time.After(tellAgain)
		}
		select {
		case t.newest = <-t.next:
		case <-again:
		case <-ctx.Done():
			return
		}
		t.due = true
		t.due = !t.take(t.newest)
	}
}
