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

// AdmissionRequested asks for a place in line, or to go at once.
//
//	From:  cycle
//	To:    flow
//	Reply: exactly one of Dispatched, Rejected, Evicted to Cycle, by Deadline
type AdmissionRequested struct {
	Request  RequestID
	Flow     FlowKey
	Bytes    int64     // body bytes held for it; 0 = none
	Tokens   int       // prompt tokens, estimated; 0 = unknown
	Deadline time.Time // of the wait; never zero
	Subset   Subset
	Cycle    Sink[CycleMsg]
}

// RequestEnded gives back what the flow holds for a request: its place in line, the credit it runs on, or nothing. An
// answer may be on its way while this is sent, so the flow looks up which it is; a request that it does not know is
// no error.
//
//	From:  cycle, once, when it ends or gives back what it holds
//	To:    flow
//	Reply: none
type RequestEnded struct{ Request RequestID }

func (FlowStarted) flowMsg()        {}
func (AdmissionRequested) flowMsg() {}
func (RequestEnded) flowMsg()       {}

func (AdmissionRequested) Refusable() {}
