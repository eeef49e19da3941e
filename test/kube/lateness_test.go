package kube

import (
	"slices"
	"time"
)

// lateness is how late the machine is: by how much timers of the test overshoot while it is watched. What a process
// does in time on a quiet machine takes it as much longer. It is none for a process that is slow by itself.
type lateness struct {
	ended chan struct{}
	found chan []time.Duration
}

func watchLateness() *lateness {
	const every = 5 * time.Millisecond
	l := &lateness{ended: make(chan struct{}), found: make(chan []time.Duration, 1)}
	go func() {
		var all []time.Duration
		for {
			began := time.Now()
			select {
			case <-l.ended:
				l.found <- all
				return
			case <-time.After(every):
				all = append(all, time.Since(began)-every)
			}
		}
	}()
	return l
}

// stop returns the p90 and the longest.
func (l *lateness) stop() (p90, longest time.Duration) {
	close(l.ended)
	all := <-l.found
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	return all[len(all)*9/10], all[len(all)-1]
}
