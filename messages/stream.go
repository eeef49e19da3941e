package messages

import "time"

// StreamMsg is what an ext_proc stream is told about its request.
//
//sumtype:decl
type StreamMsg interface{ streamMsg() }

// PickMade answers a stream: send the request to one of these.
//
//	From:  cycle
//	To:    stream, at most once
//	Reply: ResponseEnded or StreamGone
type PickMade struct {
	Destinations List[Address] // best first, no duplicates, at least one
}

// PickFailed answers a stream: this request is not served. The stream turns Reason into a status and a body.
//
//	From:  cycle
//	To:    stream, at most once
//	Reply: none; the cycle has ended
type PickFailed struct {
	Reason     Reason
	Detail     string        // for the client, one clause; "" = the reason says it all
	RetryAfter time.Duration // 0 = do not say
}

// AnswerDue tells the stream until when its answer may take, if that is later than the default.
//
//	From:  cycle
//	To:    stream
//	Reply: none
//	Reserved: until flow queues
type AnswerDue struct{ At time.Time }

// ServingRevoked ends a request that was answered with PickMade: it is to stop running.
//
//	From:  cycle
//	To:    stream, at most once
//	Reply: StreamGone
type ServingRevoked struct {
	Reason     Reason
	RetryAfter time.Duration // 0 = do not say
}

func (PickMade) streamMsg()       {}
func (PickFailed) streamMsg()     {}
func (AnswerDue) streamMsg()      {}
func (ServingRevoked) streamMsg() {}
