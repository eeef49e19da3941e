package displacements_test

import (
	"testing"

	"github.com/signalbox-epp/signalbox/engine/displacements"
	"github.com/signalbox-epp/signalbox/engine/flow"
)

func TestWhatMakesWay(t *testing.T) {
	flows := []struct {
		account flow.Account
		last    uint64 // number of its last request
	}{
		{flow.Account{Requests: 5, Weight: 1}, 7}, {flow.Account{Requests: 9, Weight: 3}, 20},
		{flow.Account{Requests: 1, Weight: .1}, 3},
	}
	for typ, want := range map[string]int{
		"longest-flow-displacement-policy": 2, "newest-request-displacement-policy": 1,
	} {
		p, most := displacements.Types[typ](), 0
		excess := func(i int) float64 {
			a := flows[i].account
			return p.Excess(&a, &flow.Entry{Order: flow.Order{Number: flows[i].last}})
		}
		for i := range flows {
			if excess(i) > excess(most) {
				most = i
			}
		}
		if most != want {
			t.Errorf("%s: flow %d makes way, want %d", typ, most, want)
		}
	}
}
