package conformance

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

func (s *session) readSubset(m *ask) {
	v := m.GetMetadataContext().GetFilterMetadata()[subsetNamespace].GetFields()[subsetKey]
	if v == nil || s.limited {
		return
	}
	s.limited = true
	entries := strings.Split(v.GetStringValue(), ",")
	for _, e := range v.GetListValue().GetValues() {
		entries = append(entries, e.GetStringValue())
	}
	for _, e := range entries {
		s.limit = append(s.limit, strings.TrimSpace(e))
	}
}

// pick is the answer with the destinations, or the refusal if there are none.
func (s *session) pick(in exchange.Kind) *answer {
	s.picked = true
	to := slices.DeleteFunc(slices.Clone(pool),
		func(e string) bool { return s.limited && !slices.Contains(s.limit, e) })
	if len(to) == 0 {
		return refusal(503)
	}
	s.to = to[0]
	return pickOf(in, strings.Join(to[:min(2, len(to))], ","))
}

func pickOf(in exchange.Kind, to string) *answer {
	common := &extprocv3.CommonResponse{HeaderMutation: set(destinationKey, to), ClearRouteCache: true}
	m := bodyAnswer(exchange.Request, common)
	if in == exchange.HeadersAnswer {
		m = headersAnswer(exchange.Request, common)
	}
	m.DynamicMetadata = &structpb.Struct{
		Fields: map[string]*structpb.Value{lbNamespace: structpb.NewStructValue(&structpb.Struct{
			Fields: map[string]*structpb.Value{destinationKey: structpb.NewStringValue(to)},
		})},
	}
	return m
}

func set(pairs ...string) *extprocv3.HeaderMutation {
	m := &extprocv3.HeaderMutation{}
	for i := 0; i < len(pairs); i += 2 {
		m.SetHeaders = append(m.SetHeaders, &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: pairs[i],
			RawValue: []byte(pairs[i+1])}})
	}
	return m
}

func refusal(status int) *answer {
	return &answer{
		Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{
			Status: &typev3.HttpStatus{
				Code: typev3.StatusCode(status),
			}, Headers: set("content-type", "application/json"),
			Body: []byte(`{"error":{"message":"no","type":"invalid_request_error"}}`),
		}},
	}
}

func headersAnswer(id exchange.Direction, common *extprocv3.CommonResponse) *answer {
	h := &extprocv3.HeadersResponse{Response: common}
	if id == exchange.Request {
		return &answer{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: h}}
	}
	return &answer{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: h}}
}

func bodyAnswer(id exchange.Direction, common *extprocv3.CommonResponse) *answer {
	b := &extprocv3.BodyResponse{Response: common}
	if id == exchange.Request {
		return &answer{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: b}}
	}
	return &answer{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: b}}
}

func chunkAnswer(id exchange.Direction, chunk []byte, end bool) *answer {
	return bodyAnswer(id, &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{
			StreamedResponse: &extprocv3.StreamedBodyResponse{Body: chunk, EndOfStream: end},
		},
	}})
}

func bodyOf(m *answer) *extprocv3.BodyResponse {
	if b := m.GetRequestBody(); b != nil {
		return b
	}
	return m.GetResponseBody()
}

func trailersAnswer(id exchange.Direction) *answer {
	if id == exchange.Request {
		return &answer{
			Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}},
		}
	}
	return &answer{
		Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}},
	}
}
