package planted

import "testing"

// policies has faults in how flows are charged.
var policies = map[string]contract{
	"output costs nothing": {fault{
		file: "engine/fairness/token.go", was: "a.Service += t.Prompt + t.Output", is: "a.Service += t.Prompt",
	}, "engine/flow", "TestTenantsOfAllSizes"},
	"what is left idle is saved": {fault{
		file: "engine/fairness/token.go", was: "a.Service = max(a.Service,", is: "a.Service = min(a.Service,",
	}, "engine/flow", "TestGapsAreBounded"},
	"what others left idle is held against a flow": {fault{
		file: "engine/flow/charge.go", was: "b.rank = max(b.rank, q.rank(b, &f.account, nil))", is: "",
	}, "engine/flow", "TestRequestsThatNeverWaited"},
	"a turn in vain is charged": {fault{
		file: "engine/flow/charge.go", was: "q.charge(e.band, f, Tokens{Prompt: -DispatchPrompt(e.Prompt)})", is: "",
	}, "engine/flow", "TestQueuesAgreeWithModel"},
	"the turn of a dead cycle is charged": {fault{
		file: "actors/capacity/capacity.go", was: "a.queues.Undo(e)\n\t\t\tcontinue", is: "continue",
	}, "actors/capacity", "TestTurnOfADeadCycle"},
	"a turn that ends without a pick is charged": {fault{
		file: "actors/capacity/capacity.go", was: "a.queues.Undo(e) // its turn came to nothing\n", is: "",
	}, "actors/capacity", "TestTurnWithoutAPick"},
	"a new configuration forgets what flows were charged": {fault{
		file: "engine/flow/queues.go", was: "known && b.settings.orderedAs(&now)",
		is: "known && !b.settings.orderedAs(&now)",
	}, "engine/flow", "TestAccountsOutliveConfigurations"},
	"service is never forgotten": {fault{
		file: "engine/fairness/program_aware.go", was: "-max(now.Sub(a.At).Seconds(), 0) / half", is: "0",
	}, "engine/fairness", "Test"},
	"the wait of a flow's first request means nothing": {fault{
		file: "engine/fairness/program_aware.go", was: "Y: p.LASWeightHeadWait", is: "Y: 0",
	}, "engine/fairness", "Test"},
	"a policy that weighs flows is not asked": {fault{
		file: "engine/flow/next.go", was: "(Chooser); ok {", is: "(Chooser); ok && false {",
	}, "engine/flow", "TestQueuesAgreeWithModel"},
	"a flow that has no room is chosen": {fault{
		file: "engine/flow/next.go", was: "case room(h.first().head):", is: "case h != nil:",
	}, "engine/flow", "TestQueuesAgreeWithModel"},
	"a policy that says no number stays": {fault{
		file: "engine/flow/guard.go", was: "p.X-p.X != 0 || p.Y-p.Y != 0", is: "false",
	}, "engine/flow", "TestPolicyThatAlwaysPanics"},
	"what flows have is worked out once": {fault{
		file: "engine/flow/next.go", was: "q.now.After(b.until)", is: "false",
	}, "engine/flow", "TestChoiceFollowsTime"},
	"a flow that changed counts as what it was": {fault{
		file: "engine/flow/band.go", was: "h.rebox(h.heap.fix(l))", is: "h.heap.fix(l)",
	}, "engine/flow", "TestQueuesAgreeWithModel"},
	"every new id has a flow": {fault{
		file: "engine/flow/ids.go", was: "newcomers = 64", is: "newcomers = 1 << 20",
	}, "engine/flow", "TestMillionIDs"},
	"an id is known by one dispatch": {fault{
		file: "engine/flow/ids.go", was: "knownAfter = 16", is: "knownAfter = 1",
	}, "engine/flow", "TestMillionIDs"},
	"what waits of an id stays where it shared a flow": {fault{
		file: "engine/flow/ids.go", was: "range slices.SortedFunc(maps.Keys(b.sharing[f.id]), byArrival) {",
		is: "range slices.SortedFunc(maps.Keys(b.sharing[\"\"]), byArrival) {",
	}, "engine/flow", "TestIDBecomesKnown"},
	"locality passes a request over for ever": {fault{
		file: "engine/flow/next.go", was: "if found.over < quantum {", is: "if true {",
	}, "engine/flow", "TestLocalityKeeps"},
	"locality knows no turns": {fault{
		file: "engine/flow/next.go", was: "turn.rank+quantum)", is: "1<<62)",
	}, "engine/flow", "TestLocalityKeeps"},
	"locality looks at full classes": {fault{
		file: "engine/flow/next.go", was: "case room(h.first().head):", is: "case h != nil:",
	}, "engine/flow", "TestRequestsGo"},
	"a place that was taken draws requests": {fault{
		file: "actors/capacity/capacity.go", was: "\ta.places.taken(m.Endpoint)\n", is: "",
	}, "actors/capacity", "TestTakenPlaces"},
	"a place without room draws requests": {fault{
		file: "actors/capacity/capacity.go", was: "\t\tclear(a.places.free)\n", is: "",
	}, "actors/capacity", "TestTakenPlaces"},
	"a turn goes where prompts are and no room is": {fault{
		file: "actors/capacity/locality.go", was: "most = max(most, matches[id.Slot])",
		is: "for _, n := range matches {\n\t\t\tmost = max(most, n)\n\t\t}\n\t\t_ = id",
	}, "actors/capacity", "TestTurnGoes"},
	"a new configuration sheds what waits": {fault{
		file: "engine/flow/queues.go", was: "if (b.total != Total{}) || newest", is: "if newest",
	}, "engine/flow", "TestQueuesAgreeWithModelUnder"},
	"bands of priorities that are gone stay": {fault{
		file: "engine/flow/queues.go", was: "slices.Contains(s.Priorities, b.priority)", is: "true",
	}, "engine/flow", "TestRemovedBands"},
	"long requests are passed over for ever": {fault{
		file: "engine/orderings/shortest_work.go", was: "return e.Arrived.UnixNano()/2 + int64(ages)/2",
		is: "return int64(ages) / 2",
	}, "engine/flow", "TestAgeingBounds"},
	"weights of the file mean nothing": {fault{
		file: "engine/config/flowcontrol.go", was: "s.Weights = of.FlowWeights()", is: "_ = of",
	}, "engine/config", "TestLoadWeights"},
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

// usageLimits has faults in how full endpoints may be.
var usageLimits = map[string]contract{
	"bands without room save their share": {fault{
		file: "engine/flow/queues.go", was: "min(max(b.due, 0), 1+b.settings.MinShare)", is: "max(b.due, 0)",
	}, "engine/flow", "TestLeastShares"},
	"a band that is owed its share, and has no room, holds up the others": {fault{
		file: "engine/flow/queues.go", was: "q.floored = true\n\t\tif e := q.nextOf(b, room); e != nil {",
		is: "q.floored = true\n\t\tif e := q.nextOf(b, room); true {",
	}, "engine/flow", "TestQueuesAgreeWithModelByLocality"},
	"a new least share holds for new bands alone": {fault{
		file: "engine/flow/queues.go", was: "b.settings.MinShare = now.MinShare", is: "_ = now.MinShare",
	}, "engine/flow", "TestQueuesAgreeWithModelUnder"},
	"a dispatch in vain counts for the shares": {fault{
		file: "engine/flow/charge.go", was: "\t\tq.dispatched = nil\n", is: "",
	}, "engine/flow", "TestLeastShares"},
	"a least share ends at the ceiling": {fault{
		file: "actors/capacity/capacity.go", was: "case a.queues.Floored():", is: "case false:",
	}, "actors/capacity", "TestLeastShare"},
	"a low priority without room holds up higher ones": {fault{
		file: "actors/capacity/capacity.go", was: "priority > failed.priority", is: "priority < failed.priority",
	}, "actors/capacity", "TestClassIsFull"},
	"a ceiling that rises is no room": {fault{
		file: "actors/capacity/ceilings.go", was: "if a.ceilings.Set(list) {", is: "if a.ceilings.Set(list); false {",
	}, "actors/capacity", "TestRisingCeiling"},
	"a usage limit is forgotten": {fault{
		file: "actors/capacity/ceilings.go", was: "within <= 0 ||", is: "true ||",
	}, "actors/capacity", "TestUsageLimitIsAsked"},
	"ceilings rise as priority falls": {fault{
		file: "engine/flow/ceilings.go", was: "max(min(share, most), leastShare)", is: "max(min(share, 1), leastShare)",
	}, "engine/flow", "TestCeilingsKeep"},
	"a usage limit that panics is asked for ever": {fault{
		file: "engine/flow/ceilings.go", was: "value)\n\tq.limitFaults++", is: "value)",
	}, "engine/flow", "TestUsageLimitThatPanics"},
	"load is taken up to the whole capacity": {fault{
		file: "actors/cycle/wait.go", was: "c.plan.Bounds(out.Ceiling)", is: "c.plan.Bounds(1)",
	}, "actors/cycle", "TestLoadKeeps"},
	"every request has the ceiling of the highest priority": {fault{
		file: "engine/schedule/scheduler.go", was: "s.tools.Ceilings.Of(req.Priority)",
		is: "s.tools.Ceilings.Of(1 << 30)",
	}, ".", "TestLowPriorities"},
	"a ceiling outlives its request": {fault{
		file: "engine/schedule/scheduler.go",
		was:  "s.run.observer, s.run.gate, s.run.ceiling = nil, nil, nil, nil, 0",
		is:   "s.run.observer, s.run.gate, _ = nil, nil, nil, nil, 0",
	}, "engine/schedule", "TestNoCeiling"},
	"queues know no ceiling": {fault{
		file: "engine/detectors/utilization.go",
		was:  "endpoints.Part(d.QueueDepthThreshold, ceiling*(1+d.Headroom))",
		is:   "endpoints.Part(d.QueueDepthThreshold, 1+d.Headroom)",
	}, "engine/detectors", "TestRoomBelow"},
	"a band that is held back is always served": {fault{
		file: "engine/ceilings/soft_reflective.go", was: "if !open {", is: "if false {",
	}, "engine/ceilings", "TestCeilings"},
}

func TestUsageLimitsFindFaultsInTheSource(t *testing.T) { findAll(t, usageLimits) }

func TestPoliciesFindFaultsInTheSource(t *testing.T) { findAll(t, policies) }
