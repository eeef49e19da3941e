package vllm

import (
	"slices"
	"sync"
	"time"
)

// virtualClock stands still until it is advanced. It can be used from many goroutines.
type virtualClock struct {
	mu     sync.Mutex
	now    time.Time
	serial int
	alarms []alarm
}

type alarm struct {
	at     time.Time
	serial int
	ring   func()
}

// newVirtualClock returns a clock that stands at now.
func newVirtualClock(now time.Time) *virtualClock { return &virtualClock{now: now} }

// Now is where the clock stands.
func (v *virtualClock) Now() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

// AfterFunc has Advance call f when it reaches that time.
func (v *virtualClock) AfterFunc(d time.Duration, f func()) func() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.serial++
	serial := v.serial
	v.alarms = append(v.alarms, alarm{v.now.Add(max(d, 0)), serial, f})
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.alarms = slices.DeleteFunc(v.alarms, func(a alarm) bool { return a.serial == serial })
	}
}

// Advance moves the clock by d and makes the calls that are due on the way, in order of their times, each at its time.
func (v *virtualClock) Advance(d time.Duration) {
	end := v.Now().Add(d)
	for {
		ring := v.due(end)
		if ring == nil {
			return
		}
		ring()
	}
}

// due takes out the first alarm up to end and moves the clock to it; without one it moves the clock to end.
func (v *virtualClock) due(end time.Time) func() {
	v.mu.Lock()
	defer v.mu.Unlock()
	first := -1
	for i, a := range v.alarms {
		if !a.at.After(end) && (first < 0 || a.at.Before(v.alarms[first].at)) {
			first = i
		}
	}
	if first < 0 {
		v.now = end
		return nil
	}
	a := v.alarms[first]
	v.alarms = slices.Delete(v.alarms, first, first+1)
	v.now = a.at
	return a.ring
}
