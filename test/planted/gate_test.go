package planted

import "testing"

// gate has faults in how requests wait for room.
var gate = map[string]contract{
	"a request that finds no room is refused": {
		fault{
			file: "actors/cycle/wait.go",
			was:  "\tc.giveRoomBack()\n\tc.chargeTurn(false)\n",
			is: "\tc.refuse(ctx, messages.PickFailed{Reason: " +
				"messages.NoCapacity})\n\tc.giveRoomBack()\n\tc.chargeTurn(false)\n",
		},
		"actors/cycle",
		"Test",
	},
	"a window does not bound the load": {fault{
		file: "engine/endpoints/places.go",
		was:  "window, _ := e.Window()\n\t\tof = window.Part(r.Share).and(of)",
		is:   "of = Room{}",
	}, "actors/cycle", "TestWindowBoundsLoad"},
	"a window that nothing waits behind stays": {fault{
		file: "engine/window/window.go", was: "\t\tw.requests = min(w.requests+step, most)\n", is: "",
	}, "engine/window", "Test"},
	"a server that tells nothing is held back": {fault{
		file: "engine/window/window.go", was: "if load.Requests >= Initial {", is: "if load.Requests >= 0 {",
	}, "engine/window", "TestNothingTold"},
	"a server of which nothing tells any more stays held back": {fault{
		file: "engine/window/window.go", was: "if w.page.told() {\n\t\tw.grow(",
		is: "if true {\n\t\tw.grow(",
	}, "engine/window", "TestNothingTold"},
	"a page of something else bounds a server": {fault{
		file: "engine/endpoints/endpoints.go", was: "return s != nil && !math.IsNaN(",
		is: "return s != nil || math.IsNaN(",
	}, "actors/window", "TestNothingKnown"},
	"the flag does not have requests wait": {fault{
		file: "engine/config/config.go", was: "if flowControl(defaults.Gates) {", is: "if false {",
	}, "engine/config", "TestDefaultHas"},
	"a window never shrinks": {fault{
		file: "engine/window/window.go", was: "w.requests, w.found = smaller, smaller", is: "w.found = smaller",
	}, "engine/window", "Test"},
	"room at an ejected endpoint counts": {fault{
		file: "engine/schedule/run.go", was: "case len(r.place) > 0 && (!dropped || !r.allOutliers()):",
		is: "case len(r.place) > 0:",
	}, "engine/schedule", "Test"},
	"a page that stands still is read": {fault{
		file: "engine/window/page.go", was: "p.honest && p.still < frozenAfter", is: "p.honest",
	}, "engine/window", "Test"},
	"a page that hides requests is read": {fault{
		file: "engine/window/page.go", was: "s.known() && s.Waiting+s.Running >=", is: "s.known() && 1e9 >=",
	}, "engine/window", "Test"},
	"long prompts seem to wait": {fault{
		file: "engine/window/firsts.go", was: "f.floors[class].add(now, took)", is: "f.floors[0].add(now, took)",
	}, "engine/window", "Test"},
	"those who wait do not hear of a larger window": {fault{
		file: "actors/window/window.go", was: "a.bell.Ring()", is: "",
	}, "actors/window", "Test"},
	"the log's first tokens teach nothing": {fault{
		file: "actors/cycle/observation.go", was: "c.timeFirstToken(c.rec.FirstToken - c.rec.Decided)", is: "",
	}, "actors/cycle", "Test"},
	"who takes the last place is not asked": {fault{
		file: "engine/endpoints/load.go", was: "if old >= int64(below) {", is: "if false {",
	}, "engine/endpoints", "Test"},
	"two pick at once for one place": {fault{
		file: "engine/endpoints/load.go", was: "if word.CompareAndSwap(old, old+n) {",
		is: "others := make(chan bool)\n\t\tgo close(others)\n\t\tgo func() {}()\n\t\t<-others // come between\n" +
			"\t\tif word.Store(old + n); true {",
	}, "engine/endpoints", "TestTakeKeepsToTheRoomUnderConcurrency"},
	"room that is given back is not told": {fault{
		file: "actors/cycle/holdings.go", was: "c.loaded(false)\n\t\tc.deps.Bell.RingAt(c.served.ID)",
		is: "c.loaded(false)",
	}, ".", "TestOrderHoldsOverAllLoops"},
	"room that changes during a turn is not noticed": {fault{
		file: "actors/capacity/prices.go", was: "\ta.turn.changes(at)\n", is: "",
	}, "actors/capacity", "Test"},
	"a flow that crowds finds a class full for all": {fault{
		file: "actors/capacity/capacity.go", was: "crowded := e.Crowds() && !a.queues.Floored()",
		is: "crowded := false",
	}, "actors/capacity", "TestCrowdThatLeaves"},
	"requests wait for room that a new configuration gives": {
		fault{
			file: "actors/capacity/capacity.go",
			was:  "		a.onRoomChanged(messages.EndpointID{}) // flows",
			is:   "		// flows",
		},
		"actors/capacity",
		"TestSettingsThatLetCrowds",
	},
	"a full class holds up the others": {fault{
		file: "actors/capacity/capacity.go", was: "failed, full := a.failure(e.Class)",
		is: "failed, full := failure{priority: 1 << 31}, len(a.full) > 0",
	}, "actors/capacity", "Test"},
	"a class stays full for ever": {fault{
		file: "actors/capacity/prices.go", was: "\tclear(a.full)\n\tif at", is: "\tif at",
	}, "actors/capacity", "Test"},
	"a class that has room again is not looked at": {fault{
		file: "actors/capacity/prices.go", was: "\ta.queues.Open(class)\n", is: "\t_ = class\n",
	}, "actors/capacity", "Test"},
	"a flow that was served keeps its turn in full classes": {fault{
		file: "engine/flow/classes.go", was: "\t\t\tl.stale = true\n", is: "",
	}, "engine/flow", "TestTurnsGoOnWhileAClassIsFull"},
	"what waits for one endpoint is never asked again": {
		fault{
			file: "actors/capacity/prices.go",
			was:  "a.prices.timer = nil\n\tclear(a.prices.full)\n",
			is:   "a.prices.timer = nil\n",
		},
		"actors/capacity",
		"TestPrices",
	},
	"a request that has left is held against its endpoint": {fault{
		file: "actors/cycle/wait.go", was: "c.unhold()\n\tc.unloadStages()\n", is: "c.unloadStages()\n",
	}, "actors/cycle", "TestCrashReleases"},
	"a class stays full while nothing waits": {fault{
		file: "actors/capacity/capacity.go", was: "if n == 0 {\n\t\tclear(a.full)", is: "if n < 0 {\n\t\tclear(a.full)",
	}, "actors/capacity", "TestEmptyLine"},
	"a turn is waited for without end": {fault{
		file: "actors/capacity/capacity.go",
		was:  "a.turn.timer = ctx.After(turnWithin, messages.TurnOverdue{Turn: a.turn.number})",
		is:   "a.turn.timer = ctx.After(1e6*turnWithin, messages.TurnOverdue{Turn: a.turn.number})",
	}, "actors/capacity", "Test"},
	"a request whose turn takes long loses its place": {fault{
		file: "actors/capacity/capacity.go", was: "a.late[e.Request] = lateTurn{m.Turn, e}\n", is: "",
	}, "actors/capacity", "TestTurnThatIsNotAnswered"},
	"a crash of capacity answers nobody": {fault{
		file: "actors/capacity/capacity.go", was: "e.Cycle.Tell(failed)", is: "_ = e",
	}, "actors/capacity", "Test"},
	"requests pass those that wait": {fault{
		file: "actors/cycle/cycle.go", was: "c.deps.Bell.Line.HoldsUp(m.Flow.Priority)", is: "false",
	}, "actors/cycle", "Test"},
	"requests wait behind those of lower priority": {fault{
		file: "engine/flow/shared.go", was: "&& int64(priority) <= l.first.Load()", is: "",
	}, "actors/cycle", "TestRequestPasses"},
	"requests pass those that a least share brings forward": {fault{
		file: "engine/flow/queues.go", was: "\t\tcase b.settings.MinShare > 0:\n\t\t\treturn math.MaxInt\n", is: "",
	}, "engine/flow", "TestFirst"},
	"one who leaves before it has heard of its wait stays in the line": {
		fault{
			file: "actors/cycle/wait.go",
			was:  "c.held.wait, _ = tell[messages.CapacityMsg](c, ctx, c.deps.Bell.To, toCapacity, ask)",
			is:   "tell[messages.CapacityMsg](c, ctx, c.deps.Bell.To, toCapacity, ask)",
		},
		"actors/cycle",
		"Test",
	},
	"a request that is put back loses its turn": {fault{
		file: "engine/flow/charge.go", was: "f.account.Served = e.before", is: "_ = f",
	}, "engine/flow", "TestReturnedRequestKeepsItsTurn"},
	"what the gate said counts for the next request": {fault{
		file: "engine/schedule/run.go", was: "r.full, r.roomy = false, nil", is: "r.roomy = nil",
	}, "engine/schedule", "Test"},
	"an optional run is left out for want of room": {fault{
		file: "engine/schedule/scheduler.go", was: "if !next.Optional || s.run.full {", is: "if !next.Optional {",
	}, "engine/schedule", "Test"},
	"room at an endpoint that filters drop is waited for": {fault{
		file: "engine/schedule/run.go", was: "if filter = r.filter(p, rec); filter != \"\" {", is: "if false {",
	}, "engine/schedule", "Test"},
	"filters do not matter to who waits for whom": {fault{
		file: "engine/schedule/shadow.go", was: "\t\tif kept {", is: "\t\tif kept && false {",
	}, "engine/schedule", "TestReach"},
	"requests of an empty pool are of one class for ever": {fault{
		file: "actors/cycle/wait.go", was: "	if c.wait.classified == snap.Version {",
		is: "	if c.wait.asked.Class > 0 {",
	}, ".", "TestRequestsOfAnEmptyPool"},
	"a request keeps its class when endpoints change": {fault{
		file: "actors/cycle/wait.go", was: "if c.wait.classified == snap.Version {", is: "if c.wait.classified > 0 {",
	}, ".", "TestNewServerIsFor"},
	"requests of an older set of endpoints are of the class of now": {fault{
		file: "engine/flow/flow.go", was: "binary.LittleEndian.PutUint64(words[:8], reach.Pool)", is: "",
	}, ".", "TestNewServerIsFor"},
	"classes meet by chance": {fault{
		file: "engine/flow/flow.go", was: "return Class(d.Sum64())", is: "return Class(d.Sum64() % 64)",
	}, ".", "TestRequestsWaitForTheirOwn"},
	"a server whose streams never end is bounded for ever": {fault{
		file: "actors/window/window.go", was: "ctx.After(time.Second, messages.WindowsDue{})", is: "_ = time.Second",
	}, "actors/window", "TestEndpointThatTellsNothing"},
	"a server that was ejected has the window of before": {fault{
		file: "actors/window/window.go", was: "e.window.Lost(ctx.Now())", is: "_ = e",
	}, "actors/window", "TestWindowOfAnEjected"},
	"a server that restarts is flooded": {fault{
		file: "engine/window/window.go", was: "w.requests, w.tokens, w.found = Initial, 0, 0", is: "_ = from",
	}, "engine/window", "TestLostEndpointBeginsAnew"},
	"those that wait for a sequence to end count as those that wait for a prompt": {fault{
		file: "engine/window/work.go", was: "p.full.rate() >= p.best.most(now)/2", is: "p.best.most(now) > 0",
	}, "test/bench/overload", "TestTenantsDoNotHarmEachOther"},
	"a new server is flooded before its first page": {fault{
		file: "scrapers.go", was: "scraper.ReadsPage(&cfg.Scraping, e.Spec) {",
		is: "scraper.ReadsPage(&cfg.Scraping, e.Spec) && false {",
	}, "test/bench/overload", "TestPoolThatChanges"},
	"the request in hand is forgotten": {fault{
		file: "actors/capacity/capacity.go", was: "a.hand.Tell(failed)", is: "_ = failed",
	}, "actors/capacity", "TestCrash"},
	"a pause counts as a slow line": {fault{
		file: "actors/capacity/drain.go", was: "d.passed, d.since = d.span(), time.Time{}", is: "_ = d.passed",
	}, "actors/capacity", "TestRetryAfter"},
	"a line of which few leave is told to be quick": {fault{
		file: "actors/capacity/drain.go", was: "return min(d.rate, slow)", is: "return d.rate",
	}, "actors/capacity", "TestRetryAfter"},
	"a dispatch from a flow that ids share opens a place": {fault{
		file: "engine/flow/ids.go", was: "b.remember(id, q.now, newcomerFor)", is: "b.remember(id, q.now, 0)",
	}, "engine/flow", "TestFullBand"},
	"a wait ends late": {fault{
		file: "actors/cycle/deadlines.go", was: "ctx.After(c.due.Sub(ctx.Now()), messages.CycleDeadlinePassed",
		is: "ctx.After(c.due.Sub(ctx.Now())+300*time.Millisecond, messages.CycleDeadlinePassed",
	}, ".", "TestWaitsEndOnTime"},
	"a client may wait as long as it likes": {fault{
		file: "engine/flow/settings.go", was: "return min(turn, told), min(without, told)", is: "return told, told",
	}, "actors/cycle", "TestClientsPatience"},
	"the detector stays a filter of its profiles": {fault{
		file: "engine/config/loader.go", was: "\tl.leaveToGate(profiles)\n", is: "",
	}, "engine/config", "TestLoadGate"},
	"limits of bands are none by default": {fault{
		file: "engine/config/flowcontrol.go", was: "cmp.Or(int64(b.MaxRequests), bandRequests)",
		is: "int64(b.MaxRequests)",
	}, "engine/config", "TestLoadFlowControl"},
}

func TestGateFindsFaultsInTheSource(t *testing.T) { findAll(t, gate) }
