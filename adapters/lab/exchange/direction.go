package exchange

import (
	"fmt"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// maxChunk is the largest body chunk an EPP should answer with, in bytes.
const maxChunk = 64 << 10

// phase is the answer a direction waits for.
type phase uint8

const (
	idle phase = iota
	awaitHeaders
	awaitBody
	awaitTrailers
)

// directionState is what Envoy keeps of one direction. It is plain data: its Stream locks.
//
// Outside full duplex each body message has exactly one answer, and bytes stay with Envoy until then; in full duplex
// the direction only knows whether the end was answered.
type directionState struct {
	id   Direction
	mode Mode

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

func (d *directionState) sentHeaders(end bool) {
	d.started = true
	d.phase = awaitHeaders
	d.inputEnded = d.inputEnded || end
}

func (d *directionState) sentBody(end bool) {
	d.started = true
	d.bodySent = true
	d.inputEnded = d.inputEnded || end
	if !d.mode.Duplex() {
		d.owed++
	}
	if d.phase == idle {
		d.phase = awaitBody
	}
}

func (d *directionState) sentTrailers() {
	d.started = true
	d.trailersSent = true
	d.inputEnded = true
	if d.phase == idle {
		d.phase = awaitTrailers
	}
}

// complete reports whether the EPP owes nothing more in this direction.
func (d *directionState) complete() bool {
	if d.replaced {
		return true
	}
	if skipped := d.mode.SkipHeaders && d.started; !d.headersAnswered && !skipped {
		return false
	}
	switch {
	case d.mode.Duplex():
		return d.outputEnded
	case d.phase != idle:
		return false
	case d.inputEnded:
		return true
	case d.mode.Body == None:
		return !d.mode.Trailers
	}
	// A buffered body is one message; what follows it are trailers, or what bypasses the EPP.
	return d.mode.Buffers() && d.bodySent && (!d.mode.Trailers || d.mode.Body == BufferedPartial)
}

// owesBody reports whether body bytes are with the EPP and would be lost if the stream ended now.
func (d *directionState) owesBody() bool { return d.mode.Duplex() && d.bodySent && !d.outputEnded }

func (d *directionState) fatal(r Rule, format string, args ...any) *Violation {
	return &Violation{Rule: r, Direction: d.id, Fatal: true, Detail: fmt.Sprintf(format, args...)}
}

func (d *directionState) tolerated(r Rule, format string, args ...any) *Violation {
	return &Violation{Rule: r, Direction: d.id, Detail: fmt.Sprintf(format, args...)}
}

func (d *directionState) gotHeaders(h *extprocv3.HeadersResponse) []*Violation {
	switch {
	case !d.started:
		return []*Violation{d.fatal(WrongDirection, "headers answer, but nothing was sent in this direction")}
	case d.phase != awaitHeaders:
		return []*Violation{d.fatal(DuplicateHeaders, "headers answer, but none is outstanding")}
	}
	common := h.GetResponse()
	replace := common.GetStatus() == extprocv3.CommonResponse_CONTINUE_AND_REPLACE
	if d.mode.Duplex() && replace {
		return []*Violation{d.fatal(ReplaceInDuplex, "headers answer with status CONTINUE_AND_REPLACE")}
	}
	d.headersAnswered = true
	switch {
	case replace:
		d.phase, d.replaced, d.outputEnded = idle, true, true
	case d.bodySent:
		d.phase = awaitBody
		d.held = d.inputEnded
	case d.trailersSent:
		d.phase = awaitTrailers
	default:
		d.phase = idle
		d.outputEnded = d.inputEnded
	}
	found := d.ignoredRouteCache(common)
	if common.GetBodyMutation() != nil && !replace {
		found = append(found, d.tolerated(IgnoredField, "body_mutation in a headers answer"))
	}
	if common.GetTrailers() != nil {
		found = append(found, d.tolerated(IgnoredField, "trailers in a headers answer"))
	}
	return found
}

// ignoredRouteCache is about answers that may change headers.
func (d *directionState) ignoredRouteCache(common *extprocv3.CommonResponse) []*Violation {
	if common.GetClearRouteCache() && (common.GetHeaderMutation() == nil || d.id == Response) {
		return []*Violation{d.tolerated(IgnoredField, "clear_route_cache without header_mutation or in the response "+
			"direction")}
	}
	return nil
}

func (d *directionState) gotTrailers(t *extprocv3.TrailersResponse) []*Violation {
	switch {
	case !d.started:
		return []*Violation{d.fatal(WrongDirection, "trailers answer, but nothing was sent in this direction")}
	case !d.trailersSent || d.trailersDone:
		v := d.fatal(TrailersNotSent, "trailers answer, but no trailers are outstanding")
		v.Fatal = !d.complete() || !d.mode.Duplex() || t.GetHeaderMutation() != nil
		return []*Violation{v}
	case d.phase == awaitHeaders:
		return []*Violation{d.fatal(TrailersBeforeHeaders, "trailers answer, but the headers answer is outstanding")}
	case d.owed > 0:
		return []*Violation{d.fatal(TrailersBeforeBody, "trailers answer, but %d body answers are outstanding", d.owed)}
	}
	d.trailersDone = true
	d.outputEnded = true
	d.phase = idle
	return nil
}
