package planted

import "testing"

// policies has faults in how flows are charged.
var policies = map[string]contract{
	"output costs nothing": {fault{
		file: "engine/fairness/token.go", was: "return t.Prompt + t.Output", is: "return t.Prompt",
	}, "engine/flow", "TestTenantsOfAllSizes"},
	"what is left idle is saved": {fault{
		file: "engine/fairness/token.go", was: "a.Service = max(a.Service,", is: "a.Service = min(a.Service,",
	}, "engine/flow", "TestGapsAreBounded"},
	"what others left idle is held against a flow": {fault{
		file: "engine/flow/charge.go", was: "b.rank = max(b.rank, q.rank(b, &f.account, nil))", is: "",
	}, "engine/flow", "TestRequestsThatNeverWaited"},
	"a turn in vain is charged": {fault{
		file: "engine/flow/charge.go", was: "q.charge(e.band, f, -e.paid)", is: "",
	}, "engine/flow", "TestQueuesAgreeWithModel"},
	"the turn of a dead cycle is charged": {fault{
		file: "actors/capacity/capacity.go", was: "a.queues.Undo(e)\n", is: "",
	}, "actors/capacity", "TestTurnOfADeadCycle"},
	"a new configuration forgets what flows were charged": {fault{
		file: "engine/flow/queues.go", was: "newest && b.settings.orderedAs(&now)",
		is: "newest && !b.settings.orderedAs(&now)",
	}, "engine/flow", "TestAccountsOutliveConfigurations"},
	"requests that did not wait are not charged": {fault{
		file: "actors/cycle/wait.go", was: "func (c *Cycle) chargeAll() {\n",
		is: "func (c *Cycle) chargeAll() {\n\tif c.wait.told.Prompt == 0 {\n\t\treturn\n\t}\n",
	}, "actors/cycle", "TestFlowIsCharged"},
	"output is charged while nobody waits": {fault{
		file: "actors/cycle/wait.go", was: "|| !c.deps.Bell.Line.Waits() ", is: "",
	}, "actors/cycle", "TestFlowIsCharged"},
	"output is charged again and again": {fault{
		file: "actors/cycle/wait.go", was: "\tc.wait.told = used\n", is: "",
	}, "actors/cycle", "TestFlowIsCharged"},
	"a request that no server answered is charged": {fault{
		file: "actors/cycle/wait.go", was: "c.wait.picked && c.rec.Local == \"\"", is: "c.wait.picked",
	}, "actors/cycle", "TestFlowIsCharged"},
}

func TestPoliciesFindFaultsInTheSource(t *testing.T) { findAll(t, policies) }
