package extproc

import (
	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

func (st *stream) onRequestHeaders(e event) error {
	if st.moveRequest(e) == ignored {
		return nil // headers came a second time: the first count
	}
	facts := &st.request.facts
	facts.read(&st.in, st.under.Headers)
	facts.readSubset(&st.in)
	if st.request.phase == requestAsking {
		return st.ask(e)
	}
	told := facts.contentLength
	if told > 0 && told <= st.srv.cfg.MaxBodyBytes && !st.request.body.reserve(int(told)) {
		return st.refuseNow(refusalFor(messages.Overloaded)) // before the body comes
	}
	if buffered(st.modes.RequestBody) {
		if err := st.send(func(r *wire.Response) { r.SetEmptyHeaders(wire.RequestDirection) }); err != nil {
			return err
		}
	}
	st.expectBody()
	return nil
}

// expectBody starts the deadline of the body, or that of the whole request if it comes first.
func (st *stream) expectBody() {
	within, late := st.srv.cfg.BodyTimeout, messages.BodyTimeout
	if st.srv.cfg.WholeRequest < within {
		within, late = st.srv.cfg.WholeRequest, messages.RequestTimeout
	}
	st.request.body.expect(within, func() { st.onBodyTimeout(late) })
}

// onBodyTimeout refuses the request, unless its body became whole meanwhile or a response has begun: the proxy may
// answer by itself while the body still comes. It runs on the timer's goroutine.
func (st *stream) onBodyTimeout(why messages.Reason) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.request.phase == requestGathering && st.response.phase == responseAwaited {
		st.refuseLocked(refusalFor(why))
	}
}

func (st *stream) onRequestBody(e event) error {
	switch st.moveRequest(e) {
	case ignored:
		return nil
	case headless, bodiless:
		return st.refuseHeadless()
	case taken:
	}
	if eager(st.modes.RequestBody) {
		return st.answerForwardedBody()
	}
	return st.gather(e)
}

// gather takes a chunk of the body that the pick waits for, and asks for the pick once the body is whole.
func (st *stream) gather(e event) error {
	st.request.facts.readSubset(&st.in)
	if why := st.request.body.take(&st.in, st.srv.cfg.MaxBodyBytes); why != messages.NoReason {
		return st.refuseNow(refusalFor(why))
	}
	if st.request.phase == requestAsking {
		return st.ask(e)
	}
	return nil
}

// answerForwardedBody answers a chunk of a body that has no part in the pick.
func (st *stream) answerForwardedBody() error {
	switch st.modes.RequestBody {
	case wire.BodyStreamed:
		return st.send(func(r *wire.Response) { r.SetEmptyBody(wire.RequestDirection) })
	case wire.BodyGRPC:
		var e wire.Echo
		e.StartMessage(&st.in)
		return st.echo(&e)
	default: // NONE: the proxy waits for no answer
		return nil
	}
}

func (st *stream) onRequestTrailers() error {
	switch st.moveRequest(trailersCame) {
	case ignored:
		return nil
	case headless:
		return st.refuseHeadless()
	case bodiless:
		return st.refuseNow(messages.PickFailed{
			Reason: messages.Unsupported,
			Detail: "trailers without a body cannot be routed in request body mode " + st.modes.RequestBody.String(),
		})
	case taken:
	}
	if st.request.phase == requestEnded { // the pick was sent before
		return st.send(func(r *wire.Response) { r.SetEmptyTrailers(wire.RequestDirection) })
	}
	st.request.facts.readSubset(&st.in)
	return st.ask(trailersCame)
}

// refuseHeadless refuses a request whose headers are not sent to us, because nothing could carry its pick: Envoy sends
// such headers on at once, so its load balancer has chosen before the body is answered, and ignores changes of headers
// after that.
func (st *stream) refuseHeadless() error {
	return st.refuseNow(messages.PickFailed{
		Reason: messages.Unsupported,
		Detail: "request header mode SKIP is not supported, want SEND",
	})
}
