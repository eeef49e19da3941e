package messages

import "time"

// FlowMsg is what a flow shard receives.
//
//sumtype:decl
type FlowMsg interface{ flowMsg() }

// FlowStarted begins an incarnation of a flow shard.
//
//	From:  runtime root
//	To:    flow, first
//	Reply: none
type FlowStarted struct {
	Shard int // index of the loop, from 0
}

// AdmissionRequested asks for a place: in the queue, or to run at once.
//
//	From:  cycle
//	To:    flow
//	Reply: exactly one of Dispatched, Rejected, Evicted to Cycle, by Deadline
type AdmissionRequested struct {
	Request  RequestID
	Flow     FlowKey
	Bytes    int64     // of the body that are held for it; 0 = none
	Tokens   int       // prompt tokens, estimated; 0 = unknown
	Deadline time.Time // of the wait; never zero
	Subset   Subset
	Cycle    Sink[CycleMsg]
}

// RequestEnded gives back the place that the flow shard holds for a request, in the queue or to run. An answer may be
// on its way when this is sent, so the cycle does not know which of them it is: the flow shard looks it up. A request
// that it does not know is no error.
//
//	From:  cycle, once, when it ends or gives back what it holds
//	To:    flow
//	Reply: none
type RequestEnded struct{ Request RequestID }

func (FlowStarted) flowMsg()        {}
func (AdmissionRequested) flowMsg() {}
func (RequestEnded) flowMsg()       {}

func (AdmissionRequested) Refusable() {}
