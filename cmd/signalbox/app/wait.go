package app

import (
	"context"
	"errors"
	"syscall"
	"time"
)

func inBackground(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		f()
		close(done)
	}()
	return done
}

// within says whether done is closed in time.
func within(limit time.Duration, done <-chan struct{}) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// sleep reports whether the time passed before ctx was done.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// remedy is what to do about a port that cannot be had.
func remedy(err error, flag string) string {
	if errors.Is(err, syscall.EADDRINUSE) {
		return "; another process has it: end that, or choose another port with --" + flag
	}
	return ""
}
