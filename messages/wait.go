package messages

// Wait says what became of a request that may have to wait for room. The zero Wait is of a request whose configuration
// has no gate.
type Wait struct {
	Outcome Outcome
	Cause   WaitCause // why it had to wait; NoCause = it did not have to
	Ahead   int       // requests that went before it when it joined the line, as things were then
	Failed  int       // turns at which no endpoint had room for it after all
}

// Outcome is how the wait of a request ended. The set is closed.
type Outcome uint8

// What the names say of a request: Rejected, it was not let into the line; Evicted, it was in the line, and left it
// without a pick.
const (
	NoOutcome Outcome = iota // its configuration has no gate

	OutcomeNotYetFinalized // it waits, or has come just now
	OutcomeDispatched      // it left the line for a pick, which may have failed then
	OutcomeRejectedCapacity
	OutcomeRejectedNoEndpoints
	OutcomeRejectedOther
	OutcomeEvictedTTL
	OutcomeEvictedNoEndpoints
	OutcomeEvictedContextCancelled // its client left
	OutcomeEvictedPriority         // it made way for a request of higher priority
	OutcomeEvictedQueuePressure    // it made way for a request of a flow with less waiting
	OutcomeEvictedOther

	outcomes
)

// Outcomes is how many outcomes there are: each is below it.
const Outcomes = int(outcomes)

// String returns the outcome's name, as metrics, the log and JSON carry it. It is the reference's name, where that has
// the outcome.
func (o Outcome) String() string {
	if o < outcomes {
		return outcomeNames[o]
	}
	return "unknown"
}

var outcomeNames = [outcomes]string{
	NoOutcome: "", OutcomeNotYetFinalized: "NotYetFinalized", OutcomeDispatched: "Dispatched",
	OutcomeRejectedCapacity: "RejectedCapacity", OutcomeRejectedNoEndpoints: "RejectedNoEndpoints",
	OutcomeRejectedOther: "RejectedOther", OutcomeEvictedTTL: "EvictedTTL",
	OutcomeEvictedNoEndpoints: "EvictedNoEndpoints", OutcomeEvictedContextCancelled: "EvictedContextCancelled",
	OutcomeEvictedPriority: "EvictedPriority", OutcomeEvictedQueuePressure: "EvictedQueuePressure",
	OutcomeEvictedOther: "EvictedOther",
}

// WaitCause is why a request had to wait. The set is closed.
type WaitCause uint8

const (
	NoCause      WaitCause = iota
	NoRoom                 // no endpoint that it may use had room
	NoneInPool             // the pool had no endpoint
	OthersWaited           // others waited when it came

	waitCauses
)

// String returns the cause's name, as the log and JSON carry it.
func (c WaitCause) String() string {
	if c < waitCauses {
		return waitCauseNames[c]
	}
	return "unknown"
}

var waitCauseNames = [waitCauses]string{
	NoCause: "", NoRoom: "no-room", NoneInPool: "no-endpoints", OthersWaited: "others-waited",
}
