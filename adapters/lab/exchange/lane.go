package exchange

import (
	"fmt"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// maxChunk is the largest body chunk an EPP should answer with, in bytes.
const maxChunk = 64 << 10

// phase is the answer a lane waits for.
type phase uint8

const (
	idle phase = iota
	awaitHeaders
	awaitBody
	awaitTrailers
)

// lane is the state Envoy keeps per direction. It is plain data: its Stream locks.
//
// Outside full duplex each body message has exactly one answer, and bytes stay with Envoy until then; in full duplex
// the lane only knows whether the end was answered.
type lane struct {
	id   Lane
	mode LaneMode

	phase           phase
	started         bool // something was sent
	hasLength       bool // the headers name a content-length
	headersAnswered bool
	bodySent        bool
	owed            int // body messages without an answer, outside full duplex
	trailersSent    bool
	trailersDone    bool
	inputEnded      bool // we sent the end, in whatever form
	outputEnded     bool // the EPP answered the end
	// headers wait for the first body answer, because the whole body went before the headers answer
	held     bool
	replaced bool // the EPP replaced the message as a whole: nothing more is sent or answered
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
	if !l.mode.Duplex() {
		l.owed++
	}
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
	if l.replaced {
		return true
	}
	if skipped := l.mode.SkipHeaders && l.started; !l.headersAnswered && !skipped {
		return false
	}
	switch {
	case l.mode.Duplex():
		return l.outputEnded
	case l.phase != idle:
		return false
	case l.inputEnded:
		return true
	case l.mode.Body == None:
		return !l.mode.Trailers
	}
	// A buffered body is one message; what follows it are trailers, or what bypasses the EPP.
	return l.mode.Buffers() && l.bodySent && (!l.mode.Trailers || l.mode.Body == BufferedPartial)
}

// owesBody says that body bytes are with the EPP and would be lost if the stream ended now.
func (l *lane) owesBody() bool { return l.mode.Duplex() && l.bodySent && !l.outputEnded }

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
	replace := common.GetStatus() == extprocv3.CommonResponse_CONTINUE_AND_REPLACE
	if l.mode.Duplex() && replace {
		return []*Violation{l.fatal(ReplaceInDuplex, "headers answer with status CONTINUE_AND_REPLACE")}
	}
	l.headersAnswered = true
	switch {
	case replace:
		l.phase, l.replaced, l.outputEnded = idle, true, true
	case l.bodySent:
		l.phase = awaitBody
		l.held = l.inputEnded
	case l.trailersSent:
		l.phase = awaitTrailers
	default:
		l.phase = idle
		l.outputEnded = l.inputEnded
	}
	found := l.ignoredRouteCache(common)
	if common.GetBodyMutation() != nil && !replace {
		found = append(found, l.tolerated(IgnoredField, "body_mutation in a headers answer"))
	}
	if common.GetTrailers() != nil {
		found = append(found, l.tolerated(IgnoredField, "trailers in a headers answer"))
	}
	return found
}

// ignoredRouteCache is about answers that may change headers.
func (l *lane) ignoredRouteCache(common *extprocv3.CommonResponse) []*Violation {
	if common.GetClearRouteCache() && (common.GetHeaderMutation() == nil || l.id == ResponseLane) {
		return []*Violation{l.tolerated(IgnoredField, "clear_route_cache without header_mutation or in the response "+
			"lane")}
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
	case l.owed > 0:
		return []*Violation{l.fatal(TrailersBeforeBody, "trailers answer, but %d body answers are outstanding", l.owed)}
	}
	l.trailersDone = true
	l.outputEnded = true
	l.phase = idle
	return nil
}
