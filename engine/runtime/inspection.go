package runtime

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/internal"
)

// Inspection is what only tests may see of a System and do to it. runtimetest.Inspect returns it.
type Inspection struct{ *System }

// Inspection returns the inspection of a system. Only runtimetest can call it, for it alone has the key.
func (s *System) Inspection(internal.Tests) Inspection { return Inspection{s} }

// StepUntil runs everything that happens within d of virtual time, and leaves the clock at its end. Stepped mode only.
func (in Inspection) StepUntil(d time.Duration) {
	until := in.clock.now + int64(d)
	for {
		if in.pending() {
			in.Step()
			continue
		}
		if !in.advance(until) {
			in.clock.now = until
			return
		}
	}
}

// Lapse lets d of virtual time pass while nothing runs, as on a machine that is busy with something else: messages wait
// and timers come late. It returns how many timers are due then. Stepped mode only.
func (in Inspection) Lapse(d time.Duration) (due int) {
	in.clock.now += max(int64(d), 0)
	for _, l := range in.loops {
		before := due
		for _, t := range l.timers.heap {
			if t.at <= in.clock.now {
				due++
			}
		}
		if due > before {
			l.post(item{kind: itemTimers}, false)
		}
	}
	return due
}

// Waiting returns how many items wait in all inboxes together. Stepped mode only.
func (in Inspection) Waiting() int {
	n := 0
	for _, l := range in.loops {
		n += l.batch.left() + len(l.inbox.items)
	}
	return n
}

// Overtakes returns how many items of loop i ran before older ones. Stepped mode only.
func (in Inspection) Overtakes(i int) uint64 { return in.loops[i].batch.overtakes }

// Watches returns how many watches are kept of the actors on loop i. Stepped mode only.
func (in Inspection) Watches(i int) int { return in.loops[i].actors.watches }

// Timers returns how many timers are set on loop i. Stepped mode only.
func (in Inspection) Timers(i int) int { return len(in.loops[i].timers.heap) }

// Hash returns a digest of all that the loops did, in their order. Stepped mode only.
func (in Inspection) Hash() uint64 {
	var h uint64
	for _, l := range in.loops {
		h = mix(h, l.record.hash)
	}
	return h
}

// Lineage is a kind of actor that a loop has carried: its role, and the role of its parent.
type Lineage struct {
	Loop   int    // from 0
	Name   string // of the role; "loop" is the root of the loop's actors
	Parent string // "" = it has none
	Policy Policy
}

// Lineages returns the kinds of actors that were spawned so far, loop by loop, in the order in which each kind was
// first spawned. It waits for the loops.
func (in Inspection) Lineages(ctx context.Context) ([]Lineage, error) {
	var all []Lineage
	for i, l := range in.loops {
		got := make(chan []lineage, 1)
		l.post(item{kind: itemCall, msg: func() { got <- slices.Clone(l.actors.lineages) }}, true)
		select {
		case lineages := <-got:
			for _, each := range lineages {
				name, parent := in.ActorName(each.kind), in.ActorName(each.parent)
				all = append(all, Lineage{Loop: i, Name: name, Parent: parent, Policy: each.policy})
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("loop %d: %w", i, ctx.Err())
		}
	}
	return all, nil
}

// Events returns the ring of loop i, oldest first. It waits for the loop.
func (in Inspection) Events(ctx context.Context, i int) ([]Event, error) {
	l := in.loops[i]
	got := make(chan []Event, 1)
	l.post(item{kind: itemCall, msg: func() { got <- l.record.ring.newest(len(l.record.ring.events)) }}, true)
	select {
	case e := <-got:
		return e, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
