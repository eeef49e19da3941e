package extproc

import "github.com/signalbox-epp/signalbox/adapters/extproc/wire"

// event is what moves a phase: a message of its direction, or something that the stream did.
type event uint8

// Messages as the proxy sends them.
const (
	headersCame   event = iota // a body or trailers follow
	headersEnded               // headers with end_of_stream: nothing follows
	chunkCame                  // a piece of the body; another one or trailers follow, in some modes unseen
	lastChunkCame              // a piece with end_of_stream, or, in mode GRPC, the end of the stream without a message
	trailersCame
	messageEvents
)

// What the stream does.
const (
	pickSent      = messageEvents + iota // the pick was sent; more of the request follows
	lastPickSent                         // the pick was sent in answer to the end of the request
	roomDenied                           // the request's loop had no room for a cycle
	upgradeSeen                          // the headers ask for another protocol: what follows is no body
	chunkAnswered                        // a chunk of the response was answered that was not the last
	endAnswered                          // the end of the response was answered
	bypassBegun                          // the response's headers were answered, and the proxy does not show its body
	overrideSent                         // likewise, and the answer asks the proxy to show the body nevertheless
)

// eventOf returns the event that a message is.
func eventOf(in *wire.Request) event {
	switch in.Kind {
	case wire.RequestHeaders, wire.ResponseHeaders:
		if in.EndOfStream {
			return headersEnded
		}
		return headersCame
	case wire.RequestBody, wire.ResponseBody:
		if in.EndOfStream || in.Message.None {
			return lastChunkCame
		}
		return chunkCame
	default:
		return trailersCame
	}
}

// verdict is what becomes of a message.
type verdict uint8

const (
	taken    verdict = iota // it is read, and answered if the proxy waits for an answer
	ignored                 // it came a second time, or after the end: it is not answered
	headless                // a protocol error: the headers were not sent to us, and nothing else can carry a pick
	bodiless                // a protocol error: trailers without a body, in a mode in which the body carries the pick
)

// eager reports whether the pick goes with the answer to the headers: in these modes the proxy sends the request on
// from there, or never shows its body.
func eager(m wire.BodyMode) bool {
	return m == wire.BodyNone || m == wire.BodyStreamed || m == wire.BodyGRPC
}

// buffered reports whether the proxy holds headers and body together until the body is answered. It sends the body
// only once the headers are answered. The body comes in one message, which need not have end_of_stream.
func buffered(m wire.BodyMode) bool {
	return m == wire.BodyBuffered || m == wire.BodyBufferedPartial
}

// requestPhase says how far the request is. A protocol error leaves the phase as it is, and so does everything else
// that closes the stream.
//
//	requestAwaited ──── chunk, trailers ─────────────────────────► protocol error: headless
//	  │    │
//	  │    │ headers, if the pick waits for the body
//	  │    ▼
//	  │  requestGathering ─── chunk, in mode FULL_DUPLEX_STREAMED ──► requestGathering
//	  │    │         └─────── trailers, in buffered modes ──────────► protocol error: bodiless
//	  │    │
//	  │    │ last chunk; chunk, in buffered modes; trailers, in mode FULL_DUPLEX_STREAMED; upgrade seen
//	  │    ▼
//	  └► requestAsking ────── room denied ──────────────────────────► requestUnplaced
//	  1    │    │
//	       │    │ pick sent, more of the request follows
//	       │    ▼
//	       │  requestForwarded ─── chunk, in eager modes ───────────► requestForwarded
//	       │    │
//	       │    │ last chunk, in eager modes; trailers
//	       │    ▼
//	       └► requestEnded
//	       2
//
//	1: headers with end_of_stream; headers, in eager modes
//	2: pick sent, in answer to the end of the request
//
// The frames of an upgraded request pass as a body does in eager modes.
// Whatever is not drawn is ignored: second headers, a second body in buffered modes, and what comes after the end.
type requestPhase uint8

const (
	// requestAwaited: no message of the request has come. The stream has no request id in this phase unless it was
	// refused; it has one in every other phase.
	requestAwaited requestPhase = iota

	// requestGathering: the headers have come. The pick waits for the rest of the body, which has a deadline.
	requestGathering

	// requestAsking: everything that the pick waits for has come. The handler parses it, starts the cycle and waits for
	// the cycle's answer; it reads no message before that.
	requestAsking

	// requestUnplaced: the loop had no room for a cycle. The request is refused and leaves no record.
	requestUnplaced

	// requestForwarded: the pick was sent, and what is left of the request has no part in it.
	requestForwarded

	// requestEnded: the pick was sent, and nothing of the request follows.
	requestEnded

	requestPhases
)

// after returns the phase that follows p on an event, and what becomes of the message that the event stands for. mode
// is the request's body mode.
func (p requestPhase) after(e event, mode wire.BodyMode) (requestPhase, verdict) {
	switch p {
	case requestAwaited:
		switch {
		case e == headersEnded, e == headersCame && eager(mode):
			return requestAsking, taken
		case e == headersCame:
			return requestGathering, taken
		case e < messageEvents:
			return p, headless
		}
	case requestGathering:
		switch {
		case e == chunkCame && !buffered(mode):
			return p, taken
		case e == trailersCame && buffered(mode):
			return p, bodiless
		case e == chunkCame, e == lastChunkCame, e == trailersCame, e == upgradeSeen:
			return requestAsking, taken
		}
	case requestAsking:
		switch e {
		case pickSent:
			return requestForwarded, taken
		case lastPickSent:
			return requestEnded, taken
		case roomDenied:
			return requestUnplaced, taken
		}
	case requestForwarded:
		switch {
		case e == chunkCame && eager(mode):
			return p, taken
		case e == lastChunkCame && eager(mode), e == trailersCame:
			return requestEnded, taken
		}
	case requestUnplaced, requestEnded:
	}
	return p, ignored
}

// waits reports whether the client waits for our answer to its request.
func (p requestPhase) waits() bool { return p == requestGathering || p == requestAsking }

// picked reports whether the pick was sent.
func (p requestPhase) picked() bool { return p == requestForwarded || p == requestEnded }

// responsePhase says how far the response is, as far as the proxy shows it.
//
//	         headers, but in mode NONE; chunk
//	responseAwaited ──────────────────────────────► responseVisible ◄─── chunk ─── responseAsked
//	  │                                              │        │                     │   ▲   │
//	  │                   chunk answered,            │        │                     │   │   │
//	  │  responseBuffered ◄── in buffered modes ─────┘        │                     │   │   │
//	  │    │                                                  │                     │   │   │
//	  │ 1  │ last chunk; trailers                             │ last chunk;    last │   │   │ trailers,
//	  │    │                                                  │ trailers      chunk │   │   │ answered
//	  ▼    ▼                                                  ▼                     ▼   │   │
//	responseLast ════════════════════════════════════════════════ override sent ════════╝   │
//	  │    │                                                                                │
//	  │    │ bypass begun                                                                   │
//	  │    ▼                                                                                │
//	  │  responseBypass                                                                     │
//	  │    │                                                                                │
//	  │ 2  │ last chunk, trailers, answered                                                 │
//	  ▼    ▼                                                                                │
//	responseEnded ◄─────────────────────────────────────────────────────────────────────────┘
//
//	1: headers with end_of_stream; headers in mode NONE; last chunk; trailers
//	2: the end, answered
//
// A chunk leaves responseVisible, responseBuffered and responseBypass as they are. Second headers, and what comes after
// the end, are ignored.
type responsePhase uint8

const (
	// responseAwaited: no message of the response came.
	responseAwaited responsePhase = iota

	// responseVisible: the response passes through the stream, piece by piece. It can still be refused, which cuts it
	// off.
	responseVisible

	// responseBuffered: as responseVisible, but all of the body that we are shown was answered. Trailers may follow,
	// shown or not.
	responseBuffered

	// responseLast: the message that is being answered is the last one that we need to see. From here on it is too late
	// to refuse: the answer may have reached the proxy, and nothing may follow it.
	responseLast

	// responseBypass: the headers were answered, and the body bypasses us. Trailers may be shown.
	responseBypass

	// responseAsked: as responseBypass, but the proxy was asked to show the body nevertheless. The first chunk of the
	// body takes the response back to responseVisible. The proxy may also ignore the request.
	responseAsked

	// responseEnded: the end of the response was answered.
	responseEnded

	responsePhases
)

// after returns the phase that follows p on an event, and what becomes of the message that the event stands for. mode
// is the response's body mode.
func (p responsePhase) after(e event, mode wire.BodyMode) (responsePhase, verdict) {
	switch p {
	case responseAwaited:
		switch {
		case e == chunkCame, e == headersCame && mode != wire.BodyNone:
			return responseVisible, taken
		case e < messageEvents:
			return responseLast, taken
		}
	case responseVisible, responseBuffered:
		switch {
		case e == lastChunkCame, e == trailersCame:
			return responseLast, taken
		case e == chunkAnswered && buffered(mode):
			return responseBuffered, taken
		case e == chunkCame, e == chunkAnswered:
			return p, taken
		}
	case responseLast:
		switch e {
		case bypassBegun:
			return responseBypass, taken
		case overrideSent:
			return responseAsked, taken
		case endAnswered:
			return responseEnded, taken
		}
	case responseBypass:
		switch e {
		case chunkCame, chunkAnswered, lastChunkCame, trailersCame:
			return p, taken
		case endAnswered:
			return responseEnded, taken
		}
	case responseAsked:
		switch e {
		case chunkCame:
			return responseVisible, taken
		case lastChunkCame:
			return responseLast, taken
		case trailersCame:
			return p, taken
		case endAnswered:
			return responseEnded, taken
		}
	case responseEnded:
	}
	return p, ignored
}

// beyondRecall reports whether it is too late to refuse.
func (p responsePhase) beyondRecall() bool { return p >= responseLast }

// completed reports whether every part of the response that the proxy shows has passed.
func (p responsePhase) completed() bool {
	return p != responseAwaited && p != responseVisible && p != responseLast
}

// closeReason says why nothing may be sent any more.
//
//	closedNot ─┬─ first message, in observability mode ─► closedObserved ─┐
//	           ├─ immediate response ───────────────────► closedRefused ──┤
//	           ├─ a message cannot be sent ─────────────► closedBroken ───┼─ handler panics ─► closedPanicked
//	           ├─ handler returns ──────────────────────► closedReturned  │
//	           └──────────────────────────────────────────────────────────┘
type closeReason uint8

const (
	closedNot      closeReason = iota // answers may be sent
	closedObserved                    // the proxy only shows us its messages
	closedRefused                     // an immediate response was sent, which is the last message of a stream
	closedBroken                      // a message could not be sent: the proxy is gone
	closedReturned                    // the proxy ended the stream, or the handler did when it was not needed any more
	closedPanicked                    // the handler panicked; the request was refused if that was still possible
	closeReasons
)

// or returns the reason that counts when a later one is added to c: the first one, except that a panic replaces any.
func (c closeReason) or(later closeReason) closeReason {
	if c == closedNot || later == closedPanicked {
		return later
	}
	return c
}
