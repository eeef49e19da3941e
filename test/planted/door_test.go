package planted

import "testing"

// door has faults in how bodies find memory, and others make way for them.
var door = map[string]contract{
	"room that is made for a claim is taken by others": {fault{
		file: "adapters/extproc/held/budget.go", was: "held+b.owed.Load()+bytes > b.limit-spare",
		is: "held+bytes > b.limit-spare",
	}, "adapters/extproc/held", "TestBudgetKeepsWhatIsClaimed"},
	"memory that comes back is not told": {fault{
		file: "adapters/extproc/held/budget.go", was: "if b.owed.Load() > 0 {\n\t\tb.mu.Lock()",
		is: "if false {\n\t\tb.mu.Lock()",
	}, "adapters/extproc", "TestBodyTakesRoomOfOthers"},
	"a claim that is withdrawn keeps what it was granted": {fault{
		file: "adapters/extproc/held/budget.go", was: "b.Give(c.bytes)", is: "_ = c",
	}, "adapters/extproc/held", "TestBudgetGrantsClaims"},
	"who waits for memory waits for ever": {fault{
		file: "adapters/extproc/request.go", was: "patience := time.NewTimer(st.doorPatience())",
		is: "patience := time.NewTimer(24 * time.Hour)",
	}, "adapters/extproc", "TestBodyTakesRoomOfOthers"},
	"the last eighth is for all": {fault{
		file: "adapters/extproc/request.go", was: "st.request.door.priority < 0 {", is: "false {",
	}, "adapters/extproc", "TestLastEighthIsSpared"},
	"a body takes the room of its betters": {fault{
		file: "engine/flow/displace.go", was: "_, lower := q.totals(key.Priority)", is: "_, lower := q.totals(1 << 31)",
	}, "engine/flow", "TestWhatMakesWayForABody"},
	"who makes way for a body is not told": {fault{
		file: "actors/capacity/capacity.go", was: "displaced := a.queues.Yield(m.Flow, m.Bytes)\n\ta.evict(displaced)",
		is: "displaced := a.queues.Yield(m.Flow, m.Bytes)",
	}, "actors/capacity", "TestBodyHasOthersMakeWay"},
	"who waits when the process ends is forgotten": {fault{
		file: "actors/capacity/capacity.go", was: "e.Cycle.Tell(closing)", is: "_ = e",
	}, "actors/capacity", "TestClosedLineHasOneTurnForEach"},
	"a full class holds up the end": {fault{
		file: "actors/capacity/capacity.go", was: "a.line.Closed() ||\n", is: "false ||\n",
	}, "actors/capacity", "TestClosedLineHasOneTurnForEach"},
	"long ids are held whole": {fault{
		file: "adapters/extproc/headers.go", was: "*dst = string(value[:min(len(value), most)])",
		is: "*dst = string(value)",
	}, "adapters/extproc", "TestIDsOfAMegabyte"},
	"requests are ended for their equals": {fault{
		file: "engine/reclaim/reclaim.go", was: "r.Flow.Priority < priority &&", is: "r.Flow.Priority <= priority &&",
	}, "actors/capacity", "TestNoRequestEndsForItsEqual"},
	"more are ended before the first have": {fault{
		file: "actors/capacity/reclaim.go", was: "|| r.timer != nil ||", is: "||",
	}, "actors/capacity", "TestVictimsAreTheLeastOfThoseThatHelp"},
	"the wrong ones are ended": {fault{
		file: "engine/reclaim/reclaim.go", was: "range v.at[id] {\n\t\t\tif",
		is: "range v.all {\n\t\t\tif v.at[id] != nil &&",
	}, "actors/capacity", "TestVictimsAreTheLeastOfThoseThatHelp"},
	"one that does not end is waited for without end": {fault{
		file: "actors/capacity/reclaim.go", was: "ctx.After(revokedWithin,", is: "ctx.After(1e3*revokedWithin,",
	}, "actors/capacity", "TestVictimThatDoesNotAnswerIsGivenUp"},
	"a light response that has begun is taken for a victim": {fault{
		file: "actors/cycle/detached.go", was: "c.endOffer(ctx, true)\n", is: "",
	}, "actors/cycle", "TestRequestIsOfferedWhileItCanBeEnded"},
	"a request that is ended frees its room too early": {fault{
		file: "actors/cycle/endings.go", was: "c.revoke(ctx, m.Reason, m.RetryAfter)\n",
		is: "c.cut(ctx, m.Reason, m.RetryAfter)\n",
	}, "actors/cycle", "TestRevokedRequestEndsWithItsStream"},
	"a request that was ended is a failure of its server": {fault{
		file: "actors/cycle/cycle.go", was: "&& !m.Logged && m.Answered == messages.NoReason {", is: "&& !m.Logged {",
	}, "actors/cycle", "TestRevokedRequestEndsWithItsStream"},
}

func TestDoorFindsFaultsInTheSource(t *testing.T) { findAll(t, door) }
