package messages

import "time"

// CycleMsg is what a cycle receives.
//
//sumtype:decl
type CycleMsg interface{ cycleMsg() }

// RequestArrived begins a cycle.
//
//	From:  stream
//	To:    cycle, once, as its first message
//	Reply: exactly one of PickMade | PickFailed to Stream,
//	       by Deadline
type RequestArrived struct {
	Request  Request
	Deadline time.Time // never zero
	Stream   Sink[StreamMsg]
}

// Request is what the adapter parsed.
type Request struct {
	ID     RequestID
	Tokens int // 0 = unknown
	Blocks List[uint64]
}

// Dispatched ends the wait.
//
//	From:  flow
//	To:    cycle
//	Reply: none
type Dispatched struct {
	Waited time.Duration // 0 = did not wait
}

func (RequestArrived) cycleMsg() {}
func (Dispatched) cycleMsg()     {}

func (RequestArrived) Refusable() {}
