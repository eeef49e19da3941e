package messages

// FlowMsg is what a flow shard receives.
//
//sumtype:decl
type FlowMsg interface{ flowMsg() }

// AdmissionRequested asks for a place in line.
//
//	From:  cycle
//	To:    flow
//	Reply: Dispatched
type AdmissionRequested struct {
	Request RequestID
	Cycle   Sink[CycleMsg]
}

// LinesAsked asks who waits; a query.
//
//	From:  admin
//	To:    flow
//	Reply: PickMade to Admin
type LinesAsked struct{ Admin Sink[StreamMsg] }

func (AdmissionRequested) flowMsg() {}
func (LinesAsked) flowMsg()         {}

func (AdmissionRequested) Refusable() {}
func (LinesAsked) Refusable()         {}
