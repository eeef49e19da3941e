package chaos

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// rates are the chances that an actor panics at a message. Half of them come before it was handled, half after. Those
// of cycles follow from the request.
var rates = map[string]float64{
	"capacity": .005, "memory": .01, "outlier": .005, "prefix": .001, "pool": .08, "recorder": .01,
	"scraper": .025, "shard": .01,
}

const cycleRate = .002 // the chance that a cycle panics at a message

// fault is the value of a panic that was drawn.
type fault struct{ where string }

// faults says when something goes wrong, for any goroutine.
type faults struct {
	seed uint64
	off  atomic.Bool

	mu     sync.Mutex
	counts map[string]int // faults met, by kind
	calls  map[string]uint64
}

// newFaults are off: begin has them come.
func newFaults(seed uint64) *faults {
	f := &faults{seed: seed, counts: map[string]int{}, calls: map[string]uint64{}}
	f.off.Store(true)
	return f
}

// met writes a fault down.
func (f *faults) met(kind string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[kind]++
}

func (f *faults) all() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}

// next is the dice of the next occurrence of something that no request stands for.
func (f *faults) next(what string) *rand.Rand {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[what]++
	return diceOf(f.seed, what, f.calls[what])
}

// diceOf are the dice of one occurrence of something: the same in every run of a seed.
func diceOf(seed uint64, what string, n uint64) *rand.Rand {
	h := uint64(14695981039346656037) // FNV-1a: maphash differs from process to process
	for _, c := range []byte(what) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed^h, n))
}

// falls panics if it is to. It reports whether the panic came, which it does by not returning.
func (f *faults) falls(actor, message, when string) {
	f.met("panic of " + actor + " " + when + " a message")
	panic(fault{actor + " " + when + " " + message})
}

const (
	before = "before"
	after  = "after"
)

// draw says when an actor panics at a message; "" = not at this one.
func (f *faults) draw(dice *rand.Rand, rate float64) string {
	switch p := dice.Float64(); {
	case f.off.Load() || p >= rate:
		return ""
	case p < rate/2:
		return before
	}
	return after
}

// shaky is an actor that panics before or after it handled a message, or in the end, once it gave back what it held.
type shaky[M any] struct {
	runtime.Actor[M]
	*faults
	name string
}

func shaken[M any](f *faults, name string, a runtime.Actor[M]) runtime.Actor[M] {
	return &shaky[M]{Actor: a, faults: f, name: name}
}

func (s *shaky[M]) Receive(ctx runtime.Context[M], m M) {
	message, rate := reflect.TypeOf(m).Name(), rates[s.name]
	when := s.draw(s.next(s.name), rate)
	// a restart loses the message in hand, and an actor that is told to end does nothing that fails
	if when == before && message != "EndpointWithdrawn" {
		lose(m)
		s.falls(s.name, message, before)
	}
	s.Actor.Receive(ctx, m)
	if when != "" {
		s.falls(s.name, message, after)
	}
}

func (s *shaky[M]) Stopped(ctx runtime.Context[M]) {
	s.Actor.Stopped(ctx)
	if s.draw(s.next(s.name+" stopped"), .05) != "" {
		s.falls(s.name, "Stopped", after)
	}
}

// frail is a cycle whose panics follow from its request.
type frail struct {
	runtime.Actor[messages.CycleMsg]
	*faults
	dice *rand.Rand
}

func (c *frail) Receive(ctx runtime.Context[messages.CycleMsg], m messages.CycleMsg) {
	message, when := reflect.TypeOf(m).Name(), c.draw(c.dice, cycleRate)
	if when == before {
		c.falls("cycle", message, before)
	}
	c.Actor.Receive(ctx, m)
	if when == after {
		c.falls("cycle", message, after)
	}
}

func (c *frail) Stopped(ctx runtime.Context[messages.CycleMsg]) {
	c.Actor.Stopped(ctx)
	if c.draw(c.dice, cycleRate) != "" {
		c.falls("cycle", "Stopped", after)
	}
}

// poisoned is a parser that panics at some bodies: those of model-poison.
type poisoned struct {
	extproc.Parser
	*faults
}

const poison = "model-poison"

func (p poisoned) Parse(path, contentType, contentEncoding string, body []byte, into *messages.Request) error {
	err := p.Parser.Parse(path, contentType, contentEncoding, body, into)
	if into.Model == poison && !p.off.Load() {
		p.met("panic of a stream")
		panic(fault{"parser"})
	}
	return err
}

// policies puts faulty skins around the policies of what waits; nil = nothing waits.
func (f *faults) policies(s *flow.Settings) *flow.Settings {
	if s != nil {
		s.Default.Ordering = &ordering{s.Default.Ordering, f}
		s.Default.Fairness = &fairness{s.Default.Fairness.(flow.Meter), f}
	}
	return s
}

// crack has a policy panic now and then, which costs the decision in hand alone.
func (f *faults) crack(policy string) {
	if f.draw(f.next(policy), .02) != "" {
		f.met("panic of the policy of " + policy)
		panic(fault{policy})
	}
}

type ordering struct {
	flow.Ordering
	*faults
}

func (o *ordering) Key(e *flow.Entry) int64 {
	o.crack("ordering")
	return o.Ordering.Key(e)
}

type fairness struct {
	flow.Meter
	*faults
}

func (p *fairness) Rank(a *flow.Account, head *flow.Entry) int64 {
	p.crack("fairness")
	return p.Meter.Rank(a, head)
}
