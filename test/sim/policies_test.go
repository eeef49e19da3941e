package sim_test

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

// policyFault is the kind of fault in which a policy of what waits panics.
func policyFault(family string) string { return "panic of the policy of " + family }

// fragile are the families of policies that panic.
var fragile = []string{"ceilings", "fairness", "ordering"}

// crack has a policy panic now and then. It costs the decision in hand alone, so that no client is told of it.
func (w *world) crack(family string) {
	if w.faults.strikes(family, .02) || w.faults.aimed(policyFault(family)) {
		w.faults.drew(policyFault(family))
		panic(fault{family})
	}
}

type ordering struct {
	flow.Ordering
	*world
}

func (o *ordering) Key(e *flow.Entry) int64 {
	o.crack("ordering")
	return o.Ordering.Key(e)
}

type fair struct {
	flow.Fairness
	*world
}

func (f *fair) Rank(a *flow.Account, head *flow.Entry) int64 {
	f.crack("fairness")
	return f.Fairness.Rank(a, head)
}

// ceilings lets low priorities fill less of endpoints, now more and now less of them, and never less once the faults
// have ended.
type ceilings struct{ *world }

func (c *ceilings) Ceilings(_ *flow.Usage, out []float64) time.Duration {
	c.crack("ceilings")
	if c.faults.off {
		return 0
	}
	for i := range out[1:] {
		out[i+1] = .5 + c.dice.Float64()/2
	}
	return c.upTo(200 * time.Millisecond)
}
