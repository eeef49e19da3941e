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
	Lane      Lane
	Mutation  *extprocv3.HeaderMutation // of headers and trailers answers, and of body answers where it counts
	Hold      bool                      // headers answer: nothing goes on before the first body answer
	LaneEnded bool                      // nothing more follows in this lane
	Chunk     []byte                    // body answer: what was given back, or what stands in for the body
	Replaced  bool                      // Chunk stands in for the body that was sent, outside full duplex
	Immediate *extprocv3.ImmediateResponse
	Message   *extprocv3.ProcessingResponse // as received
}

// judge runs a message through its lane. Metadata counts for every kind of message.
func (s *Stream) judge(m *extprocv3.ProcessingResponse) (Answer, []*Violation) {
	switch {
	case s.config.Observe:
		return Answer{}, []*Violation{s.lanes[RequestLane].tolerated(ObservedAnswer,
			"answer of kind %T in observability mode", m.GetResponse())}
	case s.answered:
		return Answer{}, []*Violation{s.lanes[RequestLane].tolerated(AfterImmediate,
			"answer of kind %T after an immediate response", m.GetResponse())}
	case m.GetOverrideMessageTimeout() != nil:
		return Answer{}, []*Violation{s.lanes[RequestLane].tolerated(IgnoredField,
			"override_message_timeout: no timer runs, or none may be overridden")}
	}
	answer := Answer{Message: m}
	found := s.receive(m.GetDynamicMetadata())
	if m.GetModeOverride() != nil && !s.mayOverride(m) {
		found = append(found, s.lanes[RequestLane].tolerated(IgnoredField, "mode_override is not allowed"))
	}
	if len(m.GetTypedDynamicMetadata()) > 0 {
		found = append(found, s.lanes[RequestLane].tolerated(MetadataNamespace, "typed dynamic metadata is dropped"))
	}
	switch r := m.GetResponse().(type) {
	case *extprocv3.ProcessingResponse_RequestHeaders:
		found = append(found, s.judgeHeaders(&answer, RequestLane, r.RequestHeaders)...)
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		found = append(found, s.judgeHeaders(&answer, ResponseLane, r.ResponseHeaders)...)
	case *extprocv3.ProcessingResponse_RequestBody:
		found = append(found, s.judgeBody(&answer, RequestLane, r.RequestBody)...)
	case *extprocv3.ProcessingResponse_ResponseBody:
		found = append(found, s.judgeBody(&answer, ResponseLane, r.ResponseBody)...)
	case *extprocv3.ProcessingResponse_RequestTrailers:
		found = append(found, s.judgeTrailers(&answer, RequestLane, r.RequestTrailers)...)
	case *extprocv3.ProcessingResponse_ResponseTrailers:
		found = append(found, s.judgeTrailers(&answer, ResponseLane, r.ResponseTrailers)...)
	case *extprocv3.ProcessingResponse_ImmediateResponse:
		found = append(found, s.judgeImmediate(&answer, r.ImmediateResponse)...)
	default:
		if m.GetModeOverride() == nil {
			found = append(found, s.lanes[RequestLane].fatal(UnknownAnswer, "answer of kind %T", r))
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

func (s *Stream) judgeHeaders(a *Answer, id Lane, h *extprocv3.HeadersResponse) []*Violation {
	l := &s.lanes[id]
	found := l.gotHeaders(h)
	a.Kind, a.Lane = HeadersAnswer, id
	a.Mutation = h.GetResponse().GetHeaderMutation()
	a.Hold, a.LaneEnded = l.held, l.outputEnded
	return found
}

func (s *Stream) judgeBody(a *Answer, id Lane, b *extprocv3.BodyResponse) []*Violation {
	l := &s.lanes[id]
	found := l.gotBody(b)
	a.Kind, a.Lane = BodyAnswer, id
	a.LaneEnded = l.outputEnded
	common := b.GetResponse()
	if l.mode.changesLate() {
		a.Mutation = common.GetHeaderMutation()
	}
	switch m := common.GetBodyMutation().GetMutation().(type) {
	case *extprocv3.BodyMutation_StreamedResponse:
		if l.mode.Duplex() {
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
func (s *Stream) judgeTrailers(a *Answer, id Lane, t *extprocv3.TrailersResponse) []*Violation {
	l := &s.lanes[id]
	ended := l.outputEnded
	found := l.gotTrailers(t)
	if len(found) > 0 || ended {
		return found
	}
	a.Kind, a.Lane, a.LaneEnded = TrailersAnswer, id, true
	a.Mutation = t.GetHeaderMutation()
	return nil
}

// judgeImmediate ignores an immediate response after the end of both lanes.
func (s *Stream) judgeImmediate(a *Answer, r *extprocv3.ImmediateResponse) []*Violation {
	id := RequestLane
	if s.lanes[ResponseLane].started {
		id = ResponseLane
	}
	if s.config.DisableImmediate {
		return []*Violation{s.lanes[id].fatal(ImmediateDisabled, "immediate response with status %d",
			r.GetStatus().GetCode())}
	}
	s.answered = true
	if s.lanes[RequestLane].complete() && s.lanes[ResponseLane].complete() {
		return nil
	}
	a.Kind, a.Lane, a.Immediate = ImmediateAnswer, id, r
	return nil
}

// receive merges dynamic metadata of accepted namespaces.
func (s *Stream) receive(metadata *structpb.Struct) []*Violation {
	var found []*Violation
	for _, namespace := range slices.Sorted(maps.Keys(metadata.GetFields())) {
		value := metadata.GetFields()[namespace].GetStructValue()
		if value == nil || !slices.Contains(s.config.Receive, namespace) {
			found = append(found, s.lanes[RequestLane].tolerated(MetadataNamespace, "dynamic metadata in %q is dropped",
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
