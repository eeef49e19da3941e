package flow_test

import (
	"math"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/displacements"
	"github.com/signalbox-epp/signalbox/engine/flow"
)

// unsure knows nothing of the flow with one request waiting.
type unsure struct{ displacements.LongestFlow }

func (u unsure) Excess(a *flow.Account, last *flow.Entry) float64 {
	if a.Requests == 1 {
		return math.NaN()
	}
	return u.LongestFlow.Excess(a, last)
}

// The displacement says which flow of the lowest band loses its last request, and whether a request takes a place in
// its own band.
func TestDisplacementDecidesWhatMakesWay(t *testing.T) {
	for name, c := range map[string]struct {
		by     flow.Displacement
		loses  string // the flow that makes way for a higher priority
		own    bool   // a request of flow c takes the place of another one of its band
		losing string // of that flow
	}{
		"the longest flow":   {new(displacements.LongestFlow), "a", true, "a"},
		"the newest request": {new(displacements.NewestRequest), "b", false, ""},
		"not a number":       {unsure{}, "a", true, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			b := band(fcfs, robin, flow.Limits{})
			b.Displacement = c.by
			q, w := flow.New(everywhere(b, flow.Limits{Requests: 4})), new(waiting)
			push(t, q, w.of("a", 0), w.of("a", 0), w.of("a", 0), w.of("b", 0))
			displaced, ok := q.Push(w.of("c", 0))
			if ok != c.own || ok && displaced[0].Flow.Fairness != c.losing {
				t.Errorf("of its own priority: waits %t, want %t; %d make way", ok, c.own, len(displaced))
			}
			if !c.own && q.Total().Requests != 4 {
				t.Errorf("it is refused, and %d wait", q.Total().Requests)
			}
			q = flow.New(everywhere(b, flow.Limits{Requests: 4}))
			push(t, q, w.of("a", 0), w.of("a", 0), w.of("a", 0), w.of("b", 0))
			displaced, ok = q.Push(w.of("d", 1))
			if !ok || len(displaced) != 1 || displaced[0].Flow.Fairness != c.loses || !displaced[0].Priority {
				t.Errorf("of a higher priority: waits %t, %d make way, want one of %s", ok, len(displaced), c.loses)
			}
		})
	}
}
