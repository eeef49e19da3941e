package extproc

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/grpcstatus"
	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

// refusal is the form that a reason has for a client of the OpenAI API. This is the only place where a reason becomes
// a status; a client of gRPC gets the one that stands for it.
type refusal struct {
	status  int
	kind    string // error.type
	message string
}

var refusals = map[messages.Reason]refusal{
	messages.InvalidRequest: {400, "invalid_request_error", "the request cannot be read"},
	messages.BodyTooLarge:   {413, "invalid_request_error", "the request body is larger than the limit"},
	messages.BodyTimeout:    {408, "invalid_request_error", "the request body did not arrive in time"},
	messages.NoEndpoints:    {503, "service_unavailable", "no model server is available for this request"},
	messages.NoCapacity:     {429, "rate_limit_error", "the model servers are saturated"},
	messages.TTLExpired:     {429, "rate_limit_error", "the request waited too long for a model server"},
	messages.Displaced: {429, "rate_limit_error",
		"the request waited and made way for one of higher priority"},
	messages.QueuePressure: {429, "rate_limit_error",
		"the request waited and made way for one of another tenant"},
	messages.Preempted: {429, "rate_limit_error",
		"the request ran and was ended for one of higher priority"},
	messages.NotCached: {412, "invalid_request_error",
		"no model server holds the beginning of the prompt"},
	messages.PickTimeout:    {503, "service_unavailable", "no model server was picked in time"},
	messages.ResponseIdle:   {504, "timeout_error", "the model server went silent"},
	messages.RequestTimeout: {504, "timeout_error", "the request took longer than the limit"},
	messages.Overloaded:     {503, "service_unavailable", "the endpoint picker is overloaded"},
	messages.ShuttingDown:   {503, "service_unavailable", "the endpoint picker is shutting down"},
	messages.Unsupported:    {500, "internal_error", "the proxy's configuration is not supported"},
	messages.Internal:       {500, "internal_error", "the endpoint picker failed on this request"},
}

// anthropicEnds are how the paths of the Anthropic API end, of which each is a word of its own.
var anthropicEnds = [...]string{"messages", "messages/count_tokens", "messages/render"}

// Anthropic reports whether errors at a path are those of the Anthropic API. It knows the paths that the parser of
// that API knows.
func Anthropic(path string) bool {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	path = strings.TrimSuffix(path, "/")
	for _, end := range &anthropicEnds {
		rest, ends := strings.CutSuffix(path, end)
		if ends && (rest == "" || strings.HasSuffix(rest, "/") || strings.HasSuffix(rest, ".")) {
			return true
		}
	}
	return false
}

// anthropicKinds has error.type of the Anthropic API by status. For others it is that of the OpenAI API.
var anthropicKinds = map[int]string{413: "request_too_large", 500: "api_error", 503: "overloaded_error"}

// anthropicBody is the error object of the Anthropic API.
type anthropicBody struct {
	Type  string         `json:"type"` // error
	Error anthropicError `json:"error"`
}

type anthropicError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
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

// Status returns the HTTP status of a refusal; 0 = there is no one to answer.
func Status(why messages.Reason) int {
	switch why {
	case messages.NoReason, messages.ClientGone, messages.ServerGone, messages.Lost:
		return 0
	}
	if r, ok := refusals[why]; ok {
		return r.status
	}
	return refusals[messages.Internal].status
}

// refusalFor returns a refusal for a reason of our own, without a detail. If the reason will pass, the client is told
// to try again after a second.
func refusalFor(why messages.Reason) messages.PickFailed {
	m := messages.PickFailed{Reason: why}
	if why == messages.Overloaded || why == messages.ShuttingDown || why == messages.PickTimeout {
		m.RetryAfter = time.Second
	}
	return m
}

// saturated returns the refusal of a request that would need memory which requests hold that wait for room. If they
// wait because there is no server at all, that is what is missing.
func (st *stream) saturated(retryAfter time.Duration) messages.PickFailed {
	why := messages.NoCapacity
	if st.srv.deps.Empty != nil && st.srv.deps.Empty() {
		why = messages.NoEndpoints
	}
	return messages.PickFailed{Reason: why, RetryAfter: max(retryAfter, time.Second)}
}

// refuseNow refuses from the handler's goroutine, and ends the stream.
func (st *stream) refuseNow(m messages.PickFailed) error {
	st.refuse(m)
	return errOver
}

// refuse sends an immediate response, unless the stream is over or it is too late to refuse its response. Before the
// response's headers the client gets the status; after them Envoy resets the client's stream. Any goroutine may call
// it.
func (st *stream) refuse(m messages.PickFailed) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.refuseLocked(m)
}

// relay refuses with the reason of the cycle. Unlike refuse it leaves said unset, so that the cycle is not told its
// own reason. The body goes before the answer, which the proxy may be slow to take: others may wait for its memory.
func (st *stream) relay(m messages.PickFailed) error {
	st.request.body.release()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sendRefusal(m)
	return errOver
}

// refuseWaiting refuses a request that waits for its body or its pick, because this process shuts down. Any goroutine
// may call it.
func (st *stream) refuseWaiting() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.request.phase.waits() && st.response.phase == responseAwaited {
		st.refuseLocked(refusalFor(messages.ShuttingDown))
	}
}

// refuseLocked is refuse for a caller that holds mu.
func (st *stream) refuseLocked(m messages.PickFailed) {
	if st.sendRefusal(m) {
		st.said = m.Reason
	}
}

// sendRefusal reports whether it refused. Before it sends, which may take long, it frees what has come of the body and
// wakes a handler that waits for the pick. A reason without a status is sent as an internal error.
func (st *stream) sendRefusal(m messages.PickFailed) bool {
	if st.closed != closedNot || st.response.phase.beyondRecall() {
		return false
	}
	st.closed = st.closed.or(closedRefused)
	st.request.body.giveUp()
	select {
	case st.inbox.answer <- m:
	default: // an answer is there already
	}
	r, ok := refusals[m.Reason]
	if !ok {
		m.Reason = messages.Internal
		r = refusals[m.Reason]
	}
	st.srv.cfg.Metrics.refusals[m.Reason].Inc()
	answer := wire.Immediate{
		Status: r.status, Headers: st.refusalHeaders(r, m), Details: "signalbox_" + m.Reason.String(),
	}
	if grpcstatus.IsType(st.request.facts.contentType) {
		refuseCall(&answer, r, m)
	} else {
		answer.Body = refusalBody(st.request.facts.path(), r, m)
		answer.Headers = append(answer.Headers, wire.Header{Key: "content-type", Value: "application/json"})
	}
	st.out.SetFrame(wire.AppendImmediate(nil, &answer))
	_ = st.wire.Send(&st.out) // it fails only if the proxy is gone, and then no client waits
	return true
}

// refusalHeaders returns the headers of a refusal. They name the request, so that the client can ask what happened to
// it. Each 429 says when the client may try again.
func (st *stream) refusalHeaders(r refusal, m messages.PickFailed) []wire.Header {
	if st.id == 0 { // it is refused before its headers were read
		st.begin()
	}
	h := []wire.Header{
		{Key: reasonHeader, Value: m.Reason.String()},
		{Key: requestIDHeader, Value: st.name},
	}
	if r.status == http.StatusTooManyRequests {
		m.RetryAfter = max(m.RetryAfter, time.Second)
	}
	if m.RetryAfter > 0 {
		seconds := int((m.RetryAfter + time.Second - 1) / time.Second)
		h = append(h, wire.Header{Key: "retry-after", Value: strconv.Itoa(seconds)})
	}
	return h
}

// refuseCall makes a refusal one for a client of gRPC: headers alone, which are trailers to it, under the HTTP status
// 200.
func refuseCall(answer *wire.Immediate, r refusal, m messages.PickFailed) {
	answer.Status, answer.GRPC = http.StatusOK, int(grpcstatus.Of(r.status))
	answer.Headers = append(answer.Headers,
		wire.Header{Key: "content-type", Value: grpcstatus.ContentType},
		wire.Header{Key: grpcstatus.Key, Value: strconv.Itoa(answer.GRPC)},
		wire.Header{Key: grpcstatus.MessageKey, Value: grpcstatus.Message(refusalText(r, m))})
}

// refusalText returns what a refusal says to a person.
func refusalText(r refusal, m messages.PickFailed) string {
	if m.Detail == "" {
		return r.message
	}
	return r.message + ": " + m.Detail
}

// refusalBody returns the error object of the API to which a path belongs: the Anthropic API, or else the OpenAI API.
func refusalBody(path string, r refusal, m messages.PickFailed) []byte {
	text := refusalText(r, m)
	var body any = errorBody{errorObject{Message: text, Type: r.kind, Code: m.Reason.String()}}
	if Anthropic(path) {
		kind := cmp.Or(anthropicKinds[r.status], r.kind)
		body = anthropicBody{Type: "error", Error: anthropicError{Type: kind, Message: text}}
	}
	b, err := json.Marshal(body)
	if err != nil {
		return []byte(`{"error":{"message":"internal error","type":"internal_error","param":null,"code":"internal"}}`)
	}
	return b
}

const modelsPath = "/v1/models"

// modelList is the list of models of the OpenAI API.
type modelList struct {
	Object string       `json:"object"` // list
	Data   []modelEntry `json:"data"`
}

type modelEntry struct {
	ID     string `json:"id"`
	Object string `json:"object"` // model
}

// models returns the models of the pool if the request asks for their list and this process is to answer; none = a
// model server answers.
func (st *stream) models() []string {
	path := strings.TrimSuffix(st.request.facts.paths[ownPath], "/")
	if st.under.Models == nil || st.check || path != modelsPath {
		return nil
	}
	get := false
	st.in.Headers(func(key, value []byte) bool {
		if string(key) == ":method" {
			get = string(value) == http.MethodGet
			return false
		}
		return true
	})
	if !get {
		return nil
	}
	return st.under.Models()
}

// listModels answers the request, and ends the stream. The request has no cycle and no record, as no server was asked.
func (st *stream) listModels(models []string) error {
	list := modelList{Object: "list", Data: make([]modelEntry, 0, len(models))}
	for _, id := range models {
		list.Data = append(list.Data, modelEntry{id, "model"})
	}
	body, err := json.Marshal(list)
	if err != nil {
		return err // of strings alone it never fails
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed != closedNot {
		return errOver
	}
	st.closed = closedRefused
	st.out.SetFrame(wire.AppendImmediate(nil, &wire.Immediate{
		Status: http.StatusOK, Body: body, Details: "signalbox_models",
		Headers: []wire.Header{{Key: "content-type", Value: "application/json"}},
	}))
	_ = st.wire.Send(&st.out) // it fails only if the proxy is gone, and then no client waits
	return errOver
}
