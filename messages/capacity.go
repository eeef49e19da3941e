package messages

import "time"

// CapacityMsg is what the capacity actor receives: the holder of all requests that wait for room.
//
//sumtype:decl
type CapacityMsg interface{ capacityMsg() }

// CapacityStarted begins an incarnation of the capacity actor, at which nothing waits.
//
//	From:  runtime root
//	To:    capacity, first
//	Reply: none
type CapacityStarted struct{}

// WaitRequested asks for a turn, and for a place in the line until then.
//
//	From:  cycle, when no endpoint had room for the request, or others waited that go before it
//	To:    capacity
//	Reply: Queued, then exactly one of Dispatched, Rejected, Evicted to Cycle, unless WaitEnded comes first
type WaitRequested struct {
	Request  RequestID
	Flow     FlowKey
	Class    uint64     // of requests for which the same endpoints would do; 0 = it is not known yet
	Wanted   EndpointID // the full endpoint that it waits for; zero = it waits for any of its class
	Bytes    int64      // of the body that are held for it; 0 = none
	Prompt   int        // tokens, estimated; 0 = unknown
	Output   int        // tokens, at most; 0 = unknown
	Arrived  time.Time
	Deadline time.Time     // of the wait; never zero
	TTFT     time.Duration // within which the client wants the first token, from Arrived on; 0 = it did not say
	Cycle    Sink[CycleMsg]

	Model     string       // that is to serve
	Objective string       // the name that the client gives; "" = none
	Headers   List[Header] // those that policies read and that the request has

	// Prefix is the prompt, if the policy of the request's band goes by what endpoints hold of it.
	Prefix     Prefix
	Saturation Saturation
}

// Prefix is a prompt, as the prefix index finds it.
type Prefix struct {
	Model, Salt string
	Blocks      List[uint64] // as in Request; empty = it does not matter
}

// Saturation is how full the detector found the endpoints when it was asked for a request.
type Saturation struct {
	Known bool    // it was asked
	Full  float64 // 0 = idle, 1 = saturated, more is fuller
}

// WaitEnded says that a request does not wait any more: an endpoint was picked for it, or it has ended. A request that
// is not known is no error.
//
//	From:  cycle, once after WaitRequested
//	To:    capacity
//	Reply: none
type WaitEnded struct {
	Request    RequestID
	Endpoint   EndpointID // that was picked in its turn; zero = none was
	Saturation Saturation // at the turn that led to a pick
}

// TurnFailed says that no endpoint had room for a request whose turn it was. It waits on, at its former place.
//
//	From:  cycle, instead of WaitEnded, after a Dispatched
//	To:    capacity
//	Reply: as for WaitRequested, without Queued; Evicted at once if the request is not known
type TurnFailed struct {
	Request    RequestID
	Class      uint64     // as in WaitRequested, under the endpoints of now; 0 = as it was
	Wanted     EndpointID // as in WaitRequested
	Cycle      Sink[CycleMsg]
	Saturation Saturation
	// Lacking are the endpoints that would do if they had room; empty = unknown, or its configuration ends no running
	// request for it.
	Lacking List[EndpointID]
}

// ServingStarted says that a request runs that may be ended for one of a higher priority. It is told again when another
// endpoint serves the request.
//
//	From:  cycle, if its configuration has in-flight eviction
//	To:    capacity
//	Reply: Revoked to Cycle, at most once
type ServingStarted struct {
	Request  RequestID
	Flow     FlowKey
	Endpoint EndpointID // that serves it
	At       time.Time  // when it was picked
	Cycle    Sink[CycleMsg]
}

// ServingEnded says that a request cannot be ended for others any more, because it has ended, or because its response
// goes on without us. A request that is not known is no error.
//
//	From:  cycle, after ServingStarted, once
//	To:    capacity
//	Reply: none
type ServingEnded struct {
	Request RequestID
	RunsOn  bool // it has not ended
}

// MemoryRequested asks that requests which wait make way for the body of another one, which does not fit into memory.
// If not enough of them matter less than it does, none makes way.
//
//	From:  stream
//	To:    capacity
//	Reply: MemoryYielded to Stream, at once
type MemoryRequested struct {
	Flow   FlowKey
	Bytes  int64 // that it needs more; above 0
	Stream Sink[StreamMsg]
}

// RoomChanged says that an endpoint may have room which had none. It is told only while requests wait.
//
//	From:  cycle, pool, scraper, outlier
//	To:    capacity
//	Reply: none
type RoomChanged struct {
	Endpoint EndpointID // zero = any may
}

// TokensUsed says what a request that was dispatched has used, beyond what its flow was charged for it so far. It is
// told only if the fairness of the request's band asks for it.
//
//	From:  cycle, once at its end if there is a difference; before that every few seconds, while requests wait
//	To:    capacity
//	Reply: none
type TokensUsed struct {
	Flow   FlowKey
	Prompt int64 // tokens; below 0 = fewer than were charged
	Output int64 // likewise
}

// QueueingReplaced says that another configuration is in force, by which requests wait that come from now on.
//
//	From:  runtime root
//	To:    capacity
//	Reply: none
type QueueingReplaced struct{}

// LineClosed says that this process is about to end: no request waits any more. One that still comes has one turn, and
// is refused if there is no room.
//
//	From:  runtime root
//	To:    capacity
//	Reply: Evicted to each Cycle that waits
type LineClosed struct{}

// CeilingsDue is sent by the timer of capacity: the usage limit is to be asked again.
//
//	From:  capacity, to itself
//	To:    capacity
//	Reply: none
type CeilingsDue struct{}

// ReclaimDue is sent by the timer of capacity: it is time to go on, whether or not the requests that shall end have.
//
//	From:  capacity, to itself
//	To:    capacity
//	Reply: none
type ReclaimDue struct {
	Round uint64 // of revocations, from 1
}

// PricesDue is sent by the timer of capacity: requests that wait for one endpoint may have become cheaper at another.
//
//	From:  capacity, to itself
//	To:    capacity
//	Reply: none
type PricesDue struct{}

// TurnOverdue is sent by the timer of capacity: the answer to a turn may be overdue, or none comes any more.
//
//	From:  capacity, to itself
//	To:    capacity
//	Reply: none
type TurnOverdue struct {
	Turn uint64 // number of the turn, from 1
}

// FlowsQueried asks for what waits; a query.
//
//	From:  admin adapter
//	To:    capacity
//	Reply: FlowsAnswered to Admin, at once
type FlowsQueried struct {
	Most  int // flows that are listed of each band, at most; 0 = none
	Admin Sink[AdminMsg]
}

func (CapacityStarted) capacityMsg()  {}
func (WaitRequested) capacityMsg()    {}
func (WaitEnded) capacityMsg()        {}
func (TurnFailed) capacityMsg()       {}
func (ServingStarted) capacityMsg()   {}
func (ServingEnded) capacityMsg()     {}
func (MemoryRequested) capacityMsg()  {}
func (RoomChanged) capacityMsg()      {}
func (TokensUsed) capacityMsg()       {}
func (QueueingReplaced) capacityMsg() {}
func (LineClosed) capacityMsg()       {}
func (CeilingsDue) capacityMsg()      {}
func (ReclaimDue) capacityMsg()       {}
func (TurnOverdue) capacityMsg()      {}
func (PricesDue) capacityMsg()        {}

func (FlowsQueried) capacityMsg() {}

func (FlowsQueried) Refusable()    {}
func (WaitRequested) Refusable()   {}
func (MemoryRequested) Refusable() {}
