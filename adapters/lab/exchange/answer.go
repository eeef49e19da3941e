package exchange

import (
	"maps"
	"slices"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Kind says what an answer is.
type Kind uint8

// The kinds of answers. Nothing is an answer without effect; Recv never returns it.
const (
	Nothing Kind = iota
	HeadersAnswer
	BodyAnswer
	TrailersAnswer
	ImmediateAnswer
)

// Answer is one accepted message of the EPP.
type Answer struct {
	Kind      Kind
	Direction Direction
	Mutation  *extprocv3.HeaderMutation // of headers and trailers answers, and of body answers where it counts
	Hold      bool                      // headers answer: nothing goes on before the first body answer
	Ended     bool                      // nothing more follows in this direction
	Chunk     []byte                    // body answer: what was given back, or what stands in for the body
	Replaced  bool                      // Chunk stands in for the body that was sent, outside full duplex
	Immediate *extprocv3.ImmediateResponse
	Message   *extprocv3.ProcessingResponse // as received
}

// judge runs a message through its direction. Metadata counts for every kind of message.
func (s *Stream) judge(m *extprocv3.ProcessingResponse) (Answer, []*Violation) {
	switch {
	case s.config.Observe:
		return Answer{}, []*Violation{s.directions[Request].tolerated(ObservedAnswer,
			"answer of kind %T in observability mode", m.GetResponse())}
	case s.answered:
		return Answer{}, []*Violation{s.directions[Request].tolerated(AfterImmediate,
			"answer of kind %T after an immediate response", m.GetResponse())}
	case m.GetOverrideMessageTimeout() != nil:
		return Answer{}, []*Violation{s.directions[Request].tolerated(IgnoredField,
			"override_message_timeout: no timer runs, or none may be overridden")}
	}
	answer := Answer{Message: m}
	found := s.receive(m.GetDynamicMetadata())
	if m.GetModeOverride() != nil && !s.mayOverride(m) {
		found = append(found, s.directions[Request].tolerated(IgnoredField, "mode_override is not allowed"))
	}
	if len(m.GetTypedDynamicMetadata()) > 0 {
		found = append(found, s.directions[Request].tolerated(MetadataNamespace, "typed dynamic metadata is dropped"))
	}
	switch r := m.GetResponse().(type) {
	case *extprocv3.ProcessingResponse_RequestHeaders:
		found = append(found, s.judgeHeaders(&answer, Request, r.RequestHeaders)...)
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		found = append(found, s.judgeHeaders(&answer, Response, r.ResponseHeaders)...)
	case *extprocv3.ProcessingResponse_RequestBody:
		found = append(found, s.judgeBody(&answer, Request, r.RequestBody)...)
	case *extprocv3.ProcessingResponse_ResponseBody:
		found = append(found, s.judgeBody(&answer, Response, r.ResponseBody)...)
	case *extprocv3.ProcessingResponse_RequestTrailers:
		found = append(found, s.judgeTrailers(&answer, Request, r.RequestTrailers)...)
	case *extprocv3.ProcessingResponse_ResponseTrailers:
		found = append(found, s.judgeTrailers(&answer, Response, r.ResponseTrailers)...)
	case *extprocv3.ProcessingResponse_ImmediateResponse:
		found = append(found, s.judgeImmediate(&answer, r.ImmediateResponse)...)
	default:
		if m.GetModeOverride() == nil {
			found = append(found, s.directions[Request].fatal(UnknownAnswer, "answer of kind %T", r))
		}
	}
	return answer, found
}

// mayOverride reports whether Envoy would look at mode_override here, though its configuration may not allow it: in an
// answer to headers, and with no full-duplex body. It asks for nothing then that Envoy would not ignore.
func (s *Stream) mayOverride(m *extprocv3.ProcessingResponse) bool {
	headers := m.GetRequestHeaders() != nil || m.GetResponseHeaders() != nil
	return headers && s.config.Request.Body != Duplex && s.config.Response.Body != Duplex
}

func (s *Stream) judgeHeaders(a *Answer, id Direction, h *extprocv3.HeadersResponse) []*Violation {
	d := &s.directions[id]
	found := d.gotHeaders(h)
	a.Kind, a.Direction = HeadersAnswer, id
	a.Mutation = h.GetResponse().GetHeaderMutation()
	a.Hold, a.Ended = d.held, d.outputEnded
	return found
}

func (s *Stream) judgeBody(a *Answer, id Direction, b *extprocv3.BodyResponse) []*Violation {
	d := &s.directions[id]
	found := d.gotBody(b)
	a.Kind, a.Direction = BodyAnswer, id
	a.Ended = d.outputEnded
	common := b.GetResponse()
	if d.mode.changesLate() {
		a.Mutation = common.GetHeaderMutation()
	}
	switch m := common.GetBodyMutation().GetMutation().(type) {
	case *extprocv3.BodyMutation_StreamedResponse:
		if d.mode.Duplex() {
			a.Chunk = m.StreamedResponse.GetBody()
		}
	case *extprocv3.BodyMutation_Body:
		a.Chunk, a.Replaced = m.Body, true
	case *extprocv3.BodyMutation_ClearBody:
		a.Replaced = m.ClearBody
	}
	return found
}

// judgeTrailers turns a tolerated answer into nothing: it has no effect.
func (s *Stream) judgeTrailers(a *Answer, id Direction, t *extprocv3.TrailersResponse) []*Violation {
	d := &s.directions[id]
	ended := d.outputEnded
	found := d.gotTrailers(t)
	if len(found) > 0 || ended {
		return found
	}
	a.Kind, a.Direction, a.Ended = TrailersAnswer, id, true
	a.Mutation = t.GetHeaderMutation()
	return nil
}

// judgeImmediate ignores an immediate response after the end of both directions.
func (s *Stream) judgeImmediate(a *Answer, r *extprocv3.ImmediateResponse) []*Violation {
	id := Request
	if s.directions[Response].started {
		id = Response
	}
	if s.config.DisableImmediate {
		return []*Violation{s.directions[id].fatal(ImmediateDisabled, "immediate response with status %d",
			r.GetStatus().GetCode())}
	}
	s.answered = true
	if s.directions[Request].complete() && s.directions[Response].complete() {
		return nil
	}
	a.Kind, a.Direction, a.Immediate = ImmediateAnswer, id, r
	return nil
}

// receive merges dynamic metadata of accepted namespaces.
func (s *Stream) receive(metadata *structpb.Struct) []*Violation {
	var found []*Violation
	for _, namespace := range slices.Sorted(maps.Keys(metadata.GetFields())) {
		value := metadata.GetFields()[namespace].GetStructValue()
		if value == nil || !slices.Contains(s.config.Receive, namespace) {
			found = append(found, s.directions[Request].tolerated(MetadataNamespace,
				"dynamic metadata in %q is dropped",
				namespace))
			continue
		}
		merged := &structpb.Struct{Fields: map[string]*structpb.Value{}}
		maps.Copy(merged.Fields, s.received[namespace].GetFields())
		maps.Copy(merged.Fields, value.GetFields())
		s.received[namespace] = merged
	}
	return found
}
