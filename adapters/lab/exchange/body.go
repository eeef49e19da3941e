package exchange

import (
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

func (d *directionState) gotBody(b *extprocv3.BodyResponse) []*Violation {
	common := b.GetResponse()
	if v := d.bodyOutOfPhase(common); v != nil {
		return []*Violation{v}
	}
	found := d.ignoredInBody(common)
	if d.mode.Duplex() {
		found = append(found, d.gotChunk(common.GetBodyMutation().GetStreamedResponse())...)
	} else {
		found = append(found, d.gotBodyAnswer(common)...)
	}
	return found
}

// bodyOutOfPhase is what Envoy calls spurious in a body answer, nil if nothing is.
func (d *directionState) bodyOutOfPhase(common *extprocv3.CommonResponse) *Violation {
	streamed := common.GetBodyMutation().GetStreamedResponse()
	n := len(streamed.GetBody())
	switch {
	case !d.started:
		return d.fatal(WrongDirection, "body answer, but nothing was sent in this direction")
	case d.mode.Duplex() && streamed == nil:
		return d.fatal(PlainBody, "body answer without streamed_response")
	case streamed != nil && d.streamedBreaks():
		return d.fatal(StreamedBody, "streamed_response in body mode %s", d.mode.Body)
	case d.phase == awaitHeaders:
		return d.fatal(BodyBeforeHeaders, "body answer of %d bytes, but the headers answer is outstanding", n)
	case d.phase == awaitTrailers && !d.bodySent:
		return d.fatal(BodyBeforeTrailers, "body answer of %d bytes, but only trailers were sent", n)
	case d.bodySent && (d.outputEnded || d.phase == awaitTrailers):
		return d.fatal(AfterEnd, "body answer of %d bytes after the end of the direction", n)
	case d.phase != awaitBody:
		return d.fatal(BodyNotSent, "body answer of %d bytes, but no body is outstanding", n)
	}
	return nil
}

// streamedBreaks reports whether a streamed_response ends the exchange; else it is ignored and the body goes on as it
// was. As measured with Envoy 1.40.0.
func (d *directionState) streamedBreaks() bool {
	switch d.mode.Body {
	case Buffered:
		return d.hasLength
	case BufferedPartial:
		return false
	case Streamed:
		last := d.inputEnded && d.owed == 1 && !d.trailersSent
		return !last || d.phase != awaitBody
	}
	return !d.mode.Duplex()
}

// ignoredInBody are the fields of a body answer that Envoy does not heed in this mode.
func (d *directionState) ignoredInBody(common *extprocv3.CommonResponse) []*Violation {
	var found []*Violation
	switch {
	case d.mode.changesLate():
		found = d.ignoredRouteCache(common)
	case common.GetHeaderMutation() != nil || common.GetClearRouteCache():
		found = append(found, d.tolerated(IgnoredField, "header_mutation or clear_route_cache in a body answer"))
	}
	if common.GetStatus() == extprocv3.CommonResponse_CONTINUE_AND_REPLACE {
		found = append(found, d.tolerated(IgnoredField, "status CONTINUE_AND_REPLACE in a body answer"))
	}
	if common.GetTrailers() != nil {
		found = append(found, d.tolerated(IgnoredField, "trailers in a body answer"))
	}
	return found
}

// gotChunk takes what full duplex gives back: any number of chunks, the end on the last.
func (d *directionState) gotChunk(streamed *extprocv3.StreamedBodyResponse) []*Violation {
	var found []*Violation
	grpc := d.mode.Body == GRPC
	if n := len(streamed.GetBody()); n > maxChunk && !grpc {
		found = append(found, d.tolerated(ChunkTooLarge, "%d bytes, at most %d are safe", n, maxChunk))
	}
	if !grpc && (streamed.GetEndOfStreamWithoutMessage() || streamed.GetGrpcMessageCompressed()) {
		found = append(found, d.tolerated(IgnoredField, "flags of gRPC messages in body mode %s", d.mode.Body))
	}
	end := streamed.GetEndOfStream() || grpc && streamed.GetEndOfStreamWithoutMessage()
	if !end {
		return found
	}
	switch {
	case d.trailersSent:
		found = append(found, d.tolerated(EndBeforeTrailers, "end of stream on a body chunk, but trailers follow"))
	case !d.inputEnded:
		found = append(found, d.tolerated(EarlyEnd, "end of stream, but the input has not ended"))
	}
	d.outputEnded = true
	d.phase = idle
	return found
}

// gotBodyAnswer takes the one answer that each body message has outside full duplex.
func (d *directionState) gotBodyAnswer(common *extprocv3.CommonResponse) []*Violation {
	var found []*Violation
	if common.GetBodyMutation().GetStreamedResponse() != nil {
		found = append(found, d.tolerated(StreamedBody, "streamed_response in body mode %s: it is ignored",
			d.mode.Body))
	}
	if d.owed--; d.owed > 0 {
		return found
	}
	d.phase = idle
	if d.trailersSent {
		d.phase = awaitTrailers
		return found
	}
	d.outputEnded = d.inputEnded
	return found
}
