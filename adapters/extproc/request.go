package extproc

import (
	"errors"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

var errOver = errors.New("the stream is over")

func (st *stream) onRequestHeaders() error {
	if st.request != laneNew {
		return nil // a second time: the first counts
	}
	st.request = laneHeaders
	st.mu.Lock()
	st.begin()
	st.mu.Unlock()
	st.facts.read(&st.in)
	st.facts.readSubset(&st.in)
	mode := st.modes.RequestBody
	switch {
	case st.in.EndOfStream:
		st.request = laneEnded
		return st.onArrival(arrival{})
	case eager(mode):
		return st.onArrival(arrival{})
	case !st.reserve():
		return st.refuseNow(messages.PickFailed{Reason: messages.Overloaded, RetryAfter: time.Second})
	case buffered(mode):
		if err := st.send(func(r *wire.Response) { r.SetEmptyHeaders(wire.RequestLane) }); err != nil {
			return err
		}
	}
	st.expectBody()
	return nil
}

// reserve makes room for the beginning of a body whose length is told. False means that it does not fit: its client hears of
// that before the body comes.
func (st *stream) reserve() bool {
	n := st.facts.contentLength
	if n <= 0 || n > st.srv.cfg.MaxBodyBytes {
		return true
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.over {
		return true // nothing follows
	}
	if !st.hold(st.body.Takes(wire.Reservable(int(n)))) {
		return false
	}
	st.body.Reserve(int(n))
	return true
}

// eager modes send the request on, or never show its body: the pick goes with the answer to the headers.
func eager(m wire.BodyMode) bool {
	return m == wire.BodyNone || m == wire.BodyStreamed || m == wire.BodyGRPC
}

// buffered modes hold headers and body together until the body is answered, but send it only once the headers are.
func buffered(m wire.BodyMode) bool {
	return m == wire.BodyBuffered || m == wire.BodyBufferedPartial
}

// expectBody starts the body's deadline, which is that of the whole request if that comes first.
func (st *stream) expectBody() {
	within, late := st.srv.cfg.BodyTimeout, messages.BodyTimeout
	if st.srv.cfg.WholeRequest < within {
		within, late = st.srv.cfg.WholeRequest, messages.RequestTimeout
	}
	st.mu.Lock()
	st.timer = time.AfterFunc(within, func() { st.onBodyTimeout(late) })
	st.mu.Unlock()
}

func (st *stream) onRequestBody() error {
	if st.request == laneEnded {
		return nil // bytes after the end belong to nothing
	}
	mode := st.modes.RequestBody
	switch {
	case buffered(mode) && st.whole: // a second time: the first counts
		return nil
	case st.request == laneNew:
		return st.refuseHeadless()
	case eager(mode):
		return st.onPassingBody()
	}
	return st.gather()
}

// onPassingBody answers a chunk of a body that plays no part in the pick.
func (st *stream) onPassingBody() error {
	mode, end := st.modes.RequestBody, st.in.EndOfStream || st.in.Message.None
	if end {
		st.request = laneEnded
	}
	switch mode {
	case wire.BodyStreamed:
		return st.send(func(r *wire.Response) { r.SetEmptyBody(wire.RequestLane) })
	case wire.BodyGRPC:
		var e wire.Echo
		e.StartMessage(&st.in)
		return st.echo(&e)
	default: // NONE: nobody waits for an answer
		return nil
	}
}

// gather takes a piece of the body, and goes on once it is whole.
func (st *stream) gather() error {
	st.facts.readSubset(&st.in)
	if err := st.keep(); err != nil {
		return err
	}
	switch mode, end := st.modes.RequestBody, st.in.EndOfStream; {
	case buffered(mode):
		if end {
			st.request = laneEnded
		}
		return st.onArrival(arrival{body: true, onBody: true, cut: mode == wire.BodyBufferedPartial && !end})
	case end:
		st.request = laneEnded
		return st.onArrival(arrival{body: true, echo: true})
	}
	return nil
}

// keep copies a piece of the body, or refuses the request that it is too much for.
func (st *stream) keep() error {
	n := st.in.BodyLen()
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.over:
	case st.bytes+int64(n) > st.srv.cfg.MaxBodyBytes:
		st.refuseLocked(messages.PickFailed{Reason: messages.BodyTooLarge})
	case !st.hold(st.body.Takes(n)):
		st.refuseLocked(messages.PickFailed{Reason: messages.Overloaded, RetryAfter: time.Second})
	default:
		st.body.Append(&st.in)
		st.bytes += int64(n)
		return nil
	}
	return errOver
}

// hold counts the memory that the body takes from now on into what all streams hold. False means that it does not fit.
func (st *stream) hold(bytes int) bool {
	more := int64(bytes) - st.held
	if more <= 0 {
		return true // it was reserved
	}
	for {
		all := st.srv.held.Load()
		if all+more > st.srv.cfg.MaxHeldBytes {
			return false
		}
		if st.srv.held.CompareAndSwap(all, all+more) {
			st.held += more
			return true
		}
	}
}

// letGo gives the body's memory back, and takes out what it counted.
func (st *stream) letGo() {
	st.body.Release()
	st.srv.held.Add(-st.held)
	st.held = 0
}

func (st *stream) onRequestTrailers() error {
	switch st.request {
	case laneEnded:
		return nil
	case laneNew:
		return st.refuseHeadless()
	case laneHeaders:
	}
	st.request = laneEnded
	switch mode := st.modes.RequestBody; {
	case st.whole: // the pick is made
		return st.send(func(r *wire.Response) { r.SetEmptyTrailers(wire.RequestLane) })
	case buffered(mode):
		return st.refuseNow(messages.PickFailed{
			Reason: messages.Unsupported, Detail: "trailers without a body cannot be routed in request body mode " + mode.String(),
		})
	}
	st.facts.readSubset(&st.in)
	body := st.bytes > 0
	return st.onArrival(arrival{body: body, echo: body, trailers: true})
}

// refuseHeadless refuses a request whose headers are not sent to us: nothing could carry its pick. Envoy sends such headers
// on at once, so that its load balancer has chosen before the body is answered, and changes of headers are ignored there.
func (st *stream) refuseHeadless() error {
	return st.refuseNow(messages.PickFailed{
		Reason: messages.Unsupported,
		Detail: "request header mode SKIP is not supported, want SEND",
	})
}

// onBodyTimeout runs on the timer's goroutine. A body that became whole meanwhile wins, and so does a response.
func (st *stream) onBodyTimeout(why messages.Reason) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.whole && !st.answered {
		st.refuseLocked(messages.PickFailed{Reason: why})
	}
}

// bodyIsWhole ends the body's deadline. False means that it has passed already, or that the request was refused.
func (st *stream) bodyIsWhole() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.timer != nil {
		st.timer.Stop()
	}
	st.whole = true
	return !st.over
}
