package batch

import (
	"slices"
	"strings"
	"time"
)

// LoRASets is a pair of adapter sets as vLLM labels it: names in order, joined by commas.
type LoRASets struct {
	// Running is what runs.
	Running string
	// Waiting is what waits and what runs: vLLM 0.32 repeats the running adapters here.
	Waiting string
	// At is when this was last the state of the engine.
	At time.Time
}

// loraSlots knows which adapters run, wait and lie in a slot.
type loraSlots struct {
	max              int
	running, waiting map[string]int // sequences by adapter
	resident         []string       // adapters in a slot, least recently used first
	seen             []LoRASets
	current          int // index in seen, while not changed
	changed          bool
}

func newLoRASlots(slots int) *loraSlots {
	return &loraSlots{max: slots, running: make(map[string]int), waiting: make(map[string]int), changed: true}
}

// fits reports whether a sequence with this adapter can join the batch.
func (l *loraSlots) fits(adapter string) bool {
	return adapter == "" || l.running[adapter] > 0 || len(l.running) < l.max
}

func (l *loraSlots) wait(adapter string, by int) { l.count(l.waiting, adapter, by) }

// run counts sequences that join or leave the batch, and reports whether the adapter had to be moved into a slot for
// it.
func (l *loraSlots) run(adapter string, by int) (loaded bool) {
	l.count(l.running, adapter, by)
	if adapter == "" || by < 0 {
		return false
	}
	if i := slices.Index(l.resident, adapter); i >= 0 {
		l.resident = append(slices.Delete(l.resident, i, i+1), adapter)
		return false
	}
	if len(l.resident) >= l.max {
		idle := slices.IndexFunc(l.resident, func(a string) bool { return l.running[a] == 0 })
		l.resident = slices.Delete(l.resident, idle, idle+1)
	}
	l.resident = append(l.resident, adapter)
	return true
}

func (l *loraSlots) count(in map[string]int, adapter string, by int) {
	if adapter == "" {
		return
	}
	before := in[adapter]
	if in[adapter] = before + by; before+by == 0 {
		delete(in, adapter)
	}
	l.changed = l.changed || before == 0 || before+by == 0
}

// record notes the adapter sets of this moment.
func (l *loraSlots) record(now time.Time) {
	if l.max == 0 {
		return
	}
	if l.changed {
		l.changed = false
		running, waiting := joined(l.running), joined(l.running, l.waiting)
		l.current = slices.IndexFunc(l.seen, func(s LoRASets) bool {
			return s.Running == running &&
				s.Waiting == waiting
		})
		if l.current < 0 {
			l.current = len(l.seen)
			l.seen = append(l.seen, LoRASets{Running: running, Waiting: waiting})
		}
	}
	l.seen[l.current].At = now
}

func joined(sets ...map[string]int) string {
	var names []string
	for _, set := range sets {
		for name := range set {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ",")
}
