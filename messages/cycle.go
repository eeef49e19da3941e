package messages

import "time"

// CycleMsg is what the cycle of a request receives, in the order of the request's life.
//
//sumtype:decl
type CycleMsg interface{ cycleMsg() }

// RequestArrived begins a cycle: the whole request is here, parsed.
//
//	From:  stream
//	To:    cycle, once, as its first message
//	Reply: exactly one of PickMade, PickFailed to Stream, by the last AnswerDue
type RequestArrived struct {
	Request    Request
	Flow       FlowKey
	ArrivedAt  time.Time // when the request's headers came
	Deadline   time.Time // of the whole request; never zero, no limit is carried as 24 h
	Connection ConnectionID
	Check      bool // a conformance checker sent it: it is picked for like any other, and leaves nothing behind
	Stream     Sink[StreamMsg]
}

// Dispatched ends the wait: the request may run now.
//
//	From:  flow
//	To:    cycle
//	Reply: RequestEnded, when the cycle ends
type Dispatched struct {
	Waited time.Duration // in line; 0 = did not wait
}

// Rejected ends the wait: the request will not run.
//
//	From:  flow
//	To:    cycle
//	Reply: none
//	Reserved: until flow refuses
type Rejected struct {
	Reason     Reason
	RetryAfter time.Duration // 0 = unknown
}

// Evicted ends the wait after it began: time is up, or something more important took the place.
//
//	From:  flow
//	To:    cycle
//	Reply: none
//	Reserved: until flow queues
type Evicted struct {
	Reason     Reason
	RetryAfter time.Duration // 0 = unknown
}

// Revoked takes back what Dispatched gave: the request shall stop running.
//
//	From:  flow, at most once, after Dispatched
//	To:    cycle
//	Reply: RequestEnded, when the cycle ends
//	Reserved: until flow evicts
type Revoked struct {
	Reason     Reason
	RetryAfter time.Duration // 0 = unknown
}

// ResponseStarted says that the model server's response headers passed.
//
//	From:  stream
//	To:    cycle, at most once
//	Reply: none
type ResponseStarted struct {
	Status int     // HTTP
	Served Address // the server that answered, as Envoy says; "" = it did not say: the first of the list
	// why Envoy answered by itself, in its words; no model server did; "" = one did, or Envoy did not say
	Local  string
	At     time.Time
	Passes bool // the body is not shown to the stream: the response outlives it, and the access log tells its end
}

// FirstTokenSeen says that the first byte of the response body passed.
//
//	From:  stream
//	To:    cycle, at most once, after ResponseStarted
//	Reply: none
type FirstTokenSeen struct {
	At time.Time
	// of the body, if the model server made it by itself; "" = it did not, or the body has not told yet
	ResponseID string
}

// ErrorSeen says that an event of the response names an error, though its headers told of none.
//
//	From:  stream
//	To:    cycle, at most once, after ResponseStarted
//	Reply: none
type ErrorSeen struct {
	Status int // HTTP, 400 to 599, as the event has it
}

// ResponseProgressed says that a response is alive: the idle deadline starts anew. Told at most every few seconds.
//
//	From:  stream
//	To:    cycle
//	Reply: none
type ResponseProgressed struct{ At time.Time }

// ResponseOngoing says how far a response is that has outlived its stream.
//
//	From:  shard, on behalf of the access log
//	To:    cycle, every few seconds
//	Reply: none
type ResponseOngoing struct {
	ResponseBytes int64 // of the body, so far
}

// EntriesDoubted says that the access log may never tell of this request: some proxy's log ended, or the connection
// did that the request came on, or no entry of that connection's requests has come. A sign of life takes it back.
//
//	From:  shard, on behalf of the access log
//	To:    cycle
//	Reply: none
type EntriesDoubted struct {
	Connection ConnectionID // only requests that came on it are meant; 0 = all
}

// ResponseEnded says that the last byte passed. The stream tells it, or, if the proxy does not show it the response's
// body, the proxy's access log, which then also knows what the stream did not see.
//
//	From:  stream; shard, on behalf of the access log
//	To:    cycle, at most once by each
//	Reply: none
type ResponseEnded struct {
	At            time.Time
	ResponseBytes int64
	Usage         Usage  // NoUsage from the access log
	ResponseID    string // as in FirstTokenSeen
	Logged        Logged
}

// Logged is what the access log has of a request. The zero Logged is none.
type Logged struct {
	Status  int           // HTTP; 0 = no response
	Served  Address       // the server that answered; "" = none did
	Headers time.Duration // when the response's headers came, since the start of the request; 0 = none came
	// when the first byte of its body came, likewise; 0 = none came, or the proxy does not tell
	FirstToken time.Duration
	ClientLeft bool // before the response was whole
	Broken     bool // the connection to the model server was, before the response was whole
}

// Usage is what is known of a response's tokens.
type Usage struct {
	Source       UsageSource
	PromptTokens int   // as reported; 0 = not reported
	CachedTokens int   // of the prompt, as reported; 0 = not reported
	OutputTokens int   // as reported or estimated; 0 with any other Source = unknown
	OwnBytes     int64 // of the event that carries nothing but this usage; 0 = there is none
}

// UsageSource says how OutputTokens are known, or why they are not. The set is closed.
type UsageSource uint8

const (
	NoUsage          UsageSource = iota // there was no response, it was an error, or it has not ended
	UsageReported                       // by the model server, in the response's body
	UsageEstimated                      // from the bytes of the body; the tokens of the prompt are unknown
	UsageNotReported                    // the whole body was seen, and has no usage
	// the body was not seen to its end, and too few like it were seen for an estimate
	UsageNotLearned
	UsageNotEstimable // likewise: the body was not read, or the answer repeats the prompt
	UsageNotMeasured  // likewise, and how many bytes it has is unknown
	usageSources
)

// String is the source's name, as metrics, the log and JSON carry it.
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

// UsageSources are all of them.
func UsageSources() []UsageSource {
	all := make([]UsageSource, usageSources)
	for i := range all {
		all[i] = UsageSource(i)
	}
	return all
}

// LogState is what has come of the access log of a proxy.
type LogState uint8

const (
	LogUnknown LogState = iota // not asked for: the stream saw the end, or no entry will name the request
	LogSeen                    // entries come: they tell the end of a response that outlives its stream
	LogAwaited                 // none has come yet, and none need have come
	LogMissing                 // none came in time: the proxy seems to send none
)

// StreamGone says that no answer is waited for: the client left, Envoy did, or the stream is done. No answer is owed
// after it. A response that the proxy shows without its body outlives the stream; its load does so only if Log is
// LogSeen.
//
//	From:  stream
//	To:    cycle, at any time, last
//	Reply: none
type StreamGone struct {
	Answered      Reason // what the stream told the client on its own, without a PickFailed; NoReason = nothing
	Completed     bool   // the response had ended before
	FrameCount    int    // frames that Envoy sent on the stream
	ResponseBytes int64  // of the body that passed; 0 = none did
	Logged        bool   // the response may go on: the access log tells its end
	Log           LogState
}

// CycleDeadlinePassed is the cycle's timer.
//
//	From:  cycle, to itself
//	To:    cycle
//	Reply: none
type CycleDeadlinePassed struct {
	Generation uint32 // of the timer; an older one is void
}

// CycleQueried asks a running cycle what has happened so far.
//
//	From:  shard, on behalf of the recorder; a query
//	To:    cycle
//	Reply: RecordsFound to Recorder, at once
type CycleQueried struct {
	Query    QueryID
	Recorder Sink[RecorderMsg]
}

func (RequestArrived) cycleMsg()      {}
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
