package discovery

import (
	"context"
	"sync/atomic"
)

// Life has a source of endpoints run once, until its context is done or it is closed. Any goroutine may call it.
type Life struct {
	begun  atomic.Bool   // or it was closed before it began
	ended  chan struct{} // closed when what ran has returned, or cannot begin any more
	ctx    context.Context
	cancel context.CancelFunc
}

// NewLife returns a life that has not begun.
func NewLife() *Life {
	l := &Life{ended: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Run calls run with a context that is done when ctx is, or Close is called. A second call returns at once.
func (l *Life) Run(ctx context.Context, run func(context.Context)) {
	if !l.begun.CompareAndSwap(false, true) {
		return
	}
	defer close(l.ended)
	defer context.AfterFunc(ctx, l.cancel)()
	defer l.cancel()
	run(l.ctx)
}

// Close ends Run and waits for it. If Run has not begun, it cannot begin any more.
func (l *Life) Close() {
	l.cancel()
	if l.begun.CompareAndSwap(false, true) {
		close(l.ended)
	}
	<-l.ended
}

// Done is closed when what runs has to end.
func (l *Life) Done() <-chan struct{} { return l.ctx.Done() }
