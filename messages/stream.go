package messages

import "time"

// StreamMsg is what an ext_proc stream is told about its request.
//
//sumtype:decl
type StreamMsg interface{ streamMsg() }

// PickMade answers a stream with the endpoints that the request may go to.
//
//	From:  cycle
//	To:    stream, at most once
//	Reply: ResponseEnded or StreamGone
type PickMade struct {
	Destinations List[Address] // best first, at least one; two are equal only if one address serves two endpoints
	Headers      List[Header]  // to set on the request; they are what plugins asked for
	// Responses holds for each destination the headers to set on the response if it serves; empty = none.
	Responses List[List[Header]]
	// Scores are of the candidates of the run that serves, in the order of the pool; empty unless Signalbox was started
	// with --emit-endpoint-scores.
	Scores List[EndpointScore]
	Queue  QueueTime
	Engine string // of the first destination, as its labels name it; "" = they do not
}

// QueueTime is how long a request waited for room before its pick. It is zero if its configuration has no gate.
type QueueTime struct {
	Gated bool
	Took  time.Duration // 0 = it did not wait
}

// EndpointScore is the weighted sum of the scores of one endpoint.
type EndpointScore struct {
	Address Address // the endpoint's own, also where the request is sent to another one
	Score   float32 // finite, 0 or more
}

// PickFailed answers a stream: the request is not served. The stream turns Reason into a status and a body.
//
//	From:  cycle
//	To:    stream, at most once
//	Reply: none; the cycle has ended
type PickFailed struct {
	Reason     Reason
	Detail     string        // for the client, one clause; "" = the reason is enough
	RetryAfter time.Duration // 0 = do not say
}

// AnswerDue tells the stream when its answer is due, if that is later than the default.
//
//	From:  cycle
//	To:    stream
//	Reply: none
type AnswerDue struct{ At time.Time }

// ServingRevoked has the stream end a request that PickMade answered.
//
//	From:  cycle
//	To:    stream, at most once
//	Reply: StreamGone
type ServingRevoked struct {
	Reason     Reason
	RetryAfter time.Duration // 0 = do not say
}

// MemoryYielded says whether requests make way for the body of this one. Their streams give the memory back, each once
// it has refused its request.
//
//	From:  capacity
//	To:    stream, once for each MemoryRequested
//	Reply: none
type MemoryYielded struct {
	Enough     bool          // requests were told to make way that have all the bytes; false = none was
	RetryAfter time.Duration // how long it takes until all who wait have left; at least a second
}

func (PickMade) streamMsg()       {}
func (PickFailed) streamMsg()     {}
func (AnswerDue) streamMsg()      {}
func (ServingRevoked) streamMsg() {}
func (MemoryYielded) streamMsg()  {}
