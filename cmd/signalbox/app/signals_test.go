package app

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A signal that follows the first one within half a second is the same order: a terminal and a parent may both send it.
func TestSecondSignalCountsAfterAMoment(t *testing.T) {
	for name, c := range map[string]struct {
		after []time.Duration // of each signal, since the one before
		want  int             // position in after of the one that counts; -1 = none does
	}{
		"one":                           {[]time.Duration{0}, -1},
		"one that came twice":           {[]time.Duration{0, 0}, -1},
		"twice, just within the moment": {[]time.Duration{0, sameSignalWithin - 1}, -1},
		"two":                           {[]time.Duration{0, sameSignalWithin}, 1},
		"one that came thrice, and two": {[]time.Duration{0, 0, sameSignalWithin / 2, sameSignalWithin / 2}, 3},
		"two, long after":               {[]time.Duration{time.Second, time.Minute}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals, stopped, counted := make(chan os.Signal, 2), false, make(chan os.Signal, 1)
				go func() { counted <- secondSignal(signals, func() { stopped = true }) }()
				got := -1
				for i, pause := range c.after {
					if stopped && i == 0 {
						t.Error("stopped before the first signal")
					}
					<-time.After(pause) // of the bubble's clock
					signals <- syscall.Signal(i + 1)
					synctest.Wait()
					if !stopped {
						t.Error("the first signal does not stop the command")
					}
					if len(counted) > 0 {
						got = int((<-counted).(syscall.Signal)) - 1
						break
					}
				}
				if got != c.want {
					t.Errorf("signal %d counts, want %d", got, c.want)
				}
				if got < 0 { // for the goroutine to end
					<-time.After(sameSignalWithin)
					signals <- syscall.SIGTERM
					<-counted
				}
			})
		})
	}
}
