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

// pause keeps accepting while Envoy's health checks notice: an idle server may be asked any moment.
func pause(ctx context.Context, delay time.Duration) {
	d := time.NewTimer(delay)
	defer d.Stop()
	select {
	case <-d.C:
	case <-ctx.Done():
	}
}

// remedy is what to do about a port that cannot be had.
func remedy(err error, flag string) string {
	if errors.Is(err, syscall.EADDRINUSE) {
		return "; another process has it: end that, or choose another port with --" + flag
	}
	return ""
}
