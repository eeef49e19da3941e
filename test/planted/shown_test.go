package planted

import "testing"

// shown has faults in what is told of waits.
var shown = map[string]contract{
	"a wait in vain has no length": {fault{
		file: "actors/cycle/wait.go", was: "c.endWait(ctx, ctx.Now().Sub(began), outcome(",
		is: "c.endWait(ctx, 0, outcome(",
	}, "actors/cycle", "TestOutcomesOfWaits"},
	"who was displaced was evicted for some reason": {fault{
		file: "actors/cycle/wait.go", was: "return cmp.Or(evictions[why], messages.OutcomeEvictedOther)",
		is: "return messages.OutcomeEvictedOther",
	}, "actors/cycle", "TestOutcomesOfWaits"},
	"a client that leaves is not counted": {fault{
		file: "actors/cycle/cycle.go", was: "\tc.endWaitInVain(ctx)\n", is: "",
	}, "actors/cycle", "TestOutcomesOfWaits"},
	"requests wait for ever on the page": {fault{
		file: "actors/cycle/wait.go", was: "\tc.account.onLeft(&c.rec)\n", is: "",
	}, "actors/cycle", "TestOutcomesOfWaits"},
	"a turn in vain fills the record": {fault{
		file: "actors/cycle/record.go", was: "r.count, r.rec.Dropped = r.before.count, r.before.dropped", is: "",
	}, "actors/cycle", "TestTurnsInVainTakeNoRoomInTheRecord"},
	"the outcome is lost with the cycle": {fault{
		file: "engine/records/pack.go", was: "messages.Outcome(u.octet())", is: "messages.Outcome(0*u.octet())",
	}, "engine/records", "TestUnpackingGivesWhatWasPacked"},
	"series of waits cost nothing": {fault{
		file: "actors/cycle/meters.go", was: "m.set != rest && !m.Families.labels.reserve(bytes, room(m.set))",
		is: "m.set != rest && bytes < 0",
	}, "actors/cycle", "TestWaitsWithoutRoomCountUnderOther"},
	"flows may fill the page": {fault{
		file: "actors/cycle/labels.go", was: "flowPageBytes = requestPageBytes / 4",
		is: "flowPageBytes = requestPageBytes",
	}, "actors/cycle", "TestManyFlowsAreFewSeries"},
	"limits of an older configuration are shown": {fault{
		file: "actors/capacity/capacity.go",
		was:  "a.queues.Configure(*a.deps.Settings())\n\t\ta.deps.Metrics.configure(a.queues)",
		is:   "a.queues.Configure(*a.deps.Settings())",
	}, "actors/capacity", "TestSharesFollowTheConfiguration"},
	"a stage is as full as the pool": {fault{
		file: "survey.go", was: "survey.Saturation(stage.servers)", is: "survey.Saturation(nil)",
	}, ".", "TestSaturationIsShownByStage"},
	"a detector that panics ends the process": {fault{
		file: "survey.go", was: "if recover() != nil {\n\t\t\tall = nil", is: "if false {\n\t\t\tall = nil",
	}, ".", "TestPageOutlivesADetectorThatPanics"},
	"the longest flows come last": {fault{
		file: "engine/flow/look.go", was: "cmp.Compare(b.Waiting.Requests, a.Waiting.Requests)",
		is: "cmp.Compare(a.Waiting.Requests, b.Waiting.Requests)",
	}, "engine/flow", "TestLook"},
	"a flow that left has bytes": {fault{
		file: "engine/flow/band.go", was: "\tf.bytes -= e.Bytes\n", is: "",
	}, "engine/flow", "TestLook"},
	"a query gives a turn": {fault{
		file: "actors/capacity/query.go", was: "m.Admin.Tell(answer)\n",
		is: "m.Admin.Tell(answer)\n\ta.onRoomChanged(messages.EndpointID{})\n",
	}, "actors/capacity", "TestWhatWaitsCanBeQueried"},
	"who is asked too late is waited for": {fault{
		file: "adapters/admin/requests.go",
		was:  "fail(w, http.StatusServiceUnavailable, \"late\",\n", is: "fail(w, http.StatusOK, \"late\",\n",
	}, "adapters/admin", "TestFlowPageThatCannotBeShown"},
	"requests without a gate say that they did not wait": {fault{
		file: "adapters/extproc/response.go", was: "if q := st.response.queue; q.Gated {",
		is: "if q := st.response.queue; true {",
	}, "adapters/extproc", "TestAnswersSayHowLongTheirRequestsWaited"},
}

func TestShownFindsFaultsInTheSource(t *testing.T) { findAll(t, shown) }
