package exchange

import (
	"fmt"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// maxChunk is the largest body chunk an EPP should answer with, in bytes.
const maxChunk = 64 << 10

// LaneMode is what one lane sends to the EPP.
type LaneMode struct {
	SkipHeaders bool
	Body        filterv3.ProcessingMode_BodySendMode
	Trailers    bool
}

// Duplex says whether body chunks go out without waiting for answers.
func (m LaneMode) Duplex() bool { return m.Body == filterv3.ProcessingMode_FULL_DUPLEX_STREAMED }

// Validate refuses modes that are not implemented and combinations that Envoy refuses.
func (m LaneMode) Validate() error {
	switch {
	case m.Duplex() && !m.Trailers:
		return fmt.Errorf("body mode %s: trailers must be sent", m.Body)
	case m.Duplex() && m.SkipHeaders:
		return fmt.Errorf("body mode %s: headers must be sent", m.Body)
	case m.Duplex():
		return nil
	case m.Body != filterv3.ProcessingMode_NONE:
		return fmt.Errorf("body mode %s: not implemented", m.Body)
	case m.Trailers:
		return fmt.Errorf("body mode %s: trailers are not implemented", m.Body)
	}
	return nil
}

// phase is the answer a lane waits for.
type phase uint8

const (
	idle phase = iota
	awaitHeaders
	awaitBody
	awaitTrailers
)

// lane is the state Envoy keeps per direction. It is plain data: its Stream locks.
type lane struct {
	id   Lane
	mode LaneMode

	phase           phase
	started         bool // something was sent
	headersAnswered bool
	bodySent        bool
	trailersSent    bool
	trailersDone    bool
	inputEnded      bool // we sent the end, in whatever form
	outputEnded     bool // the EPP answered the end
	held            bool // headers wait for the first body answer, because the whole body went before the headers answer
}

func (l *lane) sentHeaders(end bool) {
	l.started = true
	l.phase = awaitHeaders
	l.inputEnded = l.inputEnded || end
}

func (l *lane) sentBody(end bool) {
	l.started = true
	l.bodySent = true
	l.inputEnded = l.inputEnded || end
	if l.phase == idle {
		l.phase = awaitBody
	}
}

func (l *lane) sentTrailers() {
	l.started = true
	l.trailersSent = true
	l.inputEnded = true
	if l.phase == idle {
		l.phase = awaitTrailers
	}
}

// complete says that the EPP owes nothing more in this lane.
func (l *lane) complete() bool {
	return l.headersAnswered && (l.outputEnded || !l.mode.Duplex())
}

// owesBody says that body bytes are with the EPP and would be lost if the stream ended now.
func (l *lane) owesBody() bool { return l.bodySent && !l.outputEnded }

func (l *lane) fatal(r Rule, format string, args ...any) *Violation {
	return &Violation{Rule: r, Lane: l.id, Fatal: true, Detail: fmt.Sprintf(format, args...)}
}

func (l *lane) tolerated(r Rule, format string, args ...any) *Violation {
	return &Violation{Rule: r, Lane: l.id, Detail: fmt.Sprintf(format, args...)}
}

func (l *lane) gotHeaders(h *extprocv3.HeadersResponse) []*Violation {
	switch {
	case !l.started:
		return []*Violation{l.fatal(WrongLane, "headers answer, but nothing was sent in this lane")}
	case l.phase != awaitHeaders:
		return []*Violation{l.fatal(DuplicateHeaders, "headers answer, but none is outstanding")}
	}
	common := h.GetResponse()
	if l.mode.Duplex() && common.GetStatus() == extprocv3.CommonResponse_CONTINUE_AND_REPLACE {
		return []*Violation{l.fatal(ReplaceInDuplex, "headers answer with status CONTINUE_AND_REPLACE")}
	}
	l.headersAnswered = true
	switch {
	case l.bodySent:
		l.phase = awaitBody
		l.held = l.inputEnded
	case l.trailersSent:
		l.phase = awaitTrailers
	default:
		l.phase = idle
		l.outputEnded = l.inputEnded
	}
	var found []*Violation
	if common.GetBodyMutation() != nil {
		found = append(found, l.tolerated(IgnoredField, "body_mutation in a headers answer"))
	}
	if common.GetClearRouteCache() && (common.GetHeaderMutation() == nil || l.id == ResponseLane) {
		found = append(found, l.tolerated(IgnoredField, "clear_route_cache without header_mutation or in the response lane"))
	}
	return found
}

func (l *lane) gotBody(b *extprocv3.BodyResponse) []*Violation {
	common := b.GetResponse()
	streamed := common.GetBodyMutation().GetStreamedResponse()
	if v := l.bodyOutOfPhase(streamed); v != nil {
		return []*Violation{v}
	}
	var found []*Violation
	if common.GetHeaderMutation() != nil || common.GetClearRouteCache() {
		found = append(found, l.tolerated(IgnoredField, "header_mutation or clear_route_cache in a body answer"))
	}
	if n := len(streamed.GetBody()); n > maxChunk {
		found = append(found, l.tolerated(ChunkTooLarge, "%d bytes, at most %d are safe", n, maxChunk))
	}
	if !streamed.GetEndOfStream() {
		return found
	}
	switch {
	case l.trailersSent:
		found = append(found, l.tolerated(EndBeforeTrailers, "end of stream on a body chunk, but trailers follow"))
	case !l.inputEnded:
		found = append(found, l.tolerated(EarlyEnd, "end of stream, but the input has not ended"))
	}
	l.outputEnded = true
	l.phase = idle
	return found
}

func (l *lane) bodyOutOfPhase(streamed *extprocv3.StreamedBodyResponse) *Violation {
	switch {
	case !l.started:
		return l.fatal(WrongLane, "body answer, but nothing was sent in this lane")
	case l.mode.Duplex() && streamed == nil:
		return l.fatal(PlainBody, "body answer without streamed_response")
	case !l.mode.Duplex() && streamed != nil:
		return l.fatal(StreamedBody, "streamed_response in body mode %s", l.mode.Body)
	case l.phase == awaitHeaders:
		return l.fatal(BodyBeforeHeaders, "body answer of %d bytes, but the headers answer is outstanding", len(streamed.GetBody()))
	case l.phase == awaitTrailers:
		return l.fatal(BodyBeforeTrailers, "body answer of %d bytes, but only trailers were sent", len(streamed.GetBody()))
	case l.bodySent && l.outputEnded:
		return l.fatal(AfterEnd, "body answer of %d bytes after the end of the lane", len(streamed.GetBody()))
	case l.phase != awaitBody:
		return l.fatal(BodyNotSent, "body answer of %d bytes, but no body was sent", len(streamed.GetBody()))
	}
	return nil
}

func (l *lane) gotTrailers(t *extprocv3.TrailersResponse) []*Violation {
	switch {
	case !l.started:
		return []*Violation{l.fatal(WrongLane, "trailers answer, but nothing was sent in this lane")}
	case !l.trailersSent || l.trailersDone:
		v := l.fatal(TrailersNotSent, "trailers answer, but no trailers are outstanding")
		v.Fatal = !l.complete() || !l.mode.Duplex() || t.GetHeaderMutation() != nil
		return []*Violation{v}
	case l.phase == awaitHeaders:
		return []*Violation{l.fatal(TrailersBeforeHeaders, "trailers answer, but the headers answer is outstanding")}
	}
	l.trailersDone = true
	l.outputEnded = true
	l.phase = idle
	return nil
}
