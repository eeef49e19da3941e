package messages

import "time"

// CycleMsg is what the cycle of a request receives. The messages stand in the order of a request's life.
//
//sumtype:decl
type CycleMsg interface{ cycleMsg() }

// RequestArrived begins a cycle: the whole request has come and is parsed.
//
//	From:  stream
//	To:    cycle, once, as its first message
//	Reply: exactly one of PickMade, PickFailed to Stream, by the last AnswerDue
type RequestArrived struct {
	Request       Request
	Configuration uint64 // number of the configuration that the request runs under, from 1
	Flow          FlowKey
	ArrivedAt     time.Time     // when the request's headers came
	Deadline      time.Time     // of the whole request; never zero: no limit is carried as 24 h
	Patience      time.Duration // how long its client lets it wait for room; 0 = it did not say
	Connection    ConnectionID
	Check         bool // a conformance checker sent it: it gets a pick, and leaves no load, record or metric
	Stream        Sink[StreamMsg]
}

// Queued says that the request has to wait for room.
//
//	From:  capacity, at most once
//	To:    cycle, before Dispatched, Rejected and Evicted
//	Reply: none
type Queued struct {
	Ahead      int           // requests that go before it, as things are
	RetryAfter time.Duration // how long those take to leave, as things are
}

// Dispatched gives a request that waits its turn to be picked for. No other one has a turn before the reply.
//
//	From:  capacity
//	To:    cycle
//	Reply: WaitEnded or TurnFailed to capacity, at once
type Dispatched struct {
	Waited time.Duration // in the line
	Share  float64       // of what its priority may fill, that it may, above 1 by its band's least share; 0 = all
}

// Rejected ends the wait before it began: the request will not run.
//
//	From:  capacity
//	To:    cycle
//	Reply: none
type Rejected struct {
	Reason     Reason
	RetryAfter time.Duration // 0 = unknown
}

// Evicted ends a wait that had begun: another request took its place, or capacity has failed.
//
//	From:  capacity
//	To:    cycle
//	Reply: none
type Evicted struct {
	Reason     Reason
	RetryAfter time.Duration // 0 = unknown
}

// Revoked takes back what Dispatched gave: the request shall stop running. If its response goes on without us, it
// cannot, and that was told already.
//
//	From:  capacity, at most once, after ServingStarted
//	To:    cycle
//	Reply: ServingEnded to capacity, once the request has ended, or cannot be ended any more
type Revoked struct {
	Reason     Reason
	RetryAfter time.Duration // 0 = unknown
}

// ResponseStarted says that the response's headers passed.
//
//	From:  stream
//	To:    cycle, at most once
//	Reply: none
type ResponseStarted struct {
	Status int     // HTTP
	Served Address // the server that answered, as Envoy says; "" = Envoy did not say: assume the first destination
	// Local is why Envoy answered by itself, in its words; "" = a model server answered, or Envoy did not say.
	Local    string
	At       time.Time
	Bypasses bool // the body bypasses us: the response outlives the stream, and the access log tells its end
}

// FirstTokenSeen says that the first byte of the response body passed.
//
//	From:  stream
//	To:    cycle, at most once, after ResponseStarted
//	Reply: none
type FirstTokenSeen struct {
	At time.Time
	// ResponseID is the id in the body, if the model server made it; "" = the server did not, or it has not come yet.
	ResponseID string
}

// ErrorSeen says that the body of a response, or its trailers, tell of an error, though its headers told of none.
//
//	From:  stream
//	To:    cycle, at most once, after ResponseStarted
//	Reply: none
type ErrorSeen struct {
	Status int // HTTP, 400 to 599, that the error names or stands for; from 500 on it is a failure of the endpoint
}

// ResponseProgressed says that a visible response goes on: the idle deadline starts anew. It comes at most every few
// seconds.
//
//	From:  stream
//	To:    cycle
//	Reply: none
type ResponseProgressed struct {
	At            time.Time
	ResponseBytes int64 // of the body, so far
}

// ResponseOngoing says how far a response has come that outlives its stream.
//
//	From:  shard, on behalf of the access log
//	To:    cycle, every few seconds
//	Reply: none
type ResponseOngoing struct {
	ResponseBytes int64 // of the body, so far
}

// EntriesDoubted says that the access log may never tell of this request: a proxy's log ended, or the connection ended
// that the request came on, or no entry of that connection's requests has come. An entry of the request ends the
// doubt.
//
//	From:  shard, on behalf of the access log
//	To:    cycle
//	Reply: none
type EntriesDoubted struct {
	Connection ConnectionID // only requests that came on it are in doubt; 0 = all
}

// ResponseEnded says that the response has ended. The stream tells it of a visible body. Of one that bypasses us the
// proxy's access log does, and also tells what the stream did not see.
//
//	From:  stream; shard, on behalf of the access log
//	To:    cycle, at most once by each
//	Reply: none
type ResponseEnded struct {
	At            time.Time
	ResponseBytes int64
	Usage         Usage  // NoUsage from the access log
	ResponseID    string // as in FirstTokenSeen
	Pace          Pace   // zero from the access log
	Logged        Logged
}

// PaceBuckets is how many buckets a Pace has.
const PaceBuckets = 16

// Pace says how the events with output of a visible stream came, by the time from one to the next, from the first token
// on. Those that the proxy shows in one piece come at once. The zero Pace has none.
type Pace struct {
	Events [PaceBuckets]uint32 // by buckets of ascending times; the last one has no bound
	Sum    time.Duration       // of all these times
}

// Logged is what the access log's last entry says of a request. The zero Logged is no entry.
type Logged struct {
	Status  int           // HTTP; 0 = no response
	Served  Address       // the server that answered; "" = none did
	Headers time.Duration // when the response's headers came, since the start of the request; 0 = none came
	// FirstToken is when the first byte of the response's body came, since the start of the request; 0 = none came, or
	// the proxy does not say.
	FirstToken time.Duration
	ClientLeft bool // the client left before the response was whole
	Broken     bool // the connection to the model server broke before the response was whole
}

// Usage is what is known of a response's tokens.
type Usage struct {
	Source       UsageSource
	PromptTokens int   // as reported
	PromptKnown  bool  // PromptTokens was reported, whatever is known of the output
	CachedTokens int   // of the prompt, as reported
	CachedKnown  bool  // CachedTokens was reported, be it 0; many servers report it only if they are told to
	OutputTokens int   // as reported or estimated; with any other Source 0, which is unknown
	OwnBytes     int64 // size of the event that carries nothing but this usage; 0 = there is no such event
}

// UsageSource says how OutputTokens are known, or why they are not. The set is closed.
type UsageSource uint8

const (
	NoUsage          UsageSource = iota // there was no response, it was an error, or it has not ended
	UsageReported                       // by the model server, in the response's body
	UsageEstimated                      // from the bytes of the body
	UsageNotReported                    // the whole body was seen, and does not tell the tokens of the output

	// The body was not seen to its end, and there is no estimate, for one of these reasons.

	UsageNotLearned   // too few answers of its model and form were seen
	UsageNotEstimable // the request's body was not read, or the answer repeats the prompt
	UsageNotMeasured  // the number of its bytes is unknown

	usageSources
)

// String returns the source's name, as metrics, the log and JSON carry it.
func (s UsageSource) String() string {
	if s < usageSources {
		return usageSourceNames[s]
	}
	return "unknown"
}

var usageSourceNames = [usageSources]string{
	NoUsage: "none", UsageReported: "reported", UsageEstimated: "estimated", UsageNotReported: "not-reported",
	UsageNotLearned: "not-learned", UsageNotEstimable: "not-estimable", UsageNotMeasured: "not-measured",
}

// UsageSources returns every source.
func UsageSources() []UsageSource {
	all := make([]UsageSource, usageSources)
	for i := range all {
		all[i] = UsageSource(i)
	}
	return all
}

// LogState is how much of a proxy's access log has come by the end of a stream.
type LogState uint8

const (
	LogUnknown LogState = iota // of no importance: the stream saw the end, or no entry will name the request
	LogSeen                    // entries come: they tell the end of a response that outlives its stream
	LogAwaited                 // no entry has come yet, but none is overdue
	LogMissing                 // no entry came in time: the proxy seems to have no access log
)

// StreamGone says that the stream has ended: the client left, the proxy closed it, or its work is done. No answer is
// owed after it. A response whose body bypasses us outlives the stream, but stays part of its endpoint's load only if
// Log is LogSeen.
//
//	From:  stream
//	To:    cycle, at any time, last
//	Reply: none
type StreamGone struct {
	Answered      Reason // that the stream gave the client by itself, without a PickFailed; NoReason = it gave none
	Completed     bool   // the response had ended before the stream did
	FrameCount    int    // frames that Envoy sent on the stream
	ResponseBytes int64  // of the response's body that passed the stream
	Usage         Usage  // that the part of the response which came has told
	Logged        bool   // the response may go on: the access log tells its end
	Log           LogState
}

// CycleDeadlinePassed is sent by the cycle's timer.
//
//	From:  cycle, to itself
//	To:    cycle
//	Reply: none
type CycleDeadlinePassed struct {
	Generation uint32 // of the timer; an older one is void
}

// CycleQueried asks a running cycle for its record so far.
//
//	From:  shard, on behalf of the recorder; a query
//	To:    cycle
//	Reply: RecordsFound to Recorder, at once
type CycleQueried struct {
	Query    QueryID
	Recorder Sink[RecorderMsg]
}

func (RequestArrived) cycleMsg()      {}
func (Queued) cycleMsg()              {}
func (Dispatched) cycleMsg()          {}
func (Rejected) cycleMsg()            {}
func (Evicted) cycleMsg()             {}
func (Revoked) cycleMsg()             {}
func (ResponseStarted) cycleMsg()     {}
func (FirstTokenSeen) cycleMsg()      {}
func (ErrorSeen) cycleMsg()           {}
func (ResponseProgressed) cycleMsg()  {}
func (ResponseOngoing) cycleMsg()     {}
func (EntriesDoubted) cycleMsg()      {}
func (ResponseEnded) cycleMsg()       {}
func (StreamGone) cycleMsg()          {}
func (CycleDeadlinePassed) cycleMsg() {}
func (CycleQueried) cycleMsg()        {}

func (RequestArrived) Refusable() {}
func (CycleQueried) Refusable()   {}
