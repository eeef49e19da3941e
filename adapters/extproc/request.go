package extproc

import (
	"errors"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/engine/records"
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
	if st.in.EndOfStream {
		st.request = laneEnded
		return st.onArrival(false)
	}
	if n := st.facts.contentLength; n > 0 && n <= st.srv.cfg.MaxBodyBytes {
		st.body.Reserve(int(n))
	}
	within, late := st.srv.cfg.BodyTimeout, messages.BodyTimeout
	if st.srv.cfg.WholeRequest < within {
		within, late = st.srv.cfg.WholeRequest, messages.RequestTimeout
	}
	st.mu.Lock()
	st.timer = time.AfterFunc(within, func() { st.onBodyTimeout(late) })
	st.mu.Unlock()
	return nil
}

func (st *stream) onRequestBody() error {
	if st.request == laneEnded {
		return nil // bytes after the end belong to nothing
	}
	if st.request == laneNew {
		return st.refuseHeadless()
	}
	st.facts.readSubset(&st.in)
	if int64(st.body.Len()+st.in.BodyLen()) > st.srv.cfg.MaxBodyBytes {
		st.refuse(messages.PickFailed{Reason: messages.BodyTooLarge})
		return errOver
	}
	if !st.hold(int64(st.in.BodyLen())) {
		return st.refuseNow(messages.PickFailed{Reason: messages.Overloaded, RetryAfter: time.Second})
	}
	st.body.Append(&st.in)
	if !st.in.EndOfStream {
		return nil
	}
	st.request = laneEnded
	return st.onArrival(false)
}

// hold counts bytes of the body into what all streams hold. False means that they do not fit.
func (st *stream) hold(n int64) bool {
	if st.srv.held.Add(n) > st.srv.cfg.MaxHeldBytes {
		st.srv.held.Add(-n)
		return false
	}
	st.held += n
	return true
}

// letGo takes out what the body counted.
func (st *stream) letGo() {
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
	st.facts.readSubset(&st.in)
	st.request = laneEnded
	return st.onArrival(true)
}

// refuseHeadless refuses a request whose headers are not sent to us: nothing could carry its pick, and an answer to headers
// that the proxy does not wait for breaks the stream.
func (st *stream) refuseHeadless() error {
	return st.refuseNow(messages.PickFailed{
		Reason: messages.Unsupported, Detail: "request header mode SKIP is not supported, want SEND",
	})
}

// onBodyTimeout runs on the timer's goroutine. A body that became whole meanwhile wins.
func (st *stream) onBodyTimeout(why messages.Reason) {
	st.mu.Lock()
	defer st.mu.Unlock()
	m := messages.PickFailed{Reason: why}
	if !st.whole && st.refuseLocked(m) {
		st.said = m.Reason
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

// onArrival has the whole request: it is parsed, its cycle starts, its answer is sent.
func (st *stream) onArrival(trailers bool) error {
	if !st.bodyIsWhole() {
		return errOver
	}
	hasBody := st.in.Kind != wire.RequestHeaders && (st.body.Len() > 0 || !trailers)
	st.in.Release() // the frame is copied, and the wait may be long
	if st.srv.draining.Load() {
		return st.refuseNow(messages.PickFailed{Reason: messages.ShuttingDown, RetryAfter: time.Second})
	}
	req := messages.Request{
		ID: st.id, ClientID: records.Label(st.facts.clientID), Path: records.Label(st.facts.path),
		BodyBytes: int64(st.body.Len()), Subset: st.facts.subset,
	}
	err := st.parse(hasBody, &req)
	st.model = req.Model
	if err != nil {
		return st.refuseNow(messages.PickFailed{Reason: messages.InvalidRequest, Detail: err.Error()})
	}
	cycle, ok := st.srv.deps.Start(messages.RequestArrived{
		Request: req, Flow: st.facts.flow(), ArrivedAt: st.arrived,
		Deadline: st.arrived.Add(st.srv.cfg.WholeRequest), Stream: st,
	})
	if !ok {
		st.full = true
		return st.refuseNow(messages.PickFailed{Reason: messages.Overloaded, RetryAfter: time.Second})
	}
	st.cycle = cycle
	switch m := st.await().(type) {
	case messages.PickMade:
		return st.forward(m, hasBody, trailers)
	case messages.PickFailed:
		return st.relay(m)
	case messages.AnswerDue, messages.ServingRevoked: // no answers; await keeps them to itself
	}
	return errOver // the client left, or was refused
}

// parse reads the body's facts. Only a body that claims to be of a form that we know can be the client's fault.
func (st *stream) parse(hasBody bool, req *messages.Request) error {
	if !hasBody {
		return nil
	}
	return st.srv.deps.Parser.Parse(st.facts.path, st.facts.contentType, st.facts.contentEncoding, st.body.Bytes(), req)
}

// await waits for the cycle's answer: most often it is there already, given while the cycle was started. Nil means that the
// client left, or that the answer is overdue and the client was refused.
func (st *stream) await() messages.StreamMsg {
	select {
	case m := <-st.answer:
		return m
	default:
	}
	patience := time.NewTimer(st.srv.cfg.AnswerWithin + time.Second)
	defer patience.Stop()
	for {
		select {
		case m := <-st.answer:
			return m
		case <-st.wire.Context().Done():
			return nil
		case <-patience.C:
			later := time.Duration(st.due.Load()-st.srv.deps.Now().UnixNano()) + time.Second
			if st.due.Load() == 0 || later <= 0 {
				st.refuse(messages.PickFailed{Reason: messages.PickTimeout, RetryAfter: time.Second})
				return nil
			}
			patience.Reset(later)
		}
	}
}

// forward answers the request's headers and gives its body back.
func (st *stream) forward(m messages.PickMade, hasBody, trailers bool) error {
	list := st.destinations(m)
	answer := wire.HeadersAnswer{
		Lane: wire.RequestLane,
		Set: []wire.Header{
			{Key: destinationKey, Value: list},
			{Key: requestIDHeader, Value: FormatID(st.srv.cfg.Instance, st.id)},
		},
		ClearRouteCache: true,
		Metadata:        []wire.Namespace{{Name: lbNamespace, Fields: []wire.Field{{Key: destinationKey, Value: list}}}},
	}
	err := st.send(func(r *wire.Response) { r.SetFrame(wire.AppendHeadersAnswer(nil, &answer)) })
	if err != nil {
		return err
	}
	if hasBody {
		var e wire.Echo
		e.StartBody(wire.RequestLane, &st.body, !trailers)
		err := st.echo(&e)
		st.letGo()
		if err != nil {
			return err
		}
	}
	if trailers {
		return st.send(func(r *wire.Response) { r.SetEmptyTrailers(wire.RequestLane) })
	}
	return nil
}

func (st *stream) destinations(m messages.PickMade) string {
	n := m.Destinations.Len()
	if limit := st.srv.cfg.Destinations; limit > 0 {
		n = min(n, limit)
	}
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(string(m.Destinations.At(i)))
	}
	return b.String()
}
