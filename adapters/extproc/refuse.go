package extproc

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

// refusal is how a reason looks to a client of the OpenAI API. This is the one place where a reason becomes a status.
type refusal struct {
	status  int
	kind    string // error.type
	message string
}

var refusals = map[messages.Reason]refusal{
	messages.InvalidRequest: {400, "invalid_request_error", "the request body cannot be read"},
	messages.BodyTooLarge:   {413, "invalid_request_error", "the request body is larger than the limit"},
	messages.BodyTimeout:    {408, "invalid_request_error", "the request body did not arrive in time"},
	messages.NoEndpoints:    {503, "service_unavailable", "no model server is available for this request"},
	messages.NoCapacity:     {429, "rate_limit_error", "the model servers are saturated"},
	messages.TTLExpired:     {429, "rate_limit_error", "the request waited too long for a model server"},
	messages.PickTimeout:    {503, "service_unavailable", "no model server was picked in time"},
	messages.ResponseIdle:   {504, "timeout_error", "the model server went silent"},
	messages.RequestTimeout: {504, "timeout_error", "the request took longer than the limit"},
	messages.Overloaded:     {503, "service_unavailable", "the endpoint picker is overloaded"},
	messages.ShuttingDown:   {503, "service_unavailable", "the endpoint picker is shutting down"},
	messages.Unsupported:    {500, "internal_error", "the proxy's configuration is not supported"},
	messages.Internal:       {500, "internal_error", "the endpoint picker failed on this request"},
}

// errorBody is the error object of the OpenAI API.
type errorBody struct {
	Error errorObject `json:"error"`
}

type errorObject struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

// Status is the HTTP status of a refusal; 0 = nobody is answered.
func Status(why messages.Reason) int {
	if why == messages.NoReason || why == messages.ClientGone || why == messages.ServerGone {
		return 0
	}
	if r, ok := refusals[why]; ok {
		return r.status
	}
	return refusals[messages.Internal].status
}

// refusalFor is a refusal of ours without a detail. What will pass may be tried again after a second.
func refusalFor(why messages.Reason) messages.PickFailed {
	m := messages.PickFailed{Reason: why}
	if why == messages.Overloaded || why == messages.ShuttingDown || why == messages.PickTimeout {
		m.RetryAfter = time.Second
	}
	return m
}

// refuseNow refuses from the handler's goroutine, and ends the stream.
func (st *stream) refuseNow(m messages.PickFailed) error {
	st.refuse(m)
	return errOver
}

// refuse sends an immediate response, unless the stream is over or its response is beyond recall. Before the response's
// headers the client gets the status; after them Envoy resets its stream. For any goroutine.
func (st *stream) refuse(m messages.PickFailed) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.refuseLocked(m)
}

// relay is refuse with what the cycle said, which it need not be told.
func (st *stream) relay(m messages.PickFailed) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sendRefusal(m)
	return errOver
}

// refuseWaiting refuses a request that waits for its body or its answer while we shut down. For any goroutine.
func (st *stream) refuseWaiting() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.request.phase.waits() && st.response.phase == responseAwaited {
		st.refuseLocked(refusalFor(messages.ShuttingDown))
	}
}

// refuseLocked is refuse for whoever holds mu.
func (st *stream) refuseLocked(m messages.PickFailed) {
	if st.sendRefusal(m) {
		st.said = m.Reason
	}
}

// sendRefusal reports whether it refused. It gives up what has come of a body first, since the send may take its time,
// and its sender longer, and tells a handler that waits for the pick to end. A reason without a status of its own is a
// fault of ours.
func (st *stream) sendRefusal(m messages.PickFailed) bool {
	if st.closed != closedNot || st.response.phase.beyondRecall() {
		return false
	}
	st.closed = st.closed.or(closedRefused)
	st.request.body.giveUp()
	select {
	case st.inbox.answer <- m:
	default: // it has its answer
	}
	r, ok := refusals[m.Reason]
	if !ok {
		m.Reason = messages.Internal
		r = refusals[m.Reason]
	}
	st.srv.cfg.Metrics.refusals[m.Reason].Inc()
	frame := wire.AppendImmediate(nil, &wire.Immediate{
		Status: r.status, Headers: st.refusalHeaders(m), Body: refusalBody(r, m),
		Details: "signalbox_" + m.Reason.String(),
	})
	st.out.SetFrame(frame)
	_ = st.wire.Send(&st.out) // it fails only if nobody is there to be refused
	return true
}

// refusalHeaders name the request, so that the client has a word for what it saw.
func (st *stream) refusalHeaders(m messages.PickFailed) []wire.Header {
	if st.id == 0 { // refused before its headers were read
		st.begin()
	}
	h := []wire.Header{
		{Key: "content-type", Value: "application/json"},
		{Key: reasonHeader, Value: m.Reason.String()},
		{Key: requestIDHeader, Value: st.name},
	}
	if m.RetryAfter > 0 {
		seconds := int((m.RetryAfter + time.Second - 1) / time.Second)
		h = append(h, wire.Header{Key: "retry-after", Value: strconv.Itoa(seconds)})
	}
	return h
}

func refusalBody(r refusal, m messages.PickFailed) []byte {
	text := r.message
	if m.Detail != "" {
		text += ": " + m.Detail
	}
	b, err := json.Marshal(errorBody{errorObject{Message: text, Type: r.kind, Code: m.Reason.String()}})
	if err != nil {
		return []byte(`{"error":{"message":"internal error","type":"internal_error","param":null,"code":"internal"}}`)
	}
	return b
}
