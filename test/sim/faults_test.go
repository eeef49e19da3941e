package sim_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// rates are the chances that an actor panics at a message, on top of what is aimed at one kind of message. Half of
// them come before it was handled, half after.
var rates = map[string]float64{
	"capacity": .002, "cycle": .003, "outlier": .01, "prefix": .001, "memory": .01, "pool": .03,
	"window":   .01,
	"recorder": .004,
	"scraper":  .01, "shard": .002,
}

const again = .35 // the chance that the next message of the same kind of actor meets a fault too

// fault is the value of a panic that was drawn.
type fault struct{ where string }

// faults says when something goes wrong.
type faults struct {
	dice   *rand.Rand
	ledger *ledger
	off    bool
	streak map[string]bool
	aims   map[string]int // faults of actors and plugins by kind: at which occurrence; each comes once
	seen   map[string]int // occurrences of each kind
	down   map[string]int // actors that fell and have not begun anew, by name
}

func newFaults(dice *rand.Rand, g *ledger) *faults {
	f := &faults{dice: dice, ledger: g, streak: map[string]bool{}, aims: map[string]int{}, seen: map[string]int{},
		down: map[string]int{}}
	for _, kind := range append(panics(), slips()...) {
		if dice.IntN(4) > 0 {
			f.aims[kind] = 1 + dice.IntN(2)*dice.IntN(10)
		}
	}
	return f
}

// drew writes down a fault that comes now.
func (f *faults) drew(kind string) { f.ledger.drawn[kind]++ }

// strikes reports whether a fault comes now.
func (f *faults) strikes(where string, p float64) bool {
	if f.off || p == 0 {
		return false
	}
	if f.streak[where] && where != "shard" { // a shard that falls again and again takes its loop out of service
		p = again
	}
	f.streak[where] = f.dice.Float64() < p
	return f.streak[where]
}

// aimed reports whether the fault of this kind that was aimed at one of its occurrences comes now.
func (f *faults) aimed(kind string) bool {
	if f.off {
		return false
	}
	f.seen[kind]++
	return f.aims[kind] == f.seen[kind]
}

// panicked reports whether an actor panics at a message, and when.
func (f *faults) panicked(actor, message string) string {
	early, late := panicAt(actor, message, before), panicAt(actor, message, after)
	hitEarly, hitLate, struck := f.aimed(early), f.aimed(late), f.strikes(actor, rates[actor])
	if struck && f.dice.IntN(2) == 0 {
		hitEarly = true
	}
	switch {
	case hitEarly && !spared[message]:
		return before
	case hitLate || struck:
		return after
	}
	return ""
}

// spared are messages before which nothing panics. A restart loses the message in hand; what is told to end does
// nothing that could fail before he does.
var spared = map[string]bool{"EndpointWithdrawn": true}

// shaky is an actor that panics before or after it handled a message. It also sees what no actor may see: a message
// after its end.
type shaky[M any] struct {
	runtime.Actor[M]
	*faults
	name string
	over string // why no message may come any more
}

func shaken[M any](f *faults, name string, a runtime.Actor[M]) runtime.Actor[M] {
	f.ledger.born[name]++
	return &shaky[M]{Actor: a, faults: f, name: name}
}

// Why no message may come any more.
const (
	told  = "it had stopped"
	fell  = "a panic"
	ended = "its end"
)

// stopping is a context that tells of Stop.
type stopping[M any] struct {
	runtime.Context[M]
	over *string
}

func (s stopping[M]) Stop() {
	*s.over = told
	s.Context.Stop()
}

func (s *shaky[M]) Receive(ctx runtime.Context[M], m M) {
	message := reflect.TypeOf(m).Name()
	if s.over != "" {
		s.ledger.broken("%s was given %s after %s", s.name, message, s.over)
	}
	when := ""
	if _, product := rates[s.name]; product {
		when = s.panicked(s.name, message)
	}
	if when == before {
		if m, ok := any(m).(messages.RequestArrived); ok {
			s.ledger.of(m.Request.ID).excused = true
		}
		s.falls(message, before)
	}
	s.Actor.Receive(stopping[M]{ctx, &s.over}, m)
	if when == after {
		s.falls(message, after)
	}
}

func (s *shaky[M]) falls(message, when string) {
	kind := panicAt(s.name, message, when)
	s.drew(kind)
	if s.over != ended {
		s.over = fell
		s.down[s.name]++
	}
	panic(fault{kind})
}

// Stopped panics, if it does, once the actor gave back what it held: what comes before that is the actor's own.
func (s *shaky[M]) Stopped(ctx runtime.Context[M]) {
	s.ledger.died[s.name]++
	if s.over == fell {
		s.down[s.name]--
	}
	s.over = ended
	s.Actor.Stopped(ctx)
	kind := panicAt(s.name, stopped, ending)
	if _, product := rates[s.name]; product && (s.aimed(kind) || !s.off && s.dice.IntN(500) == 0) {
		s.falls(stopped, ending)
	}
}

// broken writes down a rule that did not hold.
func (g *ledger) broken(format string, args ...any) {
	g.breaches = append(g.breaches, fmt.Sprintf(format, args...))
}
