// Package lateness measures how late the machine is, for tests that assert how soon something happens by the wall
// clock.
//
// It owns one goroutine for as long as it watches. It never decides what is too late: that is what was promised, and
// twice what the machine adds to it.
package lateness

import (
	"slices"
	"testing"
	"time"
)

// Watch notes by how much timers overshoot while it lasts. What a process does in time on a quiet machine takes it as
// much longer. It notes nothing of a process that is slow by itself.
type Watch struct {
	ended chan struct{}
	found chan []time.Duration
}

// Begin begins a watch. It must be ended, by End or Within.
func Begin() *Watch {
	const every = 5 * time.Millisecond
	w := &Watch{ended: make(chan struct{}), found: make(chan []time.Duration)}
	go func() {
		var all []time.Duration
		for {
			began := time.Now()
			select {
			case <-w.ended:
				w.found <- append(all, max(0, time.Since(began)-every))
				return
			case <-time.After(every):
				all = append(all, time.Since(began)-every)
			}
		}
	}()
	return w
}

// End ends the watch. It returns by how much nine of ten timers overshot at most, and the longest.
func (w *Watch) End() (p90, longest time.Duration) {
	close(w.ended)
	all := <-w.found
	slices.Sort(all)
	return all[len(all)*9/10], all[len(all)-1]
}

// Within ends the watch. It fails the test if what happened meanwhile took longer than was promised, and twice the
// longest overshoot.
func (w *Watch) Within(t testing.TB, what string, took, promised time.Duration) {
	t.Helper()
	_, longest := w.End()
	t.Logf("FIGURES %s: %v, of %v; the machine is late by %v at most", what, took.Round(time.Millisecond), promised,
		longest.Round(time.Millisecond))
	if limit := promised + 2*longest; took > limit {
		t.Errorf("%s: it took %v, want %v at most", what, took, limit)
	}
}

// Eventually checks every so often until the condition holds. It fails the test if it does not within a time, and twice
// the longest overshoot, and returns how long it took.
func Eventually(t testing.TB, within, every time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	began, longest := time.Now(), time.Duration(0)
	for !holds() {
		if time.Since(began) > within+2*longest {
			t.Fatalf("waited %v in vain, with the machine late by %v: %s", within, longest, what)
		}
		looked := time.Now()
		<-time.After(every)
		longest = max(longest, time.Since(looked)-every)
	}
	return time.Since(began)
}
