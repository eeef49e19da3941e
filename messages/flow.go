package messages

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

// AdmissionRequested asks for a place.
//
//	From:  cycle
//	To:    flow
//	Reply: Dispatched to Cycle; if Gated is set and others wait, flow tells capacity WaitRequested, which answers
type AdmissionRequested struct {
	Gated bool // the request may have to wait for room
	Wait  WaitRequested
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
