package messages

import "time"

// QueryID numbers the queries of a recorder. No two incarnations use the same.
type QueryID uint64

// RecorderMsg is what the recorder receives: the actor that answers what happened to a request.
//
//sumtype:decl
type RecorderMsg interface{ recorderMsg() }

// RecorderStarted begins an incarnation of the recorder.
//
//	From:  runtime root
//	To:    recorder, first
//	Reply: none
type RecorderStarted struct{}

// RequestQueried asks for the records of one request, or of the newest ones; a query.
//
//	From:  admin adapter
//	To:    recorder
//	Reply: RecordsAnswered to Admin, within one second
type RequestQueried struct {
	Request RequestID    // 0 = not by our id
	IDs     List[string] // one of them is the client's, or that of the response; empty = not by these
	Filter  RecordFilter // of the records that are meant by the rest
	Newest  int          // how many, if no id is given
	Admin   Sink[AdminMsg]
}

// RecordFilter says which records are meant: those that meet all that is set. The zero RecordFilter takes every record.
type RecordFilter struct {
	Model   string       // as a record has it; "" = any
	Status  StatusRange  // zero = any, and none
	Reasons List[Reason] // one of these; empty = any
	// one of these served the request or, if it is not known what served it, was picked for it
	Endpoints List[EndpointID]
	Elsewhere Address // or one outside the pool that served it; this and Endpoints empty = any endpoint, and none
}

// StatusRange is a range of HTTP statuses.
type StatusRange struct {
	From int // HTTP, the least that belongs to it
	To   int // HTTP, the greatest that belongs to it
}

// RecordsFound is what one shard, or one running cycle, knows of a query.
//
//	From:  shard, cycle
//	To:    recorder
//	Reply: none
type RecordsFound struct {
	Query   QueryID
	Shard   Sink[ShardMsg]  // whose answer it is; nil = a cycle's
	Asked   List[RequestID] // whose cycles the shard asked as well; they answer by themselves, unless they end first
	Unasked int             // requests that run and were not asked, though the query may mean them: they are too many
	Lost    uint64          // records that made way for newer ones since the start
	Records List[Record]
}

// MissedFound is what a shard knows of requests whose cycles have not answered.
//
//	From:  shard
//	To:    recorder
//	Reply: RecordsMissed to Shard, for those of Running that have not answered meanwhile
type MissedFound struct {
	Query   QueryID
	Shard   Sink[ShardMsg]
	Records List[Record]    // of those that have ended
	Running List[RequestID] // their answer is still to come, or their end
	Gone    List[RequestID] // ended, and their records made way for newer ones
}

// RingsQueried asks what loops did last; a query.
//
//	From:  admin adapter
//	To:    recorder
//	Reply: RingsAnswered to Admin, within one second
type RingsQueried struct {
	Loop   int // index, from 0; -1 = all
	Newest int // events of each loop, at most
	Admin  Sink[AdminMsg]
}

// RingFound is what one loop did last.
//
//	From:  shard
//	To:    recorder
//	Reply: none
type RingFound struct {
	Query QueryID
	Ring  Ring
}

// RecorderDeadlinePassed is the recorder's timer: a query is answered with what has come so far.
//
//	From:  recorder, to itself
//	To:    recorder
//	Reply: none
type RecorderDeadlinePassed struct{ Query QueryID }

// Record is what became of one request. It holds numbers and short labels, never text of a prompt.
type Record struct {
	Request    RequestID
	ClientID   string // x-request-id, cut to 128 bytes; "" = none
	ResponseID string // of the response's body, if the model server made it and the body was seen; "" = not known
	Model      string // as the body names it, cut to 128 bytes
	Flow       FlowKey
	Stream     bool
	Running    bool // it has not ended yet

	ArrivedAt time.Time
	Ended     time.Duration // since ArrivedAt; 0 = it has not
	QueueWait time.Duration // in line; 0 = did not wait
	Decided   time.Duration // since ArrivedAt, when scheduling had ended; 0 = it did not begin
	Headers   time.Duration // of the response, since ArrivedAt; 0 = none came
	// the first byte of the response's body, since ArrivedAt; 0 = none seen, or time not known
	FirstToken    time.Duration
	Bypassed      bool // the response's body was not shown to the stream
	PromptTokens  int  // estimate, from the request's bytes; 0 = unknown
	BodyBytes     int64
	Reason        Reason // NoReason = it was served
	Status        int    // HTTP, of the model server or of our refusal; 0 = none
	Served        EndpointID
	Elsewhere     Address       // who served, if the pool does not know it; "" = it does
	Local         string        // why Envoy answered by itself, in its words, cut to 128 bytes; "" = it did not
	SampleAge     time.Duration // of the picked endpoint's sample, at the pick; 0 = it had none
	Usage         Usage
	ResponseBytes int64

	Events   List[RecordEvent]
	Dropped  int // events that found no slot
	Decision Decision
}

// RecordEvent is one message that a cycle handled, or told somebody.
type RecordEvent struct {
	Name   string        // of the message type
	To     string        // told to this actor: it neither waits nor takes time here; "" = the cycle handled it
	At     time.Duration // since ArrivedAt
	Waited time.Duration // in the inbox
	Took   time.Duration // to handle
}

// Decision is one scheduling cycle in numbers. The zero Decision is none.
type Decision struct {
	PoolVersion uint64           // of the snapshot; 0 = before the first
	Pool        int              // endpoints in the snapshot; more than Endpoints if the request is restricted to some
	Endpoints   List[EndpointID] // the dense order of everything below
	Profiles    List[ProfileRun]
	Outliers    List[Outlier] // those of Endpoints that were not healthy
	Probe       bool          // the request was the probe of an outlier
	// position in Profiles of the run whose pick serves the request; -1 = none: it was refused
	Primary int
	Stale   bool // all samples were stale: scorers that read them were skipped
}

// Outlier is an endpoint that was ejected, or degraded.
type Outlier struct {
	At      int  // position in Endpoints
	Ejected bool // it got no requests; false: it was degraded, and came last
	Cause   FailureKind
}

// ProfileRun is what one profile did.
type ProfileRun struct {
	Profile string
	Filters List[FilterRun]
	Scorers List[ScorerRun]
	Totals  List[float32] // a number for each endpoint, negative = filtered out; none if it did not come to that
	Ranked  List[uint32]  // positions in Endpoints, best first
	Runner  int           // position in Endpoints of the best total apart from the pick; -1 = none
}

// FilterRun is one filter's verdict.
type FilterRun struct {
	Plugin string
	Kept   List[bool] // for each endpoint, after this filter
}

// ScorerRun is one scorer's scores, before the weight.
type ScorerRun struct {
	Plugin string
	Weight float32       // factor of the score in the total; 0 = it does not count
	Scores List[float32] // for each endpoint; negative = not asked
}

// Ring is a copy of the newest events of one loop. It holds numbers only: the runtime has the names of the kinds.
type Ring struct {
	Loop   int             // index, from 0
	Read   time.Duration   // when it was copied, since the start of the process
	Events List[RingEvent] // oldest first
	Total  uint64          // events since the start, with those that were overwritten
}

// RingEvent is one message that a loop handled, or that one of its actors told to a stream.
type RingEvent struct {
	Begin     time.Duration // since the start of the process
	Waited    time.Duration // in the inbox
	Took      time.Duration // to handle; 0 if it was told to a stream
	Panicked  bool
	Actor     uint64 // number of the actor; of a cycle and of a stream, that of their request
	ActorKind uint16 // number of the kind's name
	Message   uint16 // number of the type's name
}

func (RecorderStarted) recorderMsg()        {}
func (RequestQueried) recorderMsg()         {}
func (RecordsFound) recorderMsg()           {}
func (MissedFound) recorderMsg()            {}
func (RingsQueried) recorderMsg()           {}
func (RingFound) recorderMsg()              {}
func (RecorderDeadlinePassed) recorderMsg() {}

func (RequestQueried) Refusable() {}
func (RingsQueried) Refusable()   {}
