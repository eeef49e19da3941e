package sim_test

import (
	"math"
	"math/rand/v2"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// rates are the chances that an actor panics at a message. Half of them come before it was handled, half after.
var rates = map[string]float64{
	"cycle": .003, "flow": .001, "prefix": .001, "pool": .1, "recorder": .004, "scraper": .01, "shard": .01,
}

const (
	again  = .35  // the chance that the next message of the same kind of actor meets a fault too
	plugin = 1e-3 // the chance of a fault in one call of a plugin
)

// fault is the value of a panic that was drawn.
type fault struct{ where string }

// faults says when something goes wrong.
type faults struct {
	dice   *rand.Rand
	ledger *ledger
	off    bool
	streak map[string]bool
}

func (f *faults) strikes(where string, p float64) bool {
	if f.off || p == 0 {
		return false
	}
	if f.streak == nil {
		f.streak = map[string]bool{}
	}
	if f.streak[where] && where != "shard" { // a shard that falls again and again takes its loop out of service
		p = again
	}
	f.streak[where] = f.dice.Float64() < p
	return f.streak[where]
}

// shaky is an actor that panics before or after it handled a message.
type shaky[M any] struct {
	runtime.Actor[M]
	faults *faults
	name   string
}

func shaken[M any](f *faults, name string, a runtime.Actor[M]) runtime.Actor[M] {
	f.ledger.born[name]++
	return &shaky[M]{a, f, name}
}

func (s *shaky[M]) Receive(ctx runtime.Context[M], m M) {
	if !s.faults.strikes(s.name, rates[s.name]) {
		s.Actor.Receive(ctx, m)
		return
	}
	if s.faults.dice.IntN(2) == 0 && !spared(m) {
		if m, ok := any(m).(messages.RequestArrived); ok {
			s.faults.ledger.of(m.Request.ID).excused = true
		}
		panic(fault{s.name + " before"})
	}
	s.Actor.Receive(ctx, m)
	panic(fault{s.name + " after"})
}

// spared says that nobody panics before he has handled m. A restart loses the message in hand; who is told to end does
// nothing that could fail before he does.
func spared(m any) bool {
	_, end := m.(messages.EndpointWithdrawn)
	return end
}

func (s *shaky[M]) Stopped(ctx runtime.Context[M]) {
	s.faults.ledger.died[s.name]++
	s.Actor.Stopped(ctx)
}

// profiles puts a faulty skin around the scorers and pickers.
func (f *faults) profiles(ps []schedule.Profile) []schedule.Profile {
	for i := range ps {
		for j := range ps[i].Scorers {
			ps[i].Scorers[j].Scorer = &scorer{ps[i].Scorers[j].Scorer, f}
		}
		ps[i].Picker.Picker = &picker{ps[i].Picker.Picker, f}
	}
	return ps
}

type scorer struct {
	schedule.Scorer
	faults *faults
}

func (s *scorer) Score(in *schedule.Input, scores []float32) {
	s.Scorer.Score(in, scores)
	if !s.faults.strikes("scorer", plugin) {
		return
	}
	s.faults.ledger.plugins++
	switch s.faults.dice.IntN(3) {
	case 0:
		scores[0] = float32(math.NaN())
	case 1:
		scores[0] = -7
	default:
		panic(fault{"scorer"})
	}
}

type picker struct {
	schedule.Picker
	faults *faults
}

func (p *picker) Pick(in *schedule.Input, totals []float32, ranked []int) []int {
	got := p.Picker.Pick(in, totals, ranked)
	if !p.faults.strikes("picker", plugin) {
		return got
	}
	p.faults.ledger.plugins++
	switch p.faults.dice.IntN(4) {
	case 0:
		return got[:0]
	case 1:
		return append(got, got[0])
	case 2:
		return append(got, len(totals))
	default:
		panic(fault{"picker"})
	}
}
