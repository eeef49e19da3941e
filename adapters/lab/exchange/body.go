package exchange

import (
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

func (l *lane) gotBody(b *extprocv3.BodyResponse) []*Violation {
	common := b.GetResponse()
	if v := l.bodyOutOfPhase(common); v != nil {
		return []*Violation{v}
	}
	found := l.ignoredInBody(common)
	if l.mode.Duplex() {
		found = append(found, l.gotChunk(common.GetBodyMutation().GetStreamedResponse())...)
	} else {
		found = append(found, l.gotBodyAnswer(common)...)
	}
	return found
}

// bodyOutOfPhase is what Envoy calls spurious in a body answer, nil if nothing is.
func (l *lane) bodyOutOfPhase(common *extprocv3.CommonResponse) *Violation {
	streamed := common.GetBodyMutation().GetStreamedResponse()
	n := len(streamed.GetBody())
	switch {
	case !l.started:
		return l.fatal(WrongLane, "body answer, but nothing was sent in this lane")
	case l.mode.Duplex() && streamed == nil:
		return l.fatal(PlainBody, "body answer without streamed_response")
	case streamed != nil && l.streamedBreaks():
		return l.fatal(StreamedBody, "streamed_response in body mode %s", l.mode.Body)
	case l.phase == awaitHeaders:
		return l.fatal(BodyBeforeHeaders, "body answer of %d bytes, but the headers answer is outstanding", n)
	case l.phase == awaitTrailers && !l.bodySent:
		return l.fatal(BodyBeforeTrailers, "body answer of %d bytes, but only trailers were sent", n)
	case l.bodySent && (l.outputEnded || l.phase == awaitTrailers):
		return l.fatal(AfterEnd, "body answer of %d bytes after the end of the lane", n)
	case l.phase != awaitBody:
		return l.fatal(BodyNotSent, "body answer of %d bytes, but no body is outstanding", n)
	}
	return nil
}

// streamedBreaks says whether a streamed_response ends the exchange; else it is ignored and the body goes on as it was.
// As measured with Envoy 1.40.0.
func (l *lane) streamedBreaks() bool {
	switch l.mode.Body {
	case Buffered:
		return l.hasLength
	case BufferedPartial:
		return false
	case Streamed:
		last := l.inputEnded && l.owed == 1 && !l.trailersSent
		return !last || l.phase != awaitBody
	}
	return !l.mode.Duplex()
}

// ignoredInBody are the fields of a body answer that Envoy does not heed in this mode.
func (l *lane) ignoredInBody(common *extprocv3.CommonResponse) []*Violation {
	var found []*Violation
	switch {
	case l.mode.changesLate():
		found = l.ignoredRouteCache(common)
	case common.GetHeaderMutation() != nil || common.GetClearRouteCache():
		found = append(found, l.tolerated(IgnoredField, "header_mutation or clear_route_cache in a body answer"))
	}
	if common.GetStatus() == extprocv3.CommonResponse_CONTINUE_AND_REPLACE {
		found = append(found, l.tolerated(IgnoredField, "status CONTINUE_AND_REPLACE in a body answer"))
	}
	if common.GetTrailers() != nil {
		found = append(found, l.tolerated(IgnoredField, "trailers in a body answer"))
	}
	return found
}

// gotChunk takes what full duplex gives back: any number of chunks, the end on the last.
func (l *lane) gotChunk(streamed *extprocv3.StreamedBodyResponse) []*Violation {
	var found []*Violation
	grpc := l.mode.Body == GRPC
	if n := len(streamed.GetBody()); n > maxChunk && !grpc {
		found = append(found, l.tolerated(ChunkTooLarge, "%d bytes, at most %d are safe", n, maxChunk))
	}
	if !grpc && (streamed.GetEndOfStreamWithoutMessage() || streamed.GetGrpcMessageCompressed()) {
		found = append(found, l.tolerated(IgnoredField, "flags of gRPC messages in body mode %s", l.mode.Body))
	}
	end := streamed.GetEndOfStream() || grpc && streamed.GetEndOfStreamWithoutMessage()
	if !end {
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

// gotBodyAnswer takes the one answer that each body message has outside full duplex.
func (l *lane) gotBodyAnswer(common *extprocv3.CommonResponse) []*Violation {
	var found []*Violation
	if common.GetBodyMutation().GetStreamedResponse() != nil {
		found = append(found, l.tolerated(StreamedBody, "streamed_response in body mode %s: it is ignored",
			l.mode.Body))
	}
	if l.owed--; l.owed > 0 {
		return found
	}
	l.phase = idle
	if l.trailersSent {
		l.phase = awaitTrailers
		return found
	}
	l.outputEnded = l.inputEnded
	return found
}
