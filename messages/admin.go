package messages

import "time"

// AdminMsg is what the admin adapter is told.
//
//sumtype:decl
type AdminMsg interface{ adminMsg() }

// RecordsAnswered answers a query for records, the newest first.
//
//	From:  recorder
//	To:    admin, exactly once for each query
//	Reply: none
type RecordsAnswered struct {
	Records List[Record]
	Unasked int    // running requests that may match and were not asked, because there are too many
	Lost    uint64 // records that made way for newer ones since the start
	Partial bool   // a shard did not answer in time
}

// RingsAnswered answers a query for the newest events of loops.
//
//	From:  recorder
//	To:    admin, exactly once for each query
//	Reply: none
type RingsAnswered struct {
	Rings   List[Ring] // by loop, ascending; empty if there is no such loop
	Loops   int        // how many there are
	Partial bool       // a loop did not answer in time
}

// FlowsAnswered says what waits for room, and how it is ordered.
//
//	From:  capacity
//	To:    admin, exactly once for each query
//	Reply: none
type FlowsAnswered struct {
	Waiting Held    // without Trying
	Limits  Held    // of all bands together; 0 = none
	Rate    float64 // requests a second that left the line with a pick; 0 = unknown
	Panics  uint64  // calls of policies that panicked

	UsageLimit string // type of the policy that sets ceilings; "" = none does
	Trying     Trying
	Full       List[ClassState] // classes that have no room as far as is known
	Bands      List[BandState]  // highest priority first, of one priority older ones first
}

// Held is how many requests wait, and the bytes of their bodies.
type Held struct{ Requests, Bytes int64 }

// Trying is the request whose turn it is. The zero Trying means that there is none.
type Trying struct {
	Request RequestID
	Flow    FlowKey
	Waited  time.Duration // since it came
}

// ClassState is what waits of the requests that may use the same endpoints.
type ClassState struct {
	Class   uint64    // number of the class, from 0
	Waiting int64     // requests; 0 = none
	Next    RequestID // that is tried first once there is room; 0 = none waits
}

// BandState is what waits of one priority under the same policies.
type BandState struct {
	Priority int  // higher goes first; may be negative
	Older    bool // its policies are of an earlier configuration: it takes no more requests
	Waiting  Held
	Limits   Held          // of the priority; 0 = none
	Oldest   time.Duration // how long the request has waited that came first; 0 = none waits, or as in FlowState
	Ceiling  float64       // share of an endpoint's capacity up to which its requests find room; above 0, at most 1
	Policies PolicyNames
	Served   uint64 // turns that its requests had, but for those in vain
	Service  int64  // tokens that its flows were charged, of all flows that it knows
	Known    int    // flows that it knows
	Next     NextTurn
	Flows    List[FlowState] // those with the most requests waiting first, then those with the most service
}

// PolicyNames are the types of a band's policies, as the configuration has them.
type PolicyNames struct {
	Ordering, Queue, Fairness, Displacement string

	BuiltIn bool // built-in ones are in force instead, because these panicked too often
}

// NextTurn is the request of a band that is dispatched next, of those whose class may have room. Request is 0 if there
// is none.
type NextTurn struct {
	Request RequestID
	Flow    string
}

// FlowState is what a band knows of a flow.
type FlowState struct {
	Fairness string  // "" if Shared
	Shared   bool    // it is the flow of all ids beyond those that the band tells apart
	Weight   float64 // its share beside the other flows of the band; above 0
	Waiting  Held
	// Oldest is how long the request has waited that came first. It is 0 if none waits, and, in a band whose ordering
	// is not that of arrival, if more than 10 000 requests wait in all.
	Oldest  time.Duration
	Service int64  // tokens that it was charged
	Served  uint64 // number of its last turn, as the band counts them; 0 = none
}

func (RecordsAnswered) adminMsg() {}
func (RingsAnswered) adminMsg()   {}
func (FlowsAnswered) adminMsg()   {}
