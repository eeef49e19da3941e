package vllm

import "time"

// Clock tells the time and calls back at a later one.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once, on another goroutine or on that which moves the clock, never before it returns. stop
	// takes the call back if it has not begun.
	AfterFunc(d time.Duration, f func()) (stop func())
}

type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}
