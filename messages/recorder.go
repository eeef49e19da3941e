package messages

import "time"

// QueryID numbers the queries of a recorder. No two incarnations of it use the same number.
type QueryID uint64

// RecorderMsg is what the recorder receives: the actor that answers queries for records and events.
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
	Request RequestID    // our id; 0 = any
	IDs     List[string] // one is the client's id of the request, or the response's id; empty = any
	Filter  RecordFilter // which the records must meet as well
	Newest  int          // number of records, if neither Request nor IDs is given
	Admin   Sink[AdminMsg]
}

// RecordFilter selects the records that meet every condition that is set. The zero RecordFilter selects all records.
type RecordFilter struct {
	Model   string       // as a record has it; "" = no condition
	Status  StatusRange  // zero = no condition
	Reasons List[Reason] // one of these; empty = no condition
	Ended   time.Time    // they have ended, then or later; zero = no condition
	// Endpoints and Elsewhere are one condition, which a record meets by either; both empty = no condition. One of
	// Endpoints served the request or, if it is not known what served it, was picked for it.
	Endpoints List[EndpointID]
	Elsewhere Address // an address outside the pool that served the request; "" = none
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
	Shard   Sink[ShardMsg]  // that answers; nil = a cycle does
	Asked   List[RequestID] // requests whose cycles the shard asked; each answers by itself, unless it ends first
	Unasked int             // running requests that may match and were not asked, because there are too many
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
	Records List[Record]    // of requests that have ended
	Running List[RequestID] // requests that have neither answered nor ended
	Gone    List[RequestID] // requests that have ended, and whose records made way for newer ones
}

// RingsQueried asks for the newest events of one loop or of all; a query.
//
//	From:  admin adapter
//	To:    recorder
//	Reply: RingsAnswered to Admin, within one second
type RingsQueried struct {
	Loop   int // index, from 0; -1 = all
	Newest int // events of each loop, at most
	Admin  Sink[AdminMsg]
}

// RingFound carries the newest events of one loop.
//
//	From:  shard
//	To:    recorder
//	Reply: none
type RingFound struct {
	Query QueryID
	Ring  Ring
}

// RecorderDeadlinePassed is sent by the timer of a query, which is then answered with what has come so far.
//
//	From:  recorder, to itself
//	To:    recorder
//	Reply: none
type RecorderDeadlinePassed struct{ Query QueryID }

// Record says what became of one request. It holds numbers and short labels, never text of a prompt.
type Record struct {
	Request       RequestID
	Configuration uint64 // number of the configuration that the request ran under; 0 = its headers were not read
	ClientID      string // x-request-id, cut to 128 bytes; "" = none
	Agent         string // user-agent of the client, cut to 128 bytes; "" = none
	Path          string // cut to 128 bytes; "" = none
	API           API    // of the body; UnknownAPI if it was not read
	ResponseID    string // in the response's body, if the model server made it and the body was seen; "" = unknown
	Model         string // as the client names it, cut to 128 bytes
	Target        string // the model that serves in its place, cut to 128 bytes; "" = Model does
	RewriteLeft   RewriteLeft
	Flow          FlowKey
	Stream        bool
	Running       bool // it has not ended yet

	ArrivedAt time.Time
	Ended     time.Duration // since ArrivedAt; 0 = it has not
	QueueWait time.Duration // in the queue, up to now if it waits; 0 = did not wait
	Wait      Wait
	Decided   time.Duration // since ArrivedAt, when scheduling had ended; 0 = it did not begin
	Headers   time.Duration // of the response, since ArrivedAt; 0 = none came
	// FirstToken is when the first byte of the response's body came, since ArrivedAt; 0 = none seen, or unknown.
	FirstToken   time.Duration
	Bypassed     bool // the response's body bypassed us
	PromptTokens int  // estimate, from the request's bytes; 0 = unknown
	BodyBytes    int64
	Reason       Reason // NoReason = it was served
	// Status is the HTTP status, of the model server or of our refusal; 0 = there was none, or one that tells no
	// success: the end is Lost, or the client left with nothing of the response.
	Status        int
	Served        EndpointID
	Elsewhere     Address       // the server, if the pool does not have it; "" = Served is the server, or none served
	Local         string        // why Envoy answered by itself, in its words, cut to 128 bytes; "" = it did not
	SampleAge     time.Duration // of the picked endpoint's sample, at the pick; 0 = it had no sample
	Usage         Usage
	ResponseBytes int64

	Events   List[RecordEvent]
	Dropped  int // events beyond those that a record has room for
	Decision Decision
}

// RecordEvent is one message that a cycle handled, or that it told another actor.
type RecordEvent struct {
	Name   string        // of the message type
	To     string        // the actor that was told, with Waited and Took 0; "" = the cycle handled the message
	At     time.Duration // since ArrivedAt
	Waited time.Duration // in the inbox
	Took   time.Duration // to handle
}

// Decision is the scheduling of one request in numbers. The zero Decision means that it did not begin.
type Decision struct {
	PoolVersion uint64           // of the snapshot; 0 = before the first
	Pool        int              // endpoints in the snapshot; more than Endpoints if the request has a subset
	Endpoints   List[EndpointID] // the dense order of everything below
	Profiles    List[ProfileRun]
	Outliers    List[Outlier] // those of Endpoints that were not healthy
	Probe       bool          // the request was the probe of an outlier
	Primary     int           // position in Profiles of the run whose pick serves the request; -1 = it was refused
	Stale       bool          // all samples were stale: scorers that read them were skipped
	Stages      List[Stage]   // what works for the request beside the destination that serves it
	Headers     List[Header]  // that plugins set on the request
}

// Stage is an endpoint that works for a request before its destination does, such as a prefill server.
type Stage struct {
	Run int // position in Profiles of the run that picked it
	At  int // position in Endpoints

	Probe bool // the request was the probe of the endpoint
}

// Outlier is an endpoint that was ejected or degraded.
type Outlier struct {
	At      int  // position in Endpoints
	Ejected bool // true = ejected: it got no requests; false = degraded: it came last
	Cause   FailureKind
}

// ProfileRun is what one profile did.
type ProfileRun struct {
	Profile string
	Filters List[FilterRun] // the screeners first
	Scorers List[ScorerRun]
	Totals  List[float32]    // for each endpoint, negative = filtered out; empty if nothing was scored
	Ranked  List[uint32]     // positions in Endpoints, best first
	Runner  int              // position in Endpoints of the runner-up: the best total but for the pick; -1 = none
	Reads   List[string]     // number attributes that the plugins read
	Values  List[float32]    // of Reads: the pick's, then the runner-up's; NaN = unknown; empty if nothing was picked
	Ages    [2]time.Duration // of the samples of pick and runner-up; negative = there was none
	// Within is by how much scores may differ from what scorers gave, apart from those of the first three that were
	// ranked and of the runner-up; 0 = all are exact. Totals are exact.
	Within float32

	Failed   string // why it picked nothing, with the reason first; "" = it picked
	Optional bool   // a failure does not refuse the request
	Shadow   bool   // it ran beside the pick, and changed nothing
}

// FilterRun is what one filter kept.
type FilterRun struct {
	Plugin string
	Kept   List[bool] // for each endpoint, after this filter
}

// ScorerRun is one scorer's scores, before the weight.
type ScorerRun struct {
	Plugin string
	Weight float32       // factor of the score in the total; 0 = it does not count
	Scores List[float32] // for each endpoint; negative = the endpoint was not scored
}

// Ring is a copy of the newest events of one loop. It holds kinds as numbers, which the runtime can name.
type Ring struct {
	Loop   int             // index, from 0
	Read   time.Duration   // when it was copied, since the start of the process
	Events List[RingEvent] // oldest first
	Total  uint64          // events since the start, including those that were overwritten
}

// RingEvent is one message that a loop handled, or that one of its actors told to a stream.
type RingEvent struct {
	Begin     time.Duration // since the start of the process
	Waited    time.Duration // in the inbox
	Took      time.Duration // to handle; 0 if it was told to a stream
	Panicked  bool
	Actor     uint64 // number of the actor; a cycle and a stream have that of their request
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
